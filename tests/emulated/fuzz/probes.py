"""Behaviour that PTX does not define, tested on the hardware: kernels whose output is read by people.

docs/emulator.md has the results. These kernels are not replayed.
"""

from __future__ import annotations

from . import asynchronous
from .kernel import Case, Kernel, Map

NANS64 = [0x7FF8000000000000, 0xFFF8000000000123, 0x7FF0000000000001, 0xFFF4000000000007, 0x7FF8DEADBEEF0001]
NANS32 = [0x7FC00000, 0xFFC00123, 0x7F800001, 0xFFA00007, 0x7FFFFFFF]


def payloads() -> list[Case]:
    """The NaN payloads of the results of each operation, for a NaN in each operand."""
    out = []
    one64, one32 = 0x3FF8000000000000, 0x3FC00000
    for dtype, nans, one in (("f64", NANS64, one64), ("f32", NANS32, one32)):
        pairs = [(n, one) for n in nans] + [(one, n) for n in nans] + [(n, m) for n in nans for m in nans]
        pairs += [(one, one)] * (64 - len(pairs))
        k = Kernel(f"payload_{dtype}", "probe", (64,))
        a, b = k.load(dtype, [x for x, _ in pairs]), k.load(dtype, [y for _, y in pairs])
        c = k.load(dtype, [one] * 64)
        for op in ("add.rn", "sub.rn", "mul.rn", "div.rn", "min", "max", "copysign"):
            r = k.reg_of(dtype)
            k.emit(f"{op}.{dtype} {r}, {a}, {b};")
            k.store(r, dtype, label=op)
        for op in ("abs", "neg", "sqrt.rn", "rcp.rn", "cvt.rni." + dtype, "cvt.f32" if dtype == "f64" else "cvt.f64"):
            to = dtype
            text = f"{op}.{dtype}"
            if op.startswith("cvt.f"):
                to = op[4:]
                text = f"cvt.{'rn.' if to == 'f32' else ''}{to}.{dtype}"
            r = k.reg_of(to)
            k.emit(f"{text} {r}, {a};")
            k.store(r, to, label=text)
        for x, y, z in ((a, b, c), (c, a, b), (b, c, a)):
            r = k.reg_of(dtype)
            k.emit(f"fma.rn.{dtype} {r}, {x}, {y}, {z};")
            k.store(r, dtype, label=f"fma.rn {x} {y} {z}")
        zero, inf = k.load(dtype, [0] * 64), k.load(dtype, [0x7FF << 52 if dtype == "f64" else 0x7F800000] * 64)
        for op, x, y in (("mul.rn", zero, inf), ("sub.rn", inf, inf), ("div.rn", zero, zero)):
            r = k.reg_of(dtype)
            k.emit(f"{op}.{dtype} {r}, {x}, {y};")
            k.store(r, dtype, label=f"{op} of no NaN")
        out.append(k.case())
    return out


def divisions() -> list[Case]:
    """Division by zero, and of the least integer by -1."""
    k = Kernel("by_zero", "probe", (32,))
    for dtype in ("u16", "s16", "u32", "s32", "u64", "s64"):
        bits = int(dtype[1:])
        top = 1 << (bits - 1)
        a = [0, 1, 5, top, top - 1, 2 * top - 1, 2 * top - 5, 12345, top, top + 1] + [7] * 22
        b = [0] * 8 + [2 * top - 1, 2 * top - 1] + [0] * 22
        x, y = k.load(dtype, a), k.load(dtype, b)
        for op in ("div", "rem"):
            r = k.reg(bits)
            k.emit(f"{op}.{dtype} {r}, {x}, {y};")
            k.store(r, f"b{bits}", label=f"{op}.{dtype}")
    return [k.case()]


