"""The instructions of PTX ISA 9.1: the chapters, and why some are not emulated.

``docs/ptx.md`` is made of these tables and of the signatures.
"""

from __future__ import annotations

from functools import cache

from ptxgen.emulator.ptx.syntax import Instruction

#: the newest target whose instructions are emulated
TARGET = "sm_90a"

#: all instructions, by chapter of the PTX ISA; a name with dots where forms of one operation are in different chapters
CHAPTERS = {
    "Integers and floating-point numbers": (
        "add sub mul mad mul24 mad24 fma div rem abs neg min max sad addc subc madc popc clz bfind fns brev bfe bfi "
        "szext bmsk dp4a dp2a testp copysign rcp sqrt rsqrt sin cos lg2 ex2 tanh"
    ),
    "Comparison and selection": "set setp selp slct",
    "Logic and shifts": "and or xor not cnot lop3 shf shl shr",
    "Data movement and conversion": (
        "mov shfl prmt ld ldu st prefetch prefetchu applypriority discard createpolicy isspacep cvta cvt mapa "
        "getctarank"
    ),
    "Asynchronous copies": "cp st.async st.bulk red.async tensormap.replace tensormap.cp_fenceproxy",
    "Multicast memory": "multimem",
    "Textures and surfaces": "tex tld4 txq istypep suld sust sured suq",
    "Control flow": "bra brx call ret exit",
    "Synchronisation and communication": (
        "bar barrier membar fence atom red vote match activemask redux griddepcontrol elect mbarrier "
        "clusterlaunchcontrol"
    ),
    "Matrix products": "wmma ldmatrix stmatrix movmatrix mma mma.sp wgmma tcgen05",
    "Stack": "stacksave stackrestore alloca",
    "Video": (
        "vadd vsub vabsdiff vmin vmax vshl vshr vmad vset vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 "
        "vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4"
    ),
    "Miscellaneous": "brkpt nanosleep pmevent trap setmaxnreg",
}

#: instructions and forms for targets up to sm_90a that are not emulated, and the reason. A name and modifiers stand for
#: all instructions that have them
NOT_TAKEN = {
    "multimem": "it accesses the memory of several GPUs; one GPU is emulated",
    "istypep": "a handle has no type that is known when the kernel is compiled",
    "sured": "reductions in surfaces are not implemented",
    "sust p": "formatted stores to surfaces are not implemented",
    "tex 2dms": "textures have one sample of a pixel",
    "tex a2dms": "textures have one sample of a pixel",
    "tld4 cube": "four texels of a cube are not implemented",
    "tld4 acube": "four texels of a cube are not implemented",
    **{
        f"txq {query}": "queries of samplers are not implemented"
        for query in ("filter_mode", "addr_mode_0", "addr_mode_1", "addr_mode_2", "force_unnormalized_coords")
    },
    "suq memory_layout": "surfaces have one layout",
    "tex f16": "textures give numbers of 32 bits",
    "tex f16x2": "textures give numbers of 32 bits",
    "mma m8n8k4 f16": "the fragments of Volta are not implemented",
}

#: the same for operands
OPERANDS_NOT_TAKEN = {
    "`tex` and `tld4` with a sampler beside the texture": "only `.target texmode_unified` is implemented",
    "`tex` and `tld4` with a depth to compare with": "comparisons of depths are not implemented",
    "`alloca`, `stacksave` and `stackrestore` in a recursive function": "its stack has frames of fixed size",
    "a constant added to a register of a floating-point type or a predicate": "PTX gives it no meaning",
}

#: instructions and forms that need a later target
LATER = {
    "tcgen05": "sm_100a",
    "clusterlaunchcontrol": "sm_100",
    "st bulk": "sm_100",
    "redux f32": "sm_100a",
    **{f"{op} f32x2": "sm_100" for op in ("add", "sub", "mul", "fma")},
    **{f"{op} f32 {narrow}": "sm_100" for op in ("add", "sub", "fma") for narrow in ("f16", "bf16")},
    "cvt rs": "sm_100a",
    **{f"cvt {kind}": "sm_100a" for kind in ("e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2", "s2f6x2")},
    "ldmatrix m16n16": "sm_100a",
    "ldmatrix m8n16": "sm_100a",
    "stmatrix m16n8": "sm_100a",
    **{f"mma kind::{kind}": "sm_120a" for kind in ("f8f6f4", "mxf8f6f4", "mxf4", "mxf4nvf4")},
    **{f"cp.async.bulk.tensor {mode}": "sm_100" for mode in ("tile::gather4", "tile::scatter4", "im2col::w")},
    "cp.async.bulk.tensor im2col::w::128": "sm_100",
    **{f"cp.async.bulk.tensor cta_group::{n}": "sm_100" for n in (1, 2)},
    "cp.async.bulk cp_mask": "sm_100",
    "multimem.cp": "sm_100",
}

#: directives that are taken
DIRECTIVES = (
    ".version .target .address_size .entry .func .alias .branchtargets .calltargets .callprototype .maxnreg "
    ".maxntid .reqntid .minnctapersm .maxnctapersm .noreturn .pragma .abi_preserve .abi_preserve_control .section "
    ".file .loc .extern .visible .weak .common .reqnctapercluster .explicitcluster .maxclusterrank "
    ".blocksareclusters .reg .global .const .shared .local .param .align .attribute"
)

#: directives that are not taken, and the reason
DIRECTIVES_NOT_TAKEN = {
    ".tex": "deprecated; `.global .texref` variables are taken",
    ".sreg": "special registers are declared already",
    ".address_size 32": "addresses have 64 bits",
    "@@DWARF": "deprecated; `.section` is taken",
}

#: special registers that are taken
REGISTERS = (
    "tid ntid laneid warpid nwarpid ctaid nctaid smid nsmid gridid is_explicit_cluster clusterid nclusterid "
    "cluster_ctaid cluster_nctaid cluster_ctarank cluster_nctarank lanemask_eq lanemask_le lanemask_lt "
    "lanemask_ge lanemask_gt clock clock_hi clock64 envreg0 globaltimer globaltimer_lo globaltimer_hi "
    "reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap reserved_smem_offset_2 "
    "total_smem_size aggr_smem_size dynamic_smem_size current_graph_exec"
)

#: special registers that are not taken, and the reason
REGISTERS_NOT_TAKEN = {
    "pm0": "`%pm0` to `%pm7`, also with `_64`: performance counters count events of the hardware",
}

#: forms of the instructions that have no signature
FORMS = {
    "call": "`call{.uni}` of a function of the text, or through a register",
    "brx": "`brx.idx{.uni}`",
    **dict.fromkeys(CHAPTERS["Video"].split(), "all"),
}


@cache
def _split(key: str) -> tuple[str, frozenset[str]]:
    op, *mods = key.replace(".", " ").split()
    return op, frozenset(mods)


def reason(ins: Instruction) -> str:
    """The reason why an instruction is not emulated, by the most specific row of the tables; empty if none has it."""
    mods, best, why = set(ins.mods), -1, ""
    for table, text in ((NOT_TAKEN, "{}"), (LATER, f"it needs {{}}; instructions up to {TARGET} are emulated")):
        for key, value in table.items():
            op, words = _split(key)
            if op == ins.op and words <= mods and len(words) > best:
                best, why = len(words), text.format(value)
    return why
