"""Matrix instructions: fragments to and from shared memory, products of every shape and type."""

from __future__ import annotations

import struct

from .draw import Draw, pack
from .kernel import Case, Kernel

FULL = "0xffffffff"
#: shape, types of (d, a, b, c), registers of each
Product = tuple[str, tuple[str, str, str, str], tuple[int, int, int]]


def products() -> list[Product]:
    out: list[Product] = []
    for f in ("f16", "bf16"):
        for shape, a, b in (("m16n8k8", 2, 1), ("m16n8k16", 4, 2)):
            out.append((shape, ("f32", f, f, "f32"), (a, b, 4)))
            if f == "f16":
                out.append((shape, ("f16", f, f, "f16"), (a, b, 2)))
    out += [
        ("m16n8k4", ("f32", "tf32", "tf32", "f32"), (2, 1, 4)),
        ("m16n8k8", ("f32", "tf32", "tf32", "f32"), (4, 2, 4)),
    ]
    for x in ("e4m3", "e5m2"):
        for y in ("e4m3", "e5m2"):
            out.append(("m16n8k32", ("f32", x, y, "f32"), (4, 2, 4)))
    out.append(("m8n8k4", ("f64",) * 4, (1, 1, 2)))
    out += [(f"m16n8k{k}", ("f64",) * 4, (k // 2, k // 4, 4)) for k in (4, 8, 16)]
    for x in ("s8", "u8"):
        for y in ("s8", "u8"):
            out.append(("m8n8k16", ("s32", x, y, "s32"), (1, 1, 2)))
            out.append(("m16n8k16", ("s32", x, y, "s32"), (2, 1, 4)))
            out.append(("m16n8k32", ("s32", x, y, "s32"), (4, 2, 4)))
    return out


#: exponent bits, mantissa bits, and how far exponents spread, of the operands of products
SPREAD = {
    "f16": (5, 10),
    "bf16": (8, 7),
    "tf32": (8, 23),
    "f32": (8, 23),
    "f64": (11, 52),
    "e4m3": (4, 3),
    "e5m2": (5, 2),
}


def element(d: Draw, dtype: str, how: int) -> int:
    """A factor: of one size, of several sizes, of all, or anything that the format holds."""
    if dtype not in SPREAD:
        return d.bits(32 if dtype == "s32" else 8)
    e, m = SPREAD[dtype]
    bias = (1 << (e - 1)) - 1
    sign = d.bits(1) << (e + m)
    if how == 4:
        return d.value(dtype)
    if d.chance(6):
        return sign
    limit = (1 << e) - 2
    wide = (1, 4, 12, 24)[how]
    at = min(max(bias + d.between(-wide, wide), 1 if how < 3 else 0), limit - (1 if dtype == "e4m3" else 0))
    mantissa = d.bits(m)
    if d.chance(30):
        keep = d.between(0, m)
        mantissa = mantissa >> (m - keep) << (m - keep)
    return sign | at << m | mantissa


def elements(d: Draw, dtype: str, how: int, count: int) -> list[int]:
    """``count`` calls of ``element``, faster."""
    if dtype not in SPREAD:
        return [d.bits(32 if dtype == "s32" else 8) for _ in range(count)]
    if how == 4:
        return [element(d, dtype, how) for _ in range(count)]
    bits = d.random.getrandbits
    e, m = SPREAD[dtype]
    bias = (1 << (e - 1)) - 1
    wide = (1, 4, 12, 24)[how]
    first, number = bias - wide, 2 * wide + 1
    low, high = 1 if how < 3 else 0, (1 << e) - 2 - (1 if dtype == "e4m3" else 0)
    out = []
    for _ in range(count):
        x = bits(1) << (e + m)
        if bits(48) % 100 >= 6:
            at = first + bits(48) % number
            x |= (low if at < low else high if at > high else at) << m
            mantissa = bits(m)
            if bits(48) % 100 < 30:
                drop = m - bits(48) % (m + 1)
                mantissa = mantissa >> drop << drop
            x |= mantissa
        out.append(x)
    return out


def packed(k: Kernel, dtype: str, how: int) -> str:
    """A register full of factors."""
    d = k.draw
    if dtype == "f64":
        return k.load("b64", [element(d, dtype, how) for _ in range(k.total)])
    n = {"f16": 2, "bf16": 2, "tf32": 1, "f32": 1, "s32": 1}.get(dtype, 4)
    bits = 32 // n
    return k.load("b32", [sum(element(d, dtype, how) << (bits * i) for i in range(n)) for _ in range(k.total)])


def vector(registers: list[str]) -> str:
    return "{" + ", ".join(registers) + "}"


def product(name: str, which: Product, how: int, sat: bool = False) -> Case:
    """One product a warp, and a second that adds to the first."""
    shape, (dt, at, bt, ct), (na, nb, nc) = which
    k = Kernel(name, "mma", (32,))
    a, b = [packed(k, at, how) for _ in range(na)], [packed(k, bt, how) for _ in range(nb)]
    c = [packed(k, ct, how) for _ in range(nc)]
    op = f"mma.sync.aligned.{shape}.row.col{'.satfinite' if sat else ''}.{dt}.{at}.{bt}.{ct}"
    bits = 64 if dt == "f64" else 32
    one = [k.reg(bits) for _ in range(nc)]
    k.emit(f"{op} {vector(one)}, {vector(a)}, {vector(b)}, {vector(c)};")
    dtype = {"f16": "f16x2", "s32": "b32"}.get(dt, dt)
    rule = "nan" if dt == "f64" else ""
    for r in one:
        k.store(r, dtype, rule, op)
    if k.draw.chance(50):
        k.emit(f"{op} {vector(one)}, {vector(a)}, {vector(b)}, {vector(one)};")
        for r in one:
            k.store(r, dtype, rule, op)
    return k.case()


def fragments(name: str) -> Case:
    """ldmatrix of rows in any order, transposed or not; movmatrix; stmatrix and back."""
    k = Kernel(name, "fragment", (64,))
    d = k.draw
    room = 2048
    k.declared.append(f".shared .align 128 .b8 {name}_s[{room}];")
    base, at = k.reg(32), k.reg(32)
    k.emit(f"mov.u32 {base}, {name}_s;")
    values = [k.load("b32") for _ in range(4)]
    for _ in range(2):
        k.emit(f"mad.lo.u32 {at}, %t, 16, {base};", f"st.shared.v4.b32 [{at}], {vector(values)};")
        k.emit(f"st.shared.v4.b32 [{at}+1024], {vector(values[::-1])};")
        k.emit("bar.sync 0;")
        count = d.pick((1, 2, 4))
        trans = d.pick(("", ".trans"))
        row = k.load("u32", [d.below(room // 16) for _ in range(k.total)])
        k.emit(f"mad.lo.u32 {at}, {row}, 16, {base};")
        got = [k.reg(32) for _ in range(count)]
        k.emit(f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {vector(got)}, [{at}];")
        for r in got:
            k.store(r, "b32", label=f"ldmatrix.x{count}{trans}")
        k.emit("bar.sync 0;")
        # every matrix row to a separate place: warp w writes rows 64w to 64w + 63
        count = d.pick((1, 2, 4))
        trans = d.pick(("", ".trans"))
        places = [d.shuffled(range(64)) for _ in range(2)]
        row = k.load("u32", [64 * (t // 32) + places[t // 32][t % 32] for t in range(64)])
        k.emit(f"mad.lo.u32 {at}, {row}, 16, {base};")
        k.emit(
            f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [{at}], {vector(values[:count])};", "bar.sync 0;"
        )
        k.emit(f"mad.lo.u32 {at}, %t, 32, {base};")
        back = [k.reg(32) for _ in range(8)]
        k.emit(
            f"ld.shared.v4.b32 {vector(back[:4])}, [{at}];",
            f"ld.shared.v4.b32 {vector(back[4:])}, [{at}+16];",
            "bar.sync 0;",
        )
        for i in range(4):
            k.emit(f"xor.b32 {back[i]}, {back[i]}, {back[i + 4]};")
            k.store(back[i], "b32", label=f"stmatrix.x{count}{trans}")
        moved = k.reg(32)
        k.emit(f"movmatrix.sync.aligned.m8n8.trans.b16 {moved}, {values[0]};")
        k.store(moved, "b32", label="movmatrix")
        values = [moved, *values[:3]]
    return k.case()


# ---- wgmma: shared memory is filled with factors in input order; the descriptors define how they are read

#: type of d, of a and b, depth, bits of a factor
GROUPS = (
    ("f32", "f16", 16, 16),
    ("f16", "f16", 16, 16),
    ("f32", "bf16", 16, 16),
    ("f32", "tf32", 8, 32),
    ("f32", "e4m3", 32, 8),
    ("f32", "e5m2", 32, 8),
    ("f16", "e4m3", 32, 8),
    ("s32", "s8", 32, 8),
    ("s32", "u8", 32, 8),
)


def group(name: str, which: tuple[str, str, int, int], how: int) -> Case | None:
    """wgmma of one shape, A from registers or from shared memory, any swizzle and order of both operands.

    None if it is twice the same and adds up: ptxas 13.0 takes the second one for the first.
    """
    dt, at, depth, bits = which
    k = Kernel(name, "wgmma", (128,))
    d = k.draw
    n = d.pick((8, 16, 24, 40, 64)) if at not in ("s8", "u8") else d.pick((8, 16, 24, 32, 64))
    bt = at
    if at in ("e4m3", "e5m2"):
        bt = d.pick(("e4m3", "e5m2"))
    if at in ("s8", "u8"):
        bt = d.pick(("s8", "u8"))
    room = 16384
    k.declared.append(f".shared .align 1024 .b8 {name}_s[{2 * room}];")
    words = room // 4

    def filling(dtype: str) -> list[int]:
        return elements(d, dtype, how, words * 32 // bits)

    data = struct.pack(f"<{words * 64 // bits}{'BHI'[bits // 16]}", *filling(at), *filling(bt))
    where = k.reserve_input(data)
    base, source, into, i, p = k.reg(32), k.reg(64), k.reg(32), k.reg(32), k.reg(1)
    v = [k.reg(32) for _ in range(4)]
    again = k.label()
    k.emit(
        f"mov.u32 {base}, {name}_s;",
        f"mad.wide.u32 {source}, %t, 16, %in;",
        f"mad.lo.u32 {into}, %t, 16, {base};",
        f"mov.u32 {i}, 0;",
        f"{again}:",
        f"ld.global.v4.b32 {vector(v)}, [{source}+{where}];",
        f"st.shared.v4.b32 [{into}], {vector(v)};",
        f"add.u64 {source}, {source}, 2048;",
        f"add.u32 {into}, {into}, 2048;",
        f"add.u32 {i}, {i}, 1;",
        f"setp.lt.u32 {p}, {i}, {2 * room // 2048};",
        f"@{p} bra {again};",
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
    )

    def descriptor(offset: int, major: int, extent: int) -> str:
        """With an operand that begins ``offset`` bytes into shared memory."""
        swizzle = d.below(4)
        spans = {0: 16, 1: 128, 2: 64, 3: 32}[swizzle]
        if not major and spans > 32:
            offset += 32 * d.below(spans // 32)  # a step along the depth, within the pattern
        # any strides that keep the operand inside: the instruction defines the layout
        atom = spans * 8
        stride = d.pick((atom, 2 * atom)) if extent > 8 else atom
        leading = d.pick((128, 256)) if swizzle == 0 else d.pick((atom, 1024))
        if major:  # many bytes along the other direction
            leading = d.pick((atom, 1024)) if swizzle else d.pick((128, 256))
            stride = d.pick((atom, 1024)) if swizzle else d.pick((128, 256))
        high = (leading >> 4) << 16 | (stride >> 4) << 32 | swizzle << 62
        low, wide = k.reg(32), k.reg(64)
        k.emit(
            f"add.u32 {low}, {base}, {offset};",
            f"shr.u32 {low}, {low}, 4;",
            f"and.b32 {low}, {low}, 0x3fff;",
            f"cvt.u64.u32 {wide}, {low};",
            f"or.b64 {wide}, {wide}, {high};",
        )
        return wide

    from_registers = d.chance(35)
    majors = (d.bits(1), d.bits(1)) if bits == 16 else (0, 0)
    if from_registers:
        majors = (0, majors[1])
        first = vector([packed(k, at, how) for _ in range(4)])
    else:
        first = descriptor(0, majors[0], 64)
    second = descriptor(room, majors[1], n)
    count = n // 4 if dt == "f16" else n // 2
    start = [
        k.load("b32", [element(d, "f32", min(how, 3)) for _ in range(k.total)])
        if dt == "f32" and j < 4
        else packed(k, dt, how)
        if j < 4
        else ""
        for j in range(count)
    ]
    acc = []
    for j in range(count):
        r = k.reg(32)
        k.emit(f"mov.b32 {r}, {start[j % 4]};")
        acc.append(r)
    p = k.reg(1)
    keep = d.chance(75)
    k.emit(f"setp.ne.u32 {p}, {int(keep)}, 0;")
    op = f"wgmma.mma_async.sync.aligned.m64n{n}k{depth}.{dt}.{at}.{bt}"
    if dt == "s32":
        op += d.pick(("", ".satfinite"))
        tail = f", {p}"
        op = f"wgmma.mma_async.sync.aligned.m64n{n}k{depth}{'.satfinite' if 'satfinite' in op else ''}.{dt}.{at}.{bt}"
    else:
        tail = f", {p}, {d.pick((1, -1))}, {d.pick((1, -1))}"
        if bits == 16:
            tail += f", {majors[1]}" if from_registers else f", {majors[0]}, {majors[1]}"
    turns = d.pick((1, 1, 2))
    if turns == 2 and keep:
        return None
    k.emit("wgmma.fence.sync.aligned;")
    for _ in range(turns):
        k.emit(f"{op} {vector(acc)}, {first}, {second}{tail};")
    k.emit("wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;")
    dtype = {"f16": "f16x2", "s32": "b32"}.get(dt, dt)
    for r in acc[:: max(1, count // 8)]:
        k.store(r, dtype, label=op)
    return k.case()


def cases() -> list[Case]:
    out = []
    for i, which in enumerate(products()):
        real = which[1][0][0] == "f"
        for how in range(5) if real else range(2):
            out.append(product(f"mma_{i:02d}_{how}", which, how, not real and how == 1))
    out += [fragments(f"fragments_{i:02d}") for i in range(24)]
    for i, which in enumerate(GROUPS):
        groups = [group(f"wgmma_{i}_{turn}", which, turn % 4) for turn in range(8)]
        out += [case for case in groups if case is not None]
    return out


_SQUARE = ((16, 16, 16), (8, 32, 16), (32, 8, 16))
#: types of A, D and C, shapes, and bits of an element of A
WMMA = (
    *(("f16", d, c, _SQUARE, 16) for d in ("f16", "f32") for c in ("f16", "f32")),
    ("bf16", "f32", "f32", _SQUARE, 16),
    ("tf32", "f32", "f32", ((16, 16, 8),), 32),
    ("f64", "f64", "f64", ((8, 8, 4),), 64),
    ("s8", "s32", "s32", _SQUARE, 8),
    ("u8", "s32", "s32", _SQUARE, 8),
    ("s4", "s32", "s32", ((8, 8, 32),), 4),
    ("u4", "s32", "s32", ((8, 8, 32),), 4),
    ("b1", "s32", "s32", ((8, 8, 128),), 1),
)


def wmma(name: str, kinds: tuple[str, str, str], shape: tuple[int, int, int], bits: int) -> Case:
    """One product from memory to memory, whose fragments are not read."""
    k = Kernel(name, "wmma", (32,))
    (m, n, depth), (a, d, c) = shape, kinds
    sums = {"f16": 16, "f64": 64}

    def matrix(matrix_type: str, count: int, width: int) -> int:
        """The offsets of the elements in the input."""
        if matrix_type in SPREAD:
            data = pack(
                [element(k.draw, matrix_type, i % 4) for i in range(count)],
                {"tf32": "f32"}.get(matrix_type, matrix_type),
            )
        else:
            data = bytes(k.draw.bits(8) for _ in range(count * width // 8))
        k.input += bytes(-len(k.input) % 128)
        return k.reserve_input(data)

    def registers(dtype: str, count: int, width: int, multiplicand: bool) -> list[str]:
        each = 8 if dtype == "f16" and multiplicand else count * width // (32 * max(width, 32))
        return [k.reg(max(width, 32)) for _ in range(each)]

    extents = {"a": m * depth, "b": depth * n, "c": m * n, "d": m * n}
    of = {"a": (a, bits), "b": (a, bits), "c": (c, sums.get(c, 32)), "d": (d, sums.get(d, 32))}
    names = {w: registers(*of[w][:1], extents[w], of[w][1], w in "ab") for w in "abcd"}
    text = {w: "{" + ", ".join(names[w]) + "}" for w in "abcd"}
    layouts = {w: k.draw.pick(("row", "col")) for w in "abcd"}
    if bits < 8:
        layouts.update(a="row", b="col")
    shape_ = f"m{m}n{n}k{depth}"
    for w in "abc":
        at = matrix(of[w][0], extents[w], of[w][1])
        k.emit(f"wmma.load.{w}.sync.aligned.{layouts[w]}.{shape_}.global.{of[w][0]} {text[w]}, [%in+{at}];")
    types = f"{d}.{c}" if a == "f16" else f"{d}.{a}.{a}.{c}"
    how = k.draw.pick((".xor.popc", ".and.popc")) if a == "b1" else ""
    k.emit(
        f"wmma.mma{how}.sync.aligned.{layouts['a']}.{layouts['b']}.{shape_}.{types} "
        f"{text['d']}, {text['a']}, {text['b']}, {text['c']};"
    )
    k.output += -k.output % 128
    column = k.column({"s32": "b32"}.get(d, d), "nan" if d[0] == "f" else "", f"wmma {shape_} {types}", m * n)
    k.emit(f"wmma.store.d.sync.aligned.{layouts['d']}.{shape_}.global.{d} [%out+{column.offset}], {text['d']};")
    return k.case()


def directed() -> list[Case]:
    return [
        wmma(f"wmma_{i}_{'_'.join(kinds)}_m{s[0]}", kinds, s, bits)
        for *kinds_, shapes, bits in WMMA
        for s in shapes
        for i in range(2)
        for kinds in [tuple(kinds_)]
    ]