def masks() -> list[Case]:
    """activemask in branches, after them, in a loop that lanes exit one by one, and in a partial warp."""
    k = Kernel("active", "probe", (48,))
    p, r = k.reg(1), [k.reg(32) for _ in range(4)]
    other, end = k.label(), k.label()
    for x in r:
        k.emit(f"mov.b32 {x}, 0;")
    k.emit(
        f"and.b32 %w, %t, 1; setp.eq.u32 {p}, %w, 0;",
        f"@{p} bra {other};",
        f"activemask.b32 {r[0]};",
        f"bra {end};",
        f"{other}:",
        f"activemask.b32 {r[0]};",
        f"{end}:",
        f"activemask.b32 {r[1]};",
        "bar.warp.sync 0xffffffff;",
        f"activemask.b32 {r[2]};",
    )
    n, q, again = k.reg(32), k.reg(1), k.label()
    k.emit(
        f"and.b32 {n}, %t, 3;",
        f"{again}:",
        f"activemask.b32 {r[3]};",
        f"sub.s32 {n}, {n}, 1;",
        f"setp.ge.s32 {q}, {n}, 0;",
        f"@{q} bra {again};",
    )
    for x in r:
        k.store(x, "b32", label="activemask: in a branch, after it, after bar.warp.sync, in the last round of a loop")
    b, e, z, v = k.reg(32), k.reg(1), k.reg(32), k.reg(1)
    k.emit(
        "bar.warp.sync 0xffffffff;",
        f"vote.sync.ballot.b32 {b}, 1, 0xffffffff;",
        f"elect.sync {z}|{e}, 0xffffffff;",
        f"match.all.sync.b32 {n}|{v}, 7, 0xffffffff;",
    )
    k.store(b, "b32", label="ballot of true in a partial warp")
    k.store(z, "b32", label="elect")
    k.store(n, "b32", label="match.all in a partial warp")
    out = [k.case()]
    k = Kernel("elected", "probe", (32,))
    group, m, r0, e = k.reg(32), k.reg(32), k.reg(32), k.reg(1)
    # lanes by tid % 3; each third elects on its own
    k.emit(f"rem.u32 {group}, %t, 3;", f"mov.b32 {r0}, 99;")
    for g, mask in ((0, 0x49249249), (1, 0x92492492), (2, 0x24924924)):
        q = k.reg(1)
        skip = k.label()
        k.emit(f"setp.ne.u32 {q}, {group}, {g};", f"@{q} bra {skip};", f"elect.sync {r0}|{e}, {mask};", f"{skip}:")
    k.emit(f"mov.b32 {m}, %t;")
    k.store(r0, "b32", label="elect of every third lane")
    out.append(k.case())
    return out


def shuffles() -> list[Case]:
    """A shuffle that reads lanes which are not there: outside the mask, exited, beyond a partial warp."""
    k = Kernel("absent", "probe", (48,))
    value, r, p = k.load("b32", [1000 + i for i in range(48)]), k.reg(32), k.reg(1)
    k.emit(f"shfl.sync.bfly.b32 {r}|{p}, {value}, 16, 31, 0xffffffff;")
    k.store(r, "b32", label="bfly 16 in a warp of 16 lanes")
    k.store(p, "pred")
    q, end, s, t = k.reg(1), k.label(), k.reg(32), k.reg(1)
    k.emit(
        f"mov.b32 {s}, 5; setp.ne.u32 {t}, 0, 0; and.b32 %w, %t, 1; setp.eq.u32 {q}, %w, 0;",
        f"@{q} bra {end};",
        f"shfl.sync.bfly.b32 {s}|{t}, {value}, 1, 31, 0xaaaaaaaa;",
        f"{end}:",
    )
    k.store(s, "b32", label="odd lanes read even ones, which do not take part")
    k.store(t, "pred")
    return [k.case()]


