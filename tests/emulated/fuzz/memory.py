"""Loads, stores and atomics: widths, vectors, spaces, generic addresses, asynchronous copies."""

from __future__ import annotations

from .draw import BITS
from .kernel import Case, Kernel

NARROW = ("u8", "s8", "u16", "s16", "b16", "u32", "s32", "b32", "f32", "u64", "s64", "b64", "f64")


def operand(registers: list[str]) -> str:
    """One register, or several in braces."""
    return registers[0] if len(registers) == 1 else "{" + ", ".join(registers) + "}"


def holding(dtype: str) -> int:
    return max(BITS[dtype], 16)


def scattered(name: str) -> Case:
    """Threads store vectors of one type to shared memory and load those of others, of another type."""
    k = Kernel(name, "memory", (64,))
    d = k.draw
    room = 32  # bytes that each thread writes
    k.declared.append(f".shared .align 16 .b8 {name}_s[{room * k.threads}];")
    generic = d.chance(35)
    base = k.reg(64)
    if generic:
        k.emit(f"mov.u64 {base}, {name}_s;", f"cvta.shared.u64 {base}, {base};")
        space = ""
    else:
        k.emit(f"mov.u64 {base}, {name}_s;")
        space = d.pick((".shared", ".shared::cta"))
    mine = k.reg(64)
    k.emit(f"mad.wide.u32 {mine}, %t, {room}, {base};")
    at = 0
    while at < room:
        left = room - at
        kinds = [t for t in NARROW if at % (BITS[t] // 8) == 0 and BITS[t] // 8 <= left]
        dtype = d.pick(kinds)
        size = BITS[dtype] // 8
        counts = [n for n in (1, 2, 4) if n * size <= min(16, left) and at % (n * size) == 0]
        n = d.pick(counts)
        values = [k.load(dtype if size > 1 else "b16") for _ in range(n)]
        registers = operand(values)
        vector = "" if n == 1 else f".v{n}"
        hint = d.pick(("", "", ".volatile", ".weak", ".relaxed.cta"))
        k.emit(f"st{hint}{space}{vector}.{dtype} [{mine}+{at}], {registers};")
        at += n * size
    k.emit("bar.sync 0;")
    step, offset = d.pick((1, 3, 5, 7, 9)), d.below(64)
    index, theirs = k.reg(32), k.reg(64)
    k.emit(
        f"mad.lo.u32 {index}, %t, {step}, {offset};",
        f"rem.u32 {index}, {index}, {k.threads};",
        f"mad.wide.u32 {theirs}, {index}, {room}, {base};",
    )
    for _ in range(3):
        dtype = d.pick(NARROW)
        size = BITS[dtype] // 8
        n = d.pick([n for n in (1, 2, 4) if n * size <= 16])
        where = d.below(room // (n * size)) * n * size
        wide = BITS[dtype] if d.chance(50) else d.pick([w for w in (16, 32, 64) if w >= BITS[dtype]])
        if dtype[0] == "f":
            wide = BITS[dtype]
        wide = max(wide, 16)
        got = [k.reg(wide) for _ in range(n)]
        registers = operand(got)
        k.emit(f"ld{space}{'' if n == 1 else f'.v{n}'}.{dtype} {registers}, [{theirs}+{where}];")
        for r in got[:2]:
            k.store(r, f"b{wide}", label=f"ld.v{n}.{dtype}")
    return k.case()


def gathered(name: str) -> Case:
    """Loads from global memory, of any width, with hints, from addresses that depend on data."""
    k = Kernel(name, "memory", (32,), (2,))
    d = k.draw
    data = k.reserve_input(bytes(d.bits(8) for _ in range(512)))
    base = k.reg(64)
    space = d.pick((".global", ".global", ""))
    k.emit(f"add.u64 {base}, %in, {data};")
    for _ in range(4):
        dtype = d.pick(NARROW)
        size = BITS[dtype] // 8
        n = d.pick([n for n in (1, 2, 4) if n * size <= 16])
        places = [d.below(512 // (n * size)) for _ in range(k.total)]
        index, at = k.load("u32", places), k.reg(64)
        k.emit(f"mad.wide.u32 {at}, {index}, {n * size}, {base};")
        hint = d.pick(("", "", ".ca", ".cg", ".nc", ".volatile", ".relaxed.gpu", ".L1::evict_last"))
        if hint == ".nc" and not space:
            hint = ""
        if hint == ".nc":
            form = f"ld.global.nc{'' if n == 1 else f'.v{n}'}.{dtype}"
        elif hint in (".volatile", ".relaxed.gpu"):
            form = f"ld{hint}{space}{'' if n == 1 else f'.v{n}'}.{dtype}"
        else:
            form = f"ld{space}{hint}{'' if n == 1 else f'.v{n}'}.{dtype}"
        wide = holding(dtype) if dtype[0] == "f" else d.pick([w for w in (16, 32, 64) if w >= BITS[dtype]])
        got = [k.reg(wide) for _ in range(n)]
        k.emit(f"{form} {operand(got)}, [{at}];")
        for r in got[:2]:
            k.store(r, f"b{wide}", label=form)
    return k.case()


def spread(name: str) -> Case:
    """Stores of vectors and narrow types to the output, by threads in another order, some left out."""
    k = Kernel(name, "memory", (64,))
    d = k.draw
    room = 16
    region = k.column("b32", label="stores to global memory", count=room * k.total // 4)
    order = d.shuffled(range(k.total))
    index, base = k.load("u32", order), k.reg(64)
    k.emit(f"mad.wide.u32 {base}, {index}, {room}, %out;")
    at = 0
    while at < room:
        dtype = d.pick([t for t in NARROW if at % (BITS[t] // 8) == 0 and BITS[t] // 8 <= room - at])
        size = BITS[dtype] // 8
        n = d.pick([n for n in (1, 2, 4) if n * size <= room - at and at % (n * size) == 0])
        values = [k.load(dtype if size > 1 else "b16") for _ in range(n)]
        guard = f"@{d.pick(('', '!'))}{k.load('pred')} " if d.chance(30) else ""
        space = d.pick((".global", ".global", ".global.cs", ".global.wb", "", ".global.L1::no_allocate"))
        if space == ".global.L1::no_allocate" and size < 4:
            space = ".global"
        k.emit(
            f"{guard}st{space}{'' if n == 1 else f'.v{n}'}.{dtype} [{base}+{region.offset + at}], {operand(values)};"
        )
        at += n * size
    return k.case()


def spaces(name: str) -> Case:
    """Constants, initialised and plain variables, local memory; through generic addresses of mixed spaces."""
    k = Kernel(name, "memory", (64,))
    d = k.draw
    words = [d.bits(32) for _ in range(16)]
    reals = [d.value("f32") for _ in range(4)]
    k.outside.append(f".const .align 4 .b32 {name}_c[16] = {{{', '.join(map(str, words))}}};")
    k.outside.append(f".global .align 8 .u64 {name}_g[4] = {{{', '.join(str(d.bits(63)) for _ in range(4))}}};")
    k.outside.append(f".global .align 4 .f32 {name}_f[6] = {{{', '.join(f'0f{x:08X}' for x in reals)}}};")
    k.outside.append(f".global .align 2 .s16 {name}_h[5] = {{-1, 2, -3, 32767, -32768}};")
    k.outside.append(f".global .align 8 .u64 {name}_p[2] = {{generic({name}_g), generic({name}_f)+8}};")
    k.declared.append(f".local .align 16 .b8 {name}_l[64];")
    k.declared.append(f".shared .align 16 .b32 {name}_s[64];")
    at, base, r, w = k.reg(64), k.reg(64), k.reg(32), k.reg(64)
    index = k.load("u32", [d.below(16) for _ in range(k.total)])
    k.emit(f"mov.u64 {base}, {name}_c;", f"mad.wide.u32 {at}, {index}, 4, {base};", f"ld.const.b32 {r}, [{at}];")
    k.store(r, "b32", label="ld.const")
    small = k.load("u32", [d.below(4) for _ in range(k.total)])
    k.emit(f"mov.u64 {base}, {name}_g;", f"mad.wide.u32 {at}, {small}, 8, {base};", f"ld.global.u64 {w}, [{at}];")
    k.store(w, "b64", label="ld of an initialised variable")
    fifth = k.load("u32", [d.below(5) for _ in range(k.total)])
    k.emit(f"mov.u64 {base}, {name}_h;", f"mad.wide.u32 {at}, {fifth}, 2, {base};", f"ld.global.s16 {r}, [{at}];")
    k.store(r, "b32", label="ld.s16 of an initialised variable")
    k.emit(f"ld.global.f32 {r}, [{name}_f+{4 * d.below(6)}];")
    k.store(r, "b32", label="ld.f32 of an initialised variable")
    k.emit(f"ld.global.u64 {base}, [{name}_p+{8 * d.below(2)}];", f"ld.u32 {r}, [{base}];")
    k.store(r, "b32", label="through an initialised pointer")
    # local memory: a separate table for every thread
    for i in range(4):
        n = d.pick((1, 2, 4))
        values = [k.load("b32") for _ in range(n)]
        k.emit(f"st.local{'' if n == 1 else f'.v{n}'}.b32 [{name}_l+{16 * i}], {operand(values)};")
        for j in range(n, 4):
            k.emit(f"st.local.b32 [{name}_l+{16 * i + 4 * j}], {d.bits(31)};")
    k.emit(f"mov.u64 {base}, {name}_l;", f"mad.wide.u32 {at}, {index}, 4, {base};", f"ld.local.s32 {w}, [{at}];")
    k.store(w, "b64", label="ld.local.s32")
    byte = k.load("u32", [d.below(64) for _ in range(k.total)])
    k.emit(f"cvta.local.u64 {base}, {base};", f"mad.wide.u32 {at}, {byte}, 1, {base};", f"ld.s8 {r}, [{at}];")
    k.store(r, "b32", label="generic ld of local memory")
    # one instruction, three spaces
    k.emit(
        f"mov.u64 {base}, {name}_s;",
        f"mad.wide.u32 {at}, %t, 4, {base};",
        f"st.shared.b32 [{at}], {k.load('b32')};",
        "bar.sync 0;",
        f"cvta.shared.u64 {at}, {at};",
    )
    g, c, p, q = k.reg(64), k.reg(64), k.load("pred"), k.load("pred")
    k.emit(
        f"mov.u64 {g}, {name}_g;", f"cvta.global.u64 {g}, {g};", f"mov.u64 {c}, {name}_c;", f"cvta.const.u64 {c}, {c};"
    )
    k.emit(f"selp.b64 {at}, {at}, {g}, {p};", f"selp.b64 {at}, {at}, {c}, {q};", f"ld.u32 {r}, [{at}];")
    k.store(r, "b32", label="generic ld of mixed spaces")
    for space in d.shuffled(("shared", "global", "local"))[:2]:
        s = k.reg(1)
        k.emit(f"isspacep.{space} {s}, {at};")
        k.store(s, "pred", label=f"isspacep.{space}")
    return k.case()


ATOMIC = (
    "add.u32",
    "add.s32",
    "add.u64",
    "min.u32",
    "max.u32",
    "min.s32",
    "max.s32",
    "min.u64",
    "max.s64",
    "min.s64",
    "max.u64",
    "and.b32",
    "or.b32",
    "xor.b32",
    "and.b64",
    "or.b64",
    "xor.b64",
    "inc.u32",
    "dec.u32",
)


def counting(name: str) -> Case:
    """Atomics of several threads on one address, whose order has no effect, in shared and in global memory."""
    k = Kernel(name, "atomic", (64,), (2,))
    d = k.draw
    places = 8
    k.declared.append(f".shared .align 8 .b64 {name}_s[{places}];")
    base, at, mine, p = k.reg(64), k.reg(64), k.reg(64), k.reg(1)
    k.emit(f"mov.u64 {base}, {name}_s;", f"setp.lt.u32 {p}, %t, {places};", f"mad.wide.u32 {mine}, %t, 8, {base};")
    for _ in range(2):
        op = d.pick(ATOMIC)
        dtype = op.split(".")[1]
        start = k.load(f"b{BITS[dtype]}")
        k.emit(f"@{p} st.shared.{dtype.replace('s', 'u')} [{mine}], {start};", "bar.sync 0;")
        index = k.load("u32", [d.below(places) for _ in range(k.total)])
        k.emit(f"mad.wide.u32 {at}, {index}, 8, {base};")
        bound = str(d.between(3, 50))
        value = bound if op[:3] in ("inc", "dec") else k.load(dtype)
        form = d.pick(("red.shared", "atom.shared", "red.relaxed.cta.shared", "red"))
        address, result = at, ""
        if form == "red":
            address = k.reg(64)
            k.emit(f"cvta.shared.u64 {address}, {at};")
        if form == "atom.shared":
            result = f"{k.reg(BITS[dtype])}, "
        guard = f"@{k.load('pred')} " if d.chance(30) else ""
        k.emit(f"{guard}{form}.{op} {result}[{address}], {value};", "bar.sync 0;")
        got = k.reg(BITS[dtype])
        k.emit(f"mov.b{BITS[dtype]} {got}, 0;", f"@{p} ld.shared.b{BITS[dtype]} {got}, [{mine}];", "bar.sync 0;")
        k.store(got, f"b{BITS[dtype]}", label=f"{form}.{op}")
    op = d.pick(ATOMIC)
    dtype = op.split(".")[1]
    region = k.column(f"b{BITS[dtype]}", label=f"red.global.{op}", count=16)
    index = k.load("u32", [d.below(16) for _ in range(k.total)])
    value = str(d.between(3, 50)) if op[:3] in ("inc", "dec") else k.load(dtype)
    form = d.pick(("red.global", "red", "atom.global", "red.release.gpu.global", "atom.acq_rel.gpu.global"))
    result = f"{k.reg(BITS[dtype])}, " if form.startswith("atom") else ""
    k.emit(
        f"mad.wide.u32 {at}, {index}, {BITS[dtype] // 8}, %out;",
        f"{form}.{op} {result}[{at}+{region.offset}], {value};",
    )
    return k.case()


def single_warp(name: str) -> Case:
    """Atomics on a separate address for each thread: the returned and the stored values."""
    k = Kernel(name, "atomic", (64,))
    d = k.draw
    k.declared.append(f".shared .align 16 .b8 {name}_s[{16 * k.threads}];")
    base, mine = k.reg(64), k.reg(64)
    k.emit(f"mov.u64 {base}, {name}_s;", f"mad.wide.u32 {mine}, %t, 16, {base};")
    every = (
        *ATOMIC,
        "exch.b32",
        "exch.b64",
        "cas.b32",
        "cas.b64",
        "cas.b16",
        "add.f32",
        "add.f64",
        "add.noftz.f16",
        "add.noftz.bf16",
        "add.noftz.f16x2",
        "add.noftz.bf16x2",
    )
    for _ in range(3):
        op = d.pick(every)
        dtype = op.split(".")[-1]
        raw = f"b{BITS[dtype]}"
        start = k.load(dtype)
        value = k.load_related(dtype, start, 60)
        more = f", {k.load(dtype)}" if op.startswith("cas") else ""
        rule = "nan" if dtype == "f64" else ""
        got = k.reg(BITS[dtype])
        if d.chance(50):
            k.emit(f"st.shared.{raw} [{mine}], {start};", f"atom.shared.{op} {got}, [{mine}], {value}{more};")
            k.store(got, dtype, rule, label=f"atom.shared.{op} returns")
            left = k.reg(BITS[dtype])
            k.emit(f"ld.shared.{raw} {left}, [{mine}];")
            k.store(left, dtype, rule, label=f"atom.shared.{op} leaves")
        else:
            column = k.store(start, dtype, rule, label=f"atom.global.{op} leaves")
            at = k.reg(64)
            k.emit(f"add.u64 {at}, {k.base('out', BITS[dtype] // 8)}, {column.offset};")
            k.emit(f"atom.global.{op} {got}, [{at}], {value}{more};")
            k.store(got, dtype, rule, label=f"atom.global.{op} returns")
    if d.chance(50):
        form, dtype, n = d.pick(
            (
                ("add", "f32", 2),
                ("add", "f32", 4),
                ("add.noftz", "f16x2", 2),
                ("add.noftz", "bf16x2", 4),
                ("min.noftz", "f16x2", 4),
                ("max.noftz", "bf16x2", 2),
                ("add.noftz", "f16", 4),
                ("max.noftz", "bf16", 8),
            )
        )
        size = BITS[dtype] // 8
        region = k.column(dtype, label=f"red.global.v{n}.{form}.{dtype}", count=n * k.total)
        at = k.reg(64)
        k.emit(f"mad.wide.u32 {at}, %i, {n * size}, %out;")
        for i in range(n):
            k.emit(f"st.global.b{8 * size} [{at}+{region.offset + i * size}], {k.load(dtype)};")
        values = ", ".join(k.load(dtype) for _ in range(n))
        word, _, rest = form.partition(".")
        k.emit(f"red.global.{word}{'.' + rest if rest else ''}.v{n}.{dtype} [{at}+{region.offset}], {{{values}}};")
    return k.case()


def sums(name: str) -> Case:
    """Floating-point sums by atomics of small whole numbers: exact in any order."""
    k = Kernel(name, "atomic", (64,), (2,))
    d = k.draw
    op, dtype = d.pick(
        (("add", "f32"), ("add", "f64"), ("add.noftz", "f16x2"), ("add.noftz", "bf16x2"), ("add.noftz", "f16"))
    )
    small = {
        "f32": [0, 0x3F800000, 0x40000000, 0xBF800000],
        "f64": [0, 0x3FF0000000000000, 0xC000000000000000],
        "f16": [0, 0x3C00, 0xBC00, 0x4000],
    }
    small["f16x2"] = [a | b << 16 for a in small["f16"] for b in small["f16"]]
    small["bf16x2"] = [a | b << 16 for a in (0, 0x3F80, 0xBF80) for b in (0, 0x3F80, 0x4000)]
    region = k.column(dtype, label=f"red.{op}.{dtype} sums", count=8)
    values = k.load(dtype, [d.pick(small[dtype]) for _ in range(k.total)])
    index, at = k.load("u32", [d.below(8) for _ in range(k.total)]), k.reg(64)
    k.emit(f"mad.wide.u32 {at}, {index}, {BITS[dtype] // 8}, %out;")
    form = d.pick(("red.global", "atom.global", "red"))
    result = f"{k.reg(BITS[dtype])}, " if form.startswith("atom") else ""
    k.emit(f"{form}.{op}.{dtype} {result}[{at}+{region.offset}], {values};")
    return k.case()


def copied(name: str) -> Case:
    """cp.async of all sizes, cut short or left out, in groups that are waited for one by one."""
    k = Kernel(name, "copy", (64,))
    d = k.draw
    groups = d.between(1, 3)
    k.declared.append(f".shared .align 16 .b8 {name}_s[{groups * 16 * k.threads}];")
    base, mine = k.reg(32), k.reg(32)
    k.emit(f"mov.u32 {base}, {name}_s;", f"mad.lo.u32 {mine}, %t, 16, {base};")
    for g in range(groups):
        at = 0
        while at < 16:
            size = d.pick([s for s in (4, 8, 16) if at % s == 0 and s <= 16 - at])
            data = k.reserve_input(bytes(d.bits(8) for _ in range(16 * k.total)))
            index, source = k.load("u32", d.shuffled(range(k.total))), k.reg(64)
            k.emit(f"mad.wide.u32 {source}, {index}, 16, %in;")
            how = d.below(4)
            extra = ""
            if how == 1:
                extra = f", {k.load('u32', [d.below(size + 1) for _ in range(k.total)])}"
            elif how == 2:
                extra = f", {d.pick(('', '!'))}{k.load('pred')}"
            level = "cg" if size == 16 and d.chance(60) else "ca"
            k.emit(
                f"cp.async.{level}.shared{d.pick(('', '::cta'))}.global{d.pick(('', '', '.L2::128B'))} "
                f"[{mine}+{g * 16 * k.threads + at}], [{source}+{data}], {size}{extra};"
            )
            at += size
        k.emit("cp.async.commit_group;")
    other = k.reg(32)
    k.emit(f"xor.b32 {other}, %t, {d.below(64)};", f"mad.lo.u32 {other}, {other}, 16, {base};")
    for g in range(groups):
        left = groups - 1 - g
        k.emit("cp.async.wait_all;" if not left and d.chance(40) else f"cp.async.wait_group {left};", "bar.sync 0;")
        got = [k.reg(32) for _ in range(4)]
        k.emit(f"ld.shared.v4.b32 {{{', '.join(got)}}}, [{other}+{g * 16 * k.threads}];")
        for r in got:
            k.store(r, "b32", label="cp.async")
    return k.case()


def parameters(name: str) -> Case:
    """Parameters of all types, and arrays of them, whole and in parts, at constant and at computed places."""
    k = Kernel(name, "memory", (32,))
    d = k.draw
    for _ in range(5):
        dtype = d.pick([t for t in NARROW if t[0] != "b" or BITS[t] > 8])
        size = BITS[dtype] // 8
        value = d.value(dtype).to_bytes(size, "little")
        p = k.parameter(dtype, value)
        wide = BITS[dtype] if dtype[0] == "f" else d.pick([w for w in (16, 32, 64) if w >= BITS[dtype]])
        r = k.reg(max(wide, 16))
        k.emit(f"ld.param.{dtype} {r}, [{p}];")
        k.store(r, f"b{max(wide, 16)}", label=f"ld.param.{dtype}")
    p = k.parameter("b64", bytes(d.bits(8) for _ in range(48)), ".align 8 .b8 {}[48]")
    for _ in range(3):
        dtype = d.pick(NARROW)
        size = BITS[dtype] // 8
        n = d.pick([n for n in (1, 2, 4) if n * size <= 8])
        got = [k.reg(max(BITS[dtype], 16)) for _ in range(n)]
        where = n * size * d.below(48 // (n * size))
        k.emit(f"ld.param{'' if n == 1 else f'.v{n}'}.{dtype} {operand(got)}, [{p}+{where}];")
        k.store(got[-1], f"b{max(BITS[dtype], 16)}", label=f"ld.param.v{n}.{dtype}")
    base, at, r = k.reg(64), k.reg(64), k.reg(32)
    index = k.load("u32", [d.below(12) for _ in range(k.total)])
    k.emit(f"mov.b64 {base}, {p};", f"mad.wide.u32 {at}, {index}, 4, {base};", f"ld.param.u32 {r}, [{at}];")
    k.store(r, "b32", label="ld.param at a computed place")
    k.emit(f"cvta.param.u64 {at}, {at};", f"ld.u16 {r}, [{at}+2];")
    k.store(r, "b32", label="generic ld of a parameter")
    return k.case()


def cases() -> list[Case]:
    return [
        *(parameters(f"parameters_{i:03d}") for i in range(24)),
        *(scattered(f"scattered_{i:03d}") for i in range(70)),
        *(gathered(f"gathered_{i:03d}") for i in range(50)),
        *(spread(f"spread_{i:03d}") for i in range(40)),
        *(spaces(f"spaces_{i:03d}") for i in range(20)),
        *(counting(f"counting_{i:03d}") for i in range(70)),
        *(single_warp(f"alone_{i:03d}") for i in range(70)),
        *(sums(f"sums_{i:03d}") for i in range(20)),
        *(copied(f"copied_{i:03d}") for i in range(60)),
    ]


def shared_sizes(static: int, dynamic: int) -> Case:
    """The special registers that describe the shared memory of a block."""
    k = Kernel(f"sizes_{static}_{dynamic}", "sizes", (32,))
    k.shared = dynamic
    if static:
        k.declared.append(f".shared .align 4 .b8 {k.name}_s[{static}];")
        k.emit(f"st.shared.u8 [{k.name}_s+{static - 1}], 1;")
    for size in ("total", "dynamic", "aggr"):
        r = k.reg(32)
        k.emit(f"mov.u32 {r}, %{size}_smem_size;")
        k.store(r, "b32", label=f"%{size}_smem_size")
    return k.case()


def directed() -> list[Case]:
    sizes = ((0, 0), (1, 0), (128, 0), (132, 0), (1000, 24), (4096, 100), (0, 3000), (49152, 0), (30000, 7777))
    return [shared_sizes(*pair) for pair in sizes]
