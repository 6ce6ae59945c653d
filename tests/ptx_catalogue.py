"""The instructions, directives and special registers of PTX ISA 9.1.

`docs/ptx.md` is made of these tables, of those in `ptxgen.emulator.ptx.catalogue` and of the signatures.
"""

from __future__ import annotations

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

#: operands that are not taken, and the reason
OPERANDS_NOT_TAKEN = {
    "`tex` and `tld4` with a sampler beside the texture": "only `.target texmode_unified` is implemented",
    "`tex` and `tld4` with a depth to compare with": "comparisons of depths are not implemented",
    "`alloca`, `stacksave` and `stackrestore` in a recursive function": "its stack has frames of fixed size",
    "a constant added to a register of a floating-point type or a predicate": "PTX gives it no meaning",
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
