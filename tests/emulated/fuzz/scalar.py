"""Every form of the scalar instructions, on edge values: each form in several kernels, a few forms a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from .draw import BITS, Draw
from .kernel import Case, Kernel

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
BYTES = ("u8", "s8", *INTEGERS)
REALS = ("f16", "bf16", "f32", "f64")
ROUNDINGS = ("rn", "rz", "rm", "rp")
ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
UNORDERED = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
LANES = 64


@dataclass(frozen=True)
class Form:
    """``op``: name with modifiers; ``sources``: kinds or domains of values; ``tail``: operands after them."""

    op: str
    sources: tuple[str, ...]
    result: str
    rule: str = ""
    tail: str = ""

    @property
    def immediates(self) -> bool:
        """True if the last source may be a constant."""
        return self.sources[-1] in INTEGERS and len(self.sources) > 1 and not self.op.startswith("cvt")


def domain(draw: Draw, name: str) -> tuple[str, int | None]:
    """Kind and value of a domain; None: any value of the kind."""
    if name == "amount":
        return "u32", draw.pick((draw.below(40), draw.below(70), draw.below(300), draw.bits(32)))
    if name == "bit":
        return "u32", draw.pick((draw.below(33), draw.below(70), draw.below(300)))
    if name == "lane":
        return "u32", draw.below(32)
    if name == "count":
        return "s32", draw.between(-6, 6) & 0xFFFFFFFF
    if name == "sel":
        return "u32", draw.bits(16) if draw.chance(80) else draw.bits(32)
    if name.startswith("oob:"):
        dtype = name[4:]
        half = draw.pick((0x7FF7, 0xFFF7, draw.value(dtype[:-2] if dtype.endswith("x2") else dtype)))
        return dtype, half if not dtype.endswith("x2") else half << 16 | draw.pick((0x7FF7, draw.value(dtype[:-2])))
    if name.startswith("nz:"):
        dtype = name[3:]
        while not (value := draw.value(dtype)):
            pass
        return dtype, value
    return name, None


def integer() -> list[Form]:
    out: list[Form] = []

    def form(op: str, *sources: str, to: str, tail: str = "") -> None:
        out.append(Form(op, sources, to, "", tail))

    for t in INTEGERS:
        b, wide = f"b{BITS[t]}", f"{t[0]}{2 * BITS[t]}"
        for op in ("add", "sub", "mul.lo", "mul.hi", "min", "max"):
            form(f"{op}.{t}", t, t, to=b)
        for op in ("div", "rem"):
            form(f"{op}.{t}", t, f"nz:{t}", to=b)
        for op in ("mad.lo", "mad.hi", "sad"):
            form(f"{op}.{t}", t, t, t, to=b)
        if BITS[t] < 64:
            form(f"mul.wide.{t}", t, t, to=f"b{2 * BITS[t]}")
            form(f"mad.wide.{t}", t, t, wide, to=f"b{2 * BITS[t]}")
        if t[0] == "s":
            form(f"abs.{t}", t, to=b)
            form(f"neg.{t}", t, to=b)
        form(f"shr.{t}", t, "amount", to=b)
    for op in ("add.sat.s32", "sub.sat.s32"):
        form(op, "s32", "s32", to="b32")
    form("mad.hi.sat.s32", "s32", "s32", "s32", to="b32")
    for t in ("u32", "s32"):
        for half in ("lo", "hi"):
            form(f"mul24.{half}.{t}", t, t, to="b32")
            form(f"mad24.{half}.{t}", t, t, t, to="b32")
    form("mad24.hi.sat.s32", "s32", "s32", "s32", to="b32")
    for t in ("u16x2", "s16x2"):
        for op in ("add", "min", "max"):
            form(f"{op}.{t}", t, t, to="b32")
    for op in ("min.relu.s16x2", "max.relu.s16x2"):
        form(op, "s16x2", "s16x2", to="b32")
    for op in ("min.relu.s32", "max.relu.s32"):
        form(op, "s32", "s32", to="b32")
    for n in (16, 32, 64):
        b = f"b{n}"
        for op in ("and", "or", "xor"):
            form(f"{op}.{b}", b, b, to=b)
        form(f"not.{b}", b, to=b)
        form(f"cnot.{b}", b, to=b)
        form(f"shl.{b}", b, "amount", to=b)
        form(f"shr.{b}", b, "amount", to=b)
        if n > 16:
            form(f"popc.{b}", b, to="b32")
            form(f"clz.{b}", b, to="b32")
            form(f"brev.{b}", b, to=b)
            form(f"bfi.{b}", b, b, "bit", "bit", to=b)
            for t in (f"u{n}", f"s{n}"):
                form(f"bfe.{t}", t, "bit", "bit", to=b)
                form(f"bfind.{t}", t, to="b32")
                form(f"bfind.shiftamt.{t}", t, to="b32")
    for op in ("and", "or", "xor"):
        form(f"{op}.pred", "pred", "pred", to="pred")
    form("not.pred", "pred", to="pred")
    for side in "lr":
        for mode in ("wrap", "clamp"):
            form(f"shf.{side}.{mode}.b32", "b32", "b32", "amount", to="b32")
    for mode in ("clamp", "wrap"):
        form(f"bmsk.{mode}.b32", "bit", "bit", to="b32")
        for t in ("u32", "s32"):
            form(f"szext.{mode}.{t}", t, "bit", to="b32")
    form("fns.b32", "b32", "lane", "count", to="b32")
    for table in (0x80, 0xFE, 0x96, 0xE8, 0x1A, 0x00, 0xFF, 0x0F, 0xD8, 0x2B, 0x71, 0xC9):
        form("lop3.b32", "b32", "b32", "b32", to="b32", tail=f", {table}")
    form("prmt.b32", "b32", "b32", "sel", to="b32")
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        form(f"prmt.b32.{mode}", "b32", "b32", "sel", to="b32")
    for a in ("u32", "s32"):
        for b in ("u32", "s32"):
            form(f"dp4a.{a}.{b}", "b32", "b32", "b32", to="b32")
            for half in ("lo", "hi"):
                form(f"dp2a.{half}.{a}.{b}", "b32", "b32", "b32", to="b32")
    for t in ("b16", "b32", "b64", "u32", "s64", "f32", "f64"):
        form(f"selp.{t}", t, t, "pred", to=f"b{BITS[t]}")
    for t in ("b16", "u32", "s32", "b64", "f32", "f64"):
        for c in ("s32", "f32", "ftz.f32"):
            op = f"slct.ftz.{t}.f32" if c == "ftz.f32" else f"slct.{t}.{c}"
            form(op, t, t, c.removeprefix("ftz."), to=f"b{BITS[t]}")
    for to in ("u16", "s16"):
        form(f"cvt.pack.sat.{to}.s32", "s32", "s32", to="b32")
    for to in ("u8", "s8", "u4", "s4", "u2", "s2"):
        form(f"cvt.pack.sat.{to}.s32.b32", "s32", "s32", "b32", to="b32")
    return out


def real() -> list[Form]:
    out: list[Form] = []

    def form(op: str, dtype: str, n: int, rule: str = "") -> None:
        out.append(Form(op, (dtype,) * n, dtype, rule))

    for t in ("f32", "f64"):
        loose = "nan" if t == "f64" else ""
        for r in ROUNDINGS:
            for ftz in ("", ".ftz") if t == "f32" else ("",):
                for sat in ("", ".sat") if t == "f32" else ("",):
                    for op in ("add", "sub", "mul"):
                        form(f"{op}.{r}{ftz}{sat}.{t}", t, 2, loose)
                    form(f"fma.{r}{ftz}{sat}.{t}", t, 3, loose)
                form(f"div.{r}{ftz}.{t}", t, 2, loose)
                form(f"rcp.{r}{ftz}.{t}", t, 1, loose)
                form(f"sqrt.{r}{ftz}.{t}", t, 1, loose)
        for ftz in ("", ".ftz") if t == "f32" else ("",):
            for op in ("abs", "neg"):
                form(f"{op}{ftz}.{t}", t, 1, "nan")
        form(f"copysign.{t}", t, 2, "nan")
    for op in ("min", "max"):
        for ftz in ("", ".ftz"):
            for nan in ("", ".NaN"):
                for x in ("", ".xorsign.abs"):
                    form(f"{op}{ftz}{nan}{x}.f32", "f32", 2)
        form(f"{op}.f64", "f64", 2, "nan")
    for base in ("f16", "bf16"):
        half = base == "f16"
        for t in (base, f"{base}x2"):
            for ftz in ("", ".ftz") if half else ("",):
                for sat in ("", ".sat") if half else ("",):
                    for op in ("add", "sub", "mul"):
                        form(f"{op}.rn{ftz}{sat}.{t}", t, 2)
                    form(f"fma.rn{ftz}{sat}.{t}", t, 3)
                form(f"fma.rn{ftz}.relu.{t}", t, 3)
            for relu in ("", ".relu"):
                out.append(Form(f"fma.rn.oob{relu}.{t}", (f"oob:{t}", f"oob:{t}", f"oob:{t}"), t))
                for op in ("abs", "neg"):
                    form(f"{op}{ftz}.{t}", t, 1, "nan")
                for op in ("min", "max"):
                    for nan in ("", ".NaN"):
                        for x in ("", ".xorsign.abs"):
                            form(f"{op}{ftz}{nan}{x}.{t}", t, 2)
    for t in ("f32", "f64"):
        for test in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            out.append(Form(f"testp.{test}.{t}", (t,), "pred"))
    return out


def convert() -> list[Form]:
    out: list[Form] = []

    def form(op: str, *sources: str, to: str, rule: str = "") -> None:
        out.append(Form(op, sources, to, rule))

    for to in BYTES:
        for a in BYTES:
            result = f"b{max(BITS[to], 32)}"
            form(f"cvt.{to}.{a}", a, to=result)
            fits = (to[0] == a[0] and BITS[to] >= BITS[a]) or (a[0] == "u" and to[0] == "s" and BITS[to] > BITS[a])
            if not fits:
                form(f"cvt.sat.{to}.{a}", a, to=result)
    for to in BYTES:
        for a in REALS:
            if a == "bf16" and BITS[to] == 8:
                continue
            for r in ("rni", "rzi", "rmi", "rpi"):
                form(f"cvt.{r}.{to}.{a}", a, to=f"b{BITS[to] if a == 'bf16' else max(BITS[to], 32)}")
            if a == "f32":
                form(f"cvt.rzi.ftz.{to}.f32", a, to=f"b{max(BITS[to], 32)}")
                form(f"cvt.rni.sat.{to}.f32", a, to=f"b{max(BITS[to], 32)}")
    for to in REALS:
        for a in INTEGERS if to == "bf16" else BYTES:
            for r in ROUNDINGS:
                form(f"cvt.{r}.{to}.{a}", a, to=to)
        if to in ("f16", "f32", "f64"):
            form(f"cvt.rn.sat.{to}.s32", "s32", to=to)
    for to in REALS:
        for r in ("rni", "rzi", "rmi", "rpi"):
            if to != "bf16":
                form(f"cvt.{r}.{to}.{to}", to, to=to, rule="nan" if to == "f64" else "")
        if to == "f32":
            for r in ("rni", "rpi"):
                form(f"cvt.{r}.ftz.f32.f32", "f32", to="f32")
                form(f"cvt.{r}.sat.f32.f32", "f32", to="f32")
    for a, to in (("f16", "f32"), ("f16", "f64"), ("f32", "f64"), ("bf16", "f32"), ("bf16", "f64")):
        loose = "nan" if to == "f64" else ""
        form(f"cvt.{to}.{a}", a, to=to, rule=loose)
        if a != "bf16":
            form(f"cvt.sat.{to}.{a}", a, to=to, rule=loose)
    form("cvt.ftz.f32.f16", "f16", to="f32")
    form("cvt.ftz.f64.f32", "f32", to="f64", rule="nan")
    for a, to in (
        ("f64", "f32"),
        ("f32", "f16"),
        ("f64", "f16"),
        ("f32", "bf16"),
        ("f64", "bf16"),
        ("f16", "bf16"),
        ("bf16", "f16"),
    ):
        for r in ROUNDINGS:
            form(f"cvt.{r}.{to}.{a}", a, to=to)
        if "bf16" not in (a, to):
            form(f"cvt.rn.sat.{to}.{a}", a, to=to)
    form("cvt.rn.ftz.f32.f64", "f64", to="f32")
    form("cvt.rz.ftz.f16.f32", "f32", to="f16")
    for to in ("f16", "bf16"):
        for r in ("rn", "rz"):
            for relu in ("", ".relu"):
                for fin in ("", ".satfinite"):
                    if relu or fin:
                        form(f"cvt.{r}{relu}{fin}.{to}.f32", "f32", to=to)
                    form(f"cvt.{r}{relu}{fin}.{to}x2.f32", "f32", "f32", to=f"{to}x2")
    form("cvt.rna.tf32.f32", "f32", to="b32")
    for r in ("rn", "rz"):
        for relu in ("", ".relu"):
            form(f"cvt.{r}{relu}.tf32.f32", "f32", to="b32")
    for f in ("e4m3", "e5m2"):
        for relu in ("", ".relu"):
            form(f"cvt.rn.satfinite{relu}.{f}x2.f32", "f32", "f32", to="b16")
            form(f"cvt.rn.satfinite{relu}.{f}x2.f16x2", "f16x2", to="b16")
            form(f"cvt.rn{relu}.f16x2.{f}x2", f"{f}x2", to="f16x2")
    return out


def kernel(name: str, family: str, forms: list[Form]) -> Case:
    """Forms on the same or on other registers; operands also by constants, and by a register wider than the type."""
    k = Kernel(name, family, (LANES,))
    d = k.draw
    for f in forms:
        names: list[str] = []
        for n, source in enumerate(f.sources):
            dtype, _ = domain(d, source)
            if n == len(f.sources) - 1 and f.immediates and d.chance(15):
                names.append(d.literal(dtype))
                continue
            if source != dtype:
                values = [v for _, v in (domain(d, source) for _ in range(k.total)) if v is not None]
                names.append(k.load(dtype, values))
            elif n and f.sources[n - 1] == source and dtype != "pred" and names[-1] in k.values:
                names.append(k.load_related(dtype, names[-1]))
            else:
                names.append(k.load(dtype))
        result = k.reg(1) if f.result == "pred" else k.reg_of(f.result)
        k.emit(f"{f.op} {result}, {', '.join(names)}{f.tail};")
        k.store(result, f.result, f.rule, f.op)
    return k.case()


def compare(name: str, dtype: str) -> Case:
    """All comparisons of one type, alone, with a predicate and with two results; their bits go into words."""
    k = Kernel(name, "compare", (LANES,))
    d = k.draw
    packed = dtype.endswith("x2")
    base = dtype.removesuffix("x2")
    a = k.load(dtype)
    b = k.load_related(dtype, a, 60)
    c = k.load("pred")
    names = (*ORDERED, *UNORDERED) if base in REALS else ("eq", "ne") if dtype[0] == "b" else ORDERED
    if dtype[0] == "u":
        names = (*names, "lo", "ls", "hi", "hs")
    for ftz in ("", ".ftz") if base in ("f16", "f32") else ("",):
        word = k.reg(32)
        k.emit(f"mov.b32 {word}, 0;")
        bit = 0
        for op in names:
            p, q = k.reg(1), k.reg(1)
            combined = f".{d.pick(('and', 'or', 'xor'))}" if d.chance(50) else ""
            extra = f", {d.pick(('', '!'))}{c}" if combined else ""
            pair = packed or (base not in ("f16", "bf16") and d.chance(30))
            k.emit(f"setp.{op}{combined}{ftz}.{dtype} {p}{'|' + q if pair else ''}, {a}, {b}{extra};")
            for r in (p, q)[: 1 + pair]:
                if bit == 32:
                    k.store(word, "b32", label=f"setp{ftz}.{dtype}")
                    word, bit = k.reg(32), 0
                    k.emit(f"mov.b32 {word}, 0;")
                k.emit(f"@{r} or.b32 {word}, {word}, {1 << bit};")
                bit += 1
        k.store(word, "b32", label=f"setp{ftz}.{dtype}")
    return k.case()


def set_(name: str, dtype: str) -> Case:
    """Comparisons whose result is a number."""
    k = Kernel(name, "compare", (LANES,))
    d = k.draw
    base = dtype.removesuffix("x2")
    a = k.load(dtype)
    b = k.load_related(dtype, a, 60)
    c = k.load("pred")
    names = (*ORDERED, *UNORDERED) if base in REALS else ("eq", "ne") if dtype[0] == "b" else ORDERED
    if base in ("f16", "bf16"):
        results = (dtype, "u32", "s32") if dtype != base else (base, "u16", "s16", "u32")
    else:
        results = ("u32", "s32", "f32")
    for op in d.shuffled(names)[:4]:
        to = d.pick(results)
        combined = f".{d.pick(('and', 'or', 'xor'))}" if d.chance(40) else ""
        extra = f", {d.pick(('', '!'))}{c}" if combined else ""
        ftz = ".ftz" if base in ("f16", "f32") and d.chance(30) else ""
        z = k.reg_of(to)
        k.emit(f"set.{op}{combined}{ftz}.{to}.{dtype} {z}, {a}, {b}{extra};")
        k.store(z, to, label=f"set.{op}.{to}.{dtype}")
    return k.case()


def mixed_carry(name: str) -> Case:
    """One chain of sums, differences and products through the carry flag, in any order, from one column to the next."""
    k = Kernel(name, "mixed_carry", (LANES,))
    d = k.draw
    zero = k.reg(32)
    k.emit(f"mov.u32 {zero}, 0;")
    for i in range(8):
        a = k.load("u32")
        b, c = k.load_related("u32", a, 50), k.load("u32")
        op = d.pick(("add", "sub", "sub", "mad.lo", "mad.hi"))
        if i:
            op = op.replace("mad", "madc") if "mad" in op else f"{op}c"
        r, flag = k.reg(32), k.reg(32)
        k.emit(f"{op}.cc.u32 {r}, {a}, {b}{f', {c}' if 'mad' in op else ''};")
        k.emit(f"addc.u32 {flag}, {zero}, {zero};", f"add.cc.u32 %w, {flag}, -1;")  # reads the flag, and restores it
        k.store(r, "b32", label=f"{op}.cc.u32")
        k.store(flag, "b32", label=f"the carry of {op}.cc.u32")
    return k.case()


def video(name: str) -> Case:
    """Video instructions of every kind, with selectors, saturation, second operations and merges."""
    k = Kernel(name, "video", (LANES,))
    d = k.draw

    def select() -> str:
        return d.pick(("", "", *(f".b{i}" for i in range(4)), ".h0", ".h1"))

    def types(n: int) -> str:
        return "".join(f".{d.pick(('u32', 's32'))}" for _ in range(n))

    def lanes(op: str, most: int, count: int) -> str:
        digits = "".join(str(d.below(most)) for _ in range(count))
        return d.pick(("", f".{'h' if op[-1] == '2' else 'b'}{digits}"))

    compare = ("eq", "ne", "lt", "le", "gt", "ge")
    for _ in range(8):
        a, b, c, r = k.load("u32"), k.load("u32"), k.load("u32"), k.reg(32)
        how = d.below(3)
        op = d.pick(("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset", "vshl", "vshr"))
        if how == 2:
            op = d.pick([f"v{x}{n}" for x in ("add", "sub", "avrg", "absdiff", "min", "max", "set") for n in (2, 4)])
            n = int(op[-1])
            mask = d.pick(("", f".{'h' if n == 2 else 'b'}{d.below(n)}"))
            tail = types(2) + f".{d.pick(compare)}" if op[1:4] == "set" else types(3) + d.pick(("", ".sat"))
            if not tail.endswith(".sat"):
                tail += d.pick(("", ".add"))
            text = f"{op}{tail} {r}{mask}, {a}{lanes(op, 2 * n, n)}, {b}{lanes(op, 2 * n, n)}, {c};"
        else:
            if op == "vset":
                tail = f"{types(2)}.{d.pick(compare)}"
            elif op[1:3] == "sh":
                tail = f"{types(2)}.u32{d.pick(('', '.sat'))}.{d.pick(('clamp', 'wrap'))}"
            else:
                tail = types(3) + d.pick(("", ".sat"))
            to, last = ("", f", {c}") if how else (select(), "")
            second = f".{d.pick(('add', 'min', 'max'))}" if how else ""
            text = f"{op}{tail}{second} {r}{to}, {a}{select()}, {b}{select()}{last or (f', {c}' if to else '')};"
        k.emit(text)
        k.store(r, "b32", label=text)
    return k.case()


def directed() -> list[Case]:
    return [
        *(mixed_carry(f"mixed_carry_{i:02d}") for i in range(16)),
        *(video(f"video_{i:02d}") for i in range(24)),
    ]


def carry(name: str) -> Case:
    """Sums, differences and products of several words, through the carry flag."""
    k = Kernel(name, "carry", (LANES,))
    d = k.draw
    bits = d.pick((32, 32, 64))
    t = f"{d.pick('us')}{bits}"
    n = d.between(2, 4)
    a = [k.load(f"u{bits}") for _ in range(n)]
    b = [k.load_related(f"u{bits}", x, 50) for x in a]
    how = d.below(4)
    if how < 2:
        op = "add" if how == 0 else "sub"
        out = [k.reg(bits) for _ in range(n)]
        for i in range(n):
            name_ = f"{op}.cc" if i == 0 else f"{op}c.cc" if i < n - 1 or d.chance(30) else f"{op}c"
            k.emit(f"{name_}.{t} {out[i]}, {a[i]}, {b[i]};")
        for r in out:
            k.store(r, f"b{bits}", label=f"{op}.cc.{t}")
        return k.case()
    # the product of two words of n limbs by one, or a chain of madc
    x = k.load(f"u{bits}")
    acc = [k.load(f"u{bits}") for _ in range(n + 1)]
    out = [k.reg(bits) for _ in range(n + 1)]
    if how == 2:
        k.emit(f"mad.lo.cc.{t} {out[0]}, {a[0]}, {x}, {acc[0]};")
        for i in range(1, n):
            k.emit(f"madc.lo.cc.{t} {out[i]}, {a[i]}, {x}, {acc[i]};")
        k.emit(f"addc.{t} {out[n]}, {acc[n]}, 0;")
        k.emit(f"mad.hi.cc.{t} {out[1]}, {a[0]}, {x}, {out[1]};")
        for i in range(1, n):
            k.emit(f"madc.hi{'.cc' if i < n - 1 else ''}.{t} {out[i + 1]}, {a[i]}, {x}, {out[i + 1]};")
    else:
        k.emit(f"mad.hi.cc.{t} {out[0]}, {a[0]}, {x}, {acc[0]};")
        for i in range(1, n):
            k.emit(f"madc.{d.pick(('lo', 'hi'))}.cc.{t} {out[i]}, {a[i]}, {b[i]}, {acc[i]};")
        k.emit(f"addc.{t} {out[n]}, {acc[n]}, {x};")
    for r in out:
        k.store(r, f"b{bits}", label=f"madc.{t}")
    return k.case()


def lop_predicate(name: str) -> Case:
    """lop3 with a predicate, and operations on predicates alone."""
    k = Kernel(name, "predicate", (LANES,))
    d = k.draw
    x, y, z = (
        k.load("b32", [d.pick((0, d.bits(32), 0xFFFFFFFF, 1 << d.below(32))) for _ in range(k.total)]) for _ in range(3)
    )
    q = k.load("pred")
    for _ in range(3):
        r, p = k.reg(32), k.reg(1)
        k.emit(f"lop3.{d.pick(('or', 'and'))}.b32 {r}|{p}, {x}, {y}, {z}, {d.bits(8)}, {d.pick(('', '!'))}{q};")
        k.store(r, "b32", label="lop3.BoolOp")
        k.store(p, "pred", label="lop3.BoolOp")
        t = k.reg(1)
        k.emit(
            f"{d.pick(('and', 'or', 'xor'))}.pred {t}, {p}, {q};", f"@{t} xor.b32 {x}, {x}, {y};", f"mov.pred {q}, {t};"
        )
    k.store(x, "b32")
    return k.case()


def flush(name: str) -> Case:
    """Results on either side of the smallest normal number, with and without .ftz."""
    k = Kernel(name, "real", (LANES,))
    d = k.draw

    def signed(bits: int, width: int = 32) -> int:
        return bits | d.bits(1) << (width - 1)

    near = [d.pick((0, 1, 2, 3, 5, 17, d.below(2000))) for _ in range(k.total)]
    lost = [max(0, 2 * n + d.pick((-1, 0, 0, 0, 1, d.between(-9, 9)))) for n in near]
    below_one = k.load("f32", [signed(0x3F800000 - n) for n in lost])
    tiny = k.load("f32", [signed(0x00800000 + n) for n in near])
    above_one = k.load("f32", [signed(0x3F800000 + n // 2 + d.below(2)) for n in near])
    double = k.load("f32", [0x01000000 + d.below(16) for _ in near])
    minus = k.load("f32", [0x80800000 + d.below(16) for _ in near])
    large = k.load("f32", [signed(0x7E800000 + n) for n in near])
    wide = k.load(
        "f64",
        [
            signed((0x381 << 52) + d.pick((0, 1, -1, 1 << 28, -(1 << 28), (1 << 28) + 1, -(1 << 29), -(1 << 40))), 64)
            for _ in near
        ],
    )
    half = k.load("f16", [0x3C00 - d.below(24) for _ in near])
    small = k.load("f16", [0x0400 + d.below(12) for _ in near])
    for r in d.shuffled(ROUNDINGS)[:2]:
        for op, dtype, sources in (
            (f"mul.{r}.ftz.f32", "f32", (below_one, tiny)),
            (f"div.{r}.ftz.f32", "f32", (tiny, above_one)),
            (f"fma.{r}.ftz.f32", "f32", (above_one, double, minus)),
            (f"fma.{r}.ftz.f32", "f32", (below_one, tiny, "0f80000000")),
            (f"rcp.{r}.ftz.f32", "f32", (large,)),
            (f"cvt.{r}.ftz.f32.f64", "f32", (wide,)),
        ):
            z = k.reg_of(dtype)
            k.emit(f"{op} {z}, {', '.join(sources)};")
            k.store(z, dtype, label=f"{op} near 2^-126")
    for op in ("mul.rn.ftz.f16", "mul.rn.f16"):
        z = k.reg(16)
        k.emit(f"{op} {z}, {half}, {small};")
        k.store(z, "f16", label=f"{op} near 2^-14")
    return k.case()


def cases(repeats: int = 3) -> list[Case]:
    out: list[Case] = []
    for family, forms, a_kernel in (("integer", integer(), 4), ("real", real(), 4), ("convert", convert(), 5)):
        for turn in range(repeats):
            order = Draw(f"{family} order {turn}").shuffled(forms)
            for i in range(0, len(order), a_kernel):
                out.append(kernel(f"{family}_{turn}_{i // a_kernel:03d}", family, order[i : i + a_kernel]))
    kinds = (
        "u16",
        "s16",
        "b16",
        "u32",
        "s32",
        "b32",
        "u64",
        "s64",
        "b64",
        "f16",
        "bf16",
        "f32",
        "f64",
        "f16x2",
        "bf16x2",
    )
    for turn in range(repeats):
        out += [compare(f"setp_{turn}_{dtype}", dtype) for dtype in kinds]
        out += [set_(f"set_{turn}_{dtype}", dtype) for dtype in kinds]
    out += [flush(f"flush_{i:02d}") for i in range(10)]
    out += [carry(f"carry_{i:03d}") for i in range(40)]
    out += [lop_predicate(f"predicate_{i:03d}") for i in range(12)]
    return out