def exited_threads() -> list[Case]:
    """Barriers after threads have exited: whole warps, parts of warps; votes there."""
    out = []
    for name, predicate, count in (
        ("warp", "setp.lt.u32 %q, %t, 32;", ""),
        ("half", "and.b32 %w, %t, 16; setp.ne.u32 %q, %w, 0;", ""),
        ("half_counted", "and.b32 %w, %t, 16; setp.ne.u32 %q, %w, 0;", ", 96"),
        ("partial", "setp.gt.u32 %q, %t, 80;", ""),
    ):
        k = Kernel(f"gone_{name}", "probe", (96,))
        k.declared.append(f".reg .pred %q, %v; .shared .b32 {k.name}_s[96];")
        base, at, r, c = k.reg(32), k.reg(32), k.reg(32), k.reg(32)
        k.emit(
            f"mov.u32 {base}, {k.name}_s;",
            f"mad.lo.u32 {at}, %t, 4, {base};",
            f"st.shared.u32 [{at}], %t;",
            predicate,
            "@%q exit;",
            f"bar.sync 1{count};",
            f"sub.u32 {r}, 95, %t;",
            f"mad.lo.u32 {r}, {r}, 4, {base};",
            f"ld.shared.u32 {r}, [{r}];",
            f"setp.eq.u32 %v, 0, 0; bar.red.popc.u32 {c}, 2{count}, %v;",
        )
        k.store(r, "b32", label="value after the barrier")
        k.store(c, "b32", label="bar.red.popc of true")
        a = k.reg(32)
        k.emit(f"bar.red.and.pred %v, 3{count}, %v;", f"selp.u32 {a}, 1, 0, %v;")
        k.store(a, "b32", label="bar.red.and of true")
        out.append(k.case())
    k = Kernel("red_partial", "probe", (41,))
    k.declared.append(".reg .pred %v;")
    c = k.reg(32)
    k.emit("setp.eq.u32 %v, 0, 0;", f"bar.red.popc.u32 {c}, 0, %v;")
    k.store(c, "b32", label="bar.red.popc of true, 41 threads")
    out.append(k.case())
    return out


def barrier_at_two_instructions() -> list[Case]:
    """A warp whose halves arrive at one barrier by different instructions."""
    k = Kernel("apart", "probe", (64,))
    p, r = k.reg(1), k.reg(32)
    other, end = k.label(), k.label()
    k.emit(
        f"and.b32 %w, %t, 8; setp.eq.u32 {p}, %w, 0; mov.b32 {r}, 0;",
        f"@{p} bra {other};",
        "barrier.sync 1;",
        f"add.u32 {r}, {r}, 1;",
        f"bra {end};",
        f"{other}:",
        "barrier.sync 1;",
        f"add.u32 {r}, {r}, 2;",
        f"{end}:",
        "barrier.sync 2;",
    )
    k.store(r, "b32", label="barrier.sync by halves")
    return [k.case()]


def shifts() -> list[Case]:
    """Shifts of 64 bits by amounts beyond them, from memory and from a floating-point instruction."""
    k = Kernel("shifts", "probe", (32,))
    amounts = [
        0,
        1,
        31,
        32,
        63,
        64,
        65,
        127,
        128,
        255,
        256,
        1 << 15,
        1 << 16,
        1 << 24,
        1 << 30,
        0x7FFFFFFF,
        1 << 31,
        0xFFFFFFFF,
    ]
    amounts += [0x80000001, 0x8000003F, 0x3F800000, 0xBF800000, 0x358D0000, 0xFA000009] + [7] * 8
    a, n = k.load("b64", [0xA4205823CB0D6F96] * 32), k.load("u32", amounts)
    m = k.reg(32)
    k.emit(f"mul.rn.f32 {m}, {n}, 0f3F800000;")
    for op in ("shl.b64", "shr.u64", "shr.s64"):
        for by, where in ((n, "memory"), (m, "mul.f32")):
            r = k.reg(64)
            k.emit(f"{op} {r}, {a}, {by};")
            k.store(r, "b64", label=f"{op} by an amount from {where}")
    w, f = k.load("b32"), k.load("b32")
    for length in (31, 32, 33, 40):
        r = k.reg(32)
        k.emit(f"bfi.b32 {r}, {w}, {f}, 3, {length};")
        k.store(r, "b32", label=f"bfi.b32 of {length} bits at 3")
    return [k.case()]


def narrow_boxes() -> list[Case]:
    """The positions of the rows of a box that is narrower than the span of its swizzle."""
    out = []
    for inner, swizzle in ((64, 128), (32, 128), (16, 32)):
        k = Kernel(f"narrow_{inner}_{swizzle}", "probe", (64,))
        source = Map("in", k.reserve_input(bytes(range(1, 129)) * 8), "u8", (128, 8), 128, (inner, 8), swizzle)
        k.maps.append(source)
        room = 2048
        base, bar, first = asynchronous.start(k, k.name, room)
        k.emit(f"mul.lo.u32 %w, %t, 32; add.u32 %w, %w, {base}; st.shared.v4.b32 [%w], {{0, 0, 0, 0}};")
        k.emit("st.shared.v4.b32 [%w+16], {0, 0, 0, 0};", "fence.proxy.async;", "bar.sync 0;")
        m = k.reg(64)
        k.emit(
            f"mov.b64 {m}, map0;",
            f"cvta.param.u64 {m}, {m};",
            f"@{first} mbarrier.arrive.expect_tx.shared::cta.b64 _, [{bar}], {8 * inner};",
            f"@{first} cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            f"[{base}], [{m}, {{0, 0}}], [{bar}];",
        )
        asynchronous.wait(k, bar, 0)
        asynchronous.read_back(k, base, room, "shared memory")
        out.append(k.case())
    return out


def collisions() -> list[Case]:
    """Which lane's value stays when all of a warp store to one place."""
    k = Kernel("collision", "probe", (32,))
    k.declared.append(f".shared .b32 {k.name}_s;")
    base, r = k.reg(32), k.reg(32)
    region = k.column("b32", label="st.global by 32 lanes", count=4)
    k.emit(
        f"mov.u32 {base}, {k.name}_s;",
        f"st.shared.u32 [{base}], %t;",
        f"ld.shared.u32 {r}, [{base}];",
        f"st.global.u32 [%out+{region.offset}], %t;",
    )
    k.store(r, "b32", label="st.shared by 32 lanes")
    return [k.case()]


def outside() -> list[Case]:
    """Which f16 and bf16 operands make fma.oob give zero: all 65536, of the first factor, then of the addend."""
    out = []
    for dtype in ("f16", "bf16"):
        one = 0x3C00 if dtype == "f16" else 0x3F80
        k = Kernel(f"oob_{dtype}", "probe", (128,), (512,))
        a, b = k.load(dtype, list(range(65536))), k.load(dtype, [one] * 65536)
        for x, y, z in ((a, b, b), (b, b, a)):
            r, p = k.reg(16), k.reg(1)
            k.emit(f"fma.rn.oob.{dtype} {r}, {x}, {y}, {z};", f"setp.eq.u16 {p}, {r}, 0;")
            k.store(p, "pred", label=f"fma.oob.{dtype} of operand {x} is +0")
        out.append(k.case())
    return out


def registers() -> list[Case]:
    """Special registers, and where shared memory begins."""
    k = Kernel("special", "probe", (48,), (3,))
    k.declared.append(f".shared .align 4 .b32 {k.name}_s[8];")
    for register in (
        f"{k.name}_s",
        "%warpid",
        "%nwarpid",
        "%laneid",
        "%smid",
        "%nsmid",
        "%total_smem_size",
        "%aggr_smem_size",
        "%dynamic_smem_size",
        "%lanemask_lt",
        "%lanemask_ge",
        "%cluster_ctarank",
        "%cluster_nctarank",
        "%nclusterid.x",
        "%clusterid.x",
    ):
        r = k.reg(32)
        k.emit(f"mov.u32 {r}, {register};")
        k.store(r, "b32", label=register)
    return [k.case()]


def cases() -> list[Case]:
    """All probes; the last ones may never end."""
    return [
        *payloads(),
        *divisions(),
        *masks(),
        *shifts(),
        *collisions(),
        *outside(),
        *registers(),
        *shuffles(),
        *exited_threads(),
        *narrow_boxes(),
        *barrier_at_two_instructions(),
    ]
