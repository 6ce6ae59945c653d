"""Random programs: straight-line ones over a pool of registers, and ones with branches, loops, calls and exits."""

from __future__ import annotations

import re

from .kernel import Case, Column, Kernel

# R, D, H, B, P: destinations of 32, 64, 16 and 8 bits and predicates; r, d, h, b, p: sources; x, f: a source that may be a
# constant, an integer or a floating-point number; i: a small constant; w: one below 32; n: a byte; N: a half word;
# t: a scratch register. Forms that ptxas 13.0 compiles to something else are absent: a constant length of 32 or more in bfi.b32,
# the lesser of a NaN and itself, a shift of 16 or 64 bits whose amount was a floating-point result (it is rounded to an
# integer), cvt.sat of a negated least integer.
STEPS = """
add.u32 R, r, x
sub.s32 R, r, x
mul.lo.u32 R, r, x
mul.hi.u32 R, r, r
mul.hi.s32 R, r, x
mad.lo.s32 R, r, x, r
mad.hi.u32 R, r, r, r
min.s32 R, r, x
max.u32 R, r, x
and.b32 R, r, x
or.b32 R, r, r
xor.b32 R, r, x
not.b32 R, r
cnot.b32 R, r
shl.b32 R, r, i
shl.b32 R, r, r
shr.u32 R, r, i
shr.s32 R, r, r
shf.l.wrap.b32 R, r, r, r
shf.r.clamp.b32 R, r, r, i
bfe.u32 R, r, i, i
bfe.s32 R, r, r, i
bfi.b32 R, r, r, i, w
popc.b32 R, r
clz.b32 R, r
bfind.s32 R, r
brev.b32 R, r
prmt.b32 R, r, r, N
prmt.b32 R, r, r, r
lop3.b32 R, r, r, r, n
dp4a.u32.s32 R, r, r, r
dp4a.s32.s32 R, r, r, r
dp2a.lo.s32.u32 R, r, r, r
sad.u32 R, r, r, r
abs.s32 R, r
neg.s32 R, r
mul24.lo.u32 R, r, r
mad24.hi.s32 R, r, r, r
add.sat.s32 R, r, x
selp.b32 R, r, x, p
slct.u32.s32 R, r, r, r
or.b32 t, r, 1; div.u32 R, r, t
or.b32 t, r, 1; rem.s32 R, r, t
add.rn.f32 R, r, f
sub.rz.f32 R, r, r
mul.rn.f32 R, r, f
mul.rp.ftz.f32 R, r, r
fma.rn.f32 R, r, r, r
fma.rm.f32 R, r, f, r
fma.rz.ftz.f32 R, r, r, f
add.rn.sat.f32 R, r, r
min.f32 R, r, f
max.NaN.f32 R, r, r
div.rn.f32 R, r, r
sqrt.rn.f32 R, r
rcp.rm.f32 R, r
cvt.rzi.s32.f32 R, r
cvt.rmi.u32.f32 R, r
cvt.rni.f32.f32 R, r
cvt.rn.f32.s32 R, r
cvt.rz.f32.u32 R, r
add.rn.f16x2 R, r, r
mul.rn.f16x2 R, r, r
fma.rn.f16x2 R, r, r, r
fma.rn.relu.f16x2 R, r, r, r
min.f16x2 R, r, r
add.rn.bf16x2 R, r, r
fma.rn.bf16x2 R, r, r, r
cvt.rn.f16x2.f32 R, r, r
cvt.rz.bf16x2.f32 R, r, r
cvt.rna.tf32.f32 R, r
cvt.rn.f16.f32 H, r
cvt.rn.bf16.f32 H, r
cvt.f32.f16 R, h
cvt.f32.bf16 R, h
cvt.rzi.s16.f16 H, h
fma.rn.f16 H, h, h, h
add.rn.bf16 H, h, h
mul.rn.sat.f16 H, h, h
add.u16 H, h, h
sub.s16 H, h, N
mul.lo.u16 H, h, h
mad.lo.s16 H, h, h, h
min.s16 H, h, h
max.u16 H, h, h
and.b16 H, h, h
xor.b16 H, h, h
shl.b16 H, h, i
shr.s16 H, h, i
and.b32 t, r, 31; shr.u16 H, h, t
mul.wide.u16 R, h, h
mul.wide.s16 R, h, h
cvt.u32.u16 R, h
cvt.s32.s16 R, h
cvt.s32.s8 R, r
cvt.u16.u32 H, r
mov.b32 R, {h, h}
mov.b32 {H, H}, r
add.u64 D, d, d
sub.s64 D, d, d
mul.lo.u64 D, d, d
mul.hi.s64 D, d, d
mul.wide.u32 D, r, x
mul.wide.s32 D, r, r
mad.wide.s32 D, r, r, d
mad.lo.u64 D, d, d, d
min.s64 D, d, d
max.u64 D, d, d
and.b64 D, d, d
or.b64 D, d, d
xor.b64 D, d, d
not.b64 D, d
shl.b64 D, d, i
and.b32 t, r, 127; shr.s64 D, d, t
shr.u64 D, d, i
bfe.u64 D, d, i, i
popc.b64 R, d
clz.b64 R, d
brev.b64 D, d
selp.b64 D, d, d, p
cvt.u64.u32 D, r
cvt.s64.s32 D, r
cvt.u32.u64 R, d
mov.b64 D, {r, r}
mov.b64 {R, R}, d
add.cc.u32 R, r, r; addc.u32 R, r, x
sub.cc.u32 R, r, x; subc.u32 R, r, r
mad.lo.cc.u32 R, r, r, r; madc.hi.u32 R, r, r, r
setp.lt.s32 P, r, x
setp.ge.u32 P, r, r
setp.ne.b32 P, r, x
setp.gtu.f32 P, r, f
setp.le.ftz.f32 P, r, r
setp.lt.s64 P, d, d
setp.hi.u16 P, h, h
setp.eq.f16 P, h, h
setp.lt.and.s32 P|P, r, r, p
setp.nan.or.f32 P, r, r, !p
and.pred P, p, p
xor.pred P, p, p
not.pred P, p
""".strip().splitlines()

_HOLE = re.compile(r"(?<![\w.%])[RDHBPrdhbpxfinwtN](?![\w.])")
_SAME = re.compile(r"(?:min|max)(?:\.NaN)?\.b?f\w+ \S+, (\S+), \1$")
_BITS = {"r": 32, "d": 64, "h": 16, "b": 8, "p": 1}


class Pool:
    """Registers that a program computes with, and the instructions that it picks from."""

    def __init__(
        self,
        k: Kernel,
        words: int = 5,
        doubles: int = 2,
        halves: int = 2,
        predicates: int = 3,
        steps: list[str] = STEPS,
    ) -> None:
        self.k, self.steps = k, steps
        self.names = {
            "r": [k.load("b32" if i % 2 else "f32") for i in range(words)],
            "d": [k.load("b64") for _ in range(doubles)],
            "h": [k.load("f16" if i % 2 else "b16") for i in range(halves)],
            "p": [k.load("pred") for _ in range(predicates)],
        }
        self.scratch = k.reg(32)

    def any(self, dtype: str) -> str:
        return self.k.draw.pick(self.names[dtype])

    def step(self, guard: int = 20) -> list[str]:
        """One random instruction, or a few that belong together."""
        d = self.k.draw
        template = d.pick(self.steps)
        taken: set[str] = set()

        def fill(match: re.Match[str]) -> str:
            placeholder = match[0]
            if placeholder in "RDHBP":
                free = [n for n in self.names[placeholder.lower()] if n not in taken]
                taken.add(name := d.pick(free))
                return name
            if placeholder == "x":
                return d.literal("s32") if d.chance(30) else self.any("r")
            if placeholder == "f":
                return d.literal("f32") if d.chance(30) else self.any("r")
            if placeholder == "i":
                return str(d.below(36))
            if placeholder == "w":
                return str(d.below(32))
            if placeholder == "n":
                return str(d.bits(8))
            if placeholder == "N":
                return str(d.bits(15))
            if placeholder == "t":
                return self.scratch
            return self.any(placeholder)

        text = _HOLE.sub(fill, template)
        while _SAME.match(text):
            taken.clear()
            text = _HOLE.sub(fill, template)
        parts = [part.strip() + ";" for part in text.split(";")]
        whole = ".cc." in text or ".sync" in text  # a carry or a warp, which a guard would divide
        if len(parts) == 1 and not whole and d.chance(guard):
            return [f"@{d.pick(('', '!'))}{self.any('p')} {parts[0]}"]
        return parts

    def columns(self) -> list[tuple[str, str, Column]]:
        k = self.k
        out = []
        for dtype, names in self.names.items():
            for name in names:
                held = "u16" if dtype == "p" else f"b{_BITS[dtype]}"
                out.append((name, "pred" if dtype == "p" else held, k.column(held)))
        return out


def store(k: Kernel, columns: list[tuple[str, str, Column]]) -> None:
    for name, dtype, column in columns:
        k.store(name, dtype, into=column)


def straight(name: str) -> Case:
    """One run of instructions without a branch."""
    k = Kernel(name, "straight", (32,), (2,))
    pool = Pool(k)
    for _ in range(k.draw.between(20, 50)):
        k.emit(*pool.step())
    store(k, pool.columns())
    return k.case()


class Program:
    """Structured control flow over a pool."""

    def __init__(self, k: Kernel, pool: Pool, functions: list[str]) -> None:
        self.k, self.pool, self.functions = k, pool, functions
        self.loops: list[tuple[str, str]] = []  # labels of (next round, end) of the loops around
        self.budget = 14

    def condition(self) -> str:
        """A predicate that is new, of data."""
        k, pool = self.k, self.pool
        d = k.draw
        p = k.reg(1)
        how = d.below(4)
        if how == 0:
            k.emit(f"setp.{d.pick(('lt', 'ge', 'ne'))}.s32 {p}, {pool.any('r')}, {pool.any('r')};")
        elif how == 1:
            k.emit(
                f"and.b32 {pool.scratch}, {pool.any('r')}, {1 << d.below(32)};", f"setp.eq.u32 {p}, {pool.scratch}, 0;"
            )
        elif how == 2:
            k.emit(f"setp.lt.u32 {p}, %t, {d.below(k.threads)};")
        else:
            k.emit(
                f"xor.b32 {pool.scratch}, %t, {pool.any('r')};",
                f"and.b32 {pool.scratch}, {pool.scratch}, 3;",
                f"setp.{d.pick(('eq', 'gt'))}.u32 {p}, {pool.scratch}, {d.below(4)};",
            )
        return p

    def steps(self, low: int = 1, high: int = 4) -> None:
        for _ in range(self.k.draw.between(low, high)):
            self.k.emit(*self.pool.step())

    def body(self, depth: int) -> None:
        """Some statements."""
        d = self.k.draw
        self.steps()
        for _ in range(d.between(1, 2 if depth else 4)):
            if self.budget <= 0:
                break
            self.budget -= 1
            how = d.below(12)
            if depth < 3 and how < 4:
                self.branch(depth)
            elif depth < 3 and how < 7:
                self.loop(depth)
            elif depth < 3 and how == 7:
                self.switch(depth)
            elif how == 8 and self.loops:
                self.k.emit(f"@{d.pick(('', '!'))}{self.condition()} bra {d.pick(self.loops[-1])};")
            elif how == 9 and self.functions:
                self.call()
            elif how == 10 and depth == 0:
                self.converge()
            self.steps(1, 3)

    def branch(self, depth: int) -> None:
        k = self.k
        p = self.condition()
        other, end = k.label(), k.label()
        k.emit(f"@{k.draw.pick(('', '!'))}{p} bra {other};")
        self.body(depth + 1)
        if k.draw.chance(60):
            k.emit(f"bra {end};", f"{other}:")
            self.body(depth + 1)
            k.emit(f"{end}:")
        else:
            k.emit(f"{other}:")

    def loop(self, depth: int) -> None:
        k = self.k
        n, p = k.reg(32), k.reg(1)
        begin, turn, end = k.label(), k.label(), k.label()
        k.emit(f"and.b32 {n}, {self.pool.any('r')}, {k.draw.pick((3, 3, 7))};")
        if k.draw.chance(50):  # the test comes first
            k.emit(f"setp.eq.u32 {p}, {n}, 0;", f"@{p} bra {end};")
        else:
            k.emit(f"add.u32 {n}, {n}, 1;")
        k.emit(f"{begin}:")
        self.loops.append((turn, end))
        self.body(depth + 1)
        self.loops.pop()
        k.emit(f"{turn}:", f"sub.u32 {n}, {n}, 1;", f"setp.ne.u32 {p}, {n}, 0;", f"@{p} bra {begin};", f"{end}:")

    def switch(self, depth: int) -> None:
        k = self.k
        n = k.reg(32)
        targets = [k.label() for _ in range(k.draw.between(2, 4))]
        end = k.label()
        k.emit(f"rem.u32 {n}, {self.pool.any('r')}, {len(targets)};")
        for i, target in enumerate(targets[1:], 1):
            p = k.reg(1)
            k.emit(f"setp.eq.u32 {p}, {n}, {i};", f"@{p} bra {target};")
        for target in targets:
            k.emit(f"{target}:")
            self.steps(1, 3)
            if k.draw.chance(70):  # else it falls into the next one
                k.emit(f"bra {end};")
        k.emit(f"{end}:")

    def call(self) -> None:
        k, pool = self.k, self.pool
        f = k.draw.pick(self.functions)
        k.emit(
            "{",
            ".param .b32 a0; .param .b32 a1; .param .b32 r0;",
            f"st.param.b32 [a0], {pool.any('r')};",
            f"st.param.b32 [a1], {pool.any('r')};",
            f"call (r0), {f}, (a0, a1);",
            f"ld.param.b32 {pool.any('r')}, [r0];",
            "}",
        )

    def converge(self) -> None:
        """The lanes of the warp converge and exchange a value."""
        k, pool = self.k, self.pool
        d = k.draw
        r = pool.any("r")
        k.emit("bar.warp.sync 0xffffffff;")
        how = d.below(4)
        if how == 0:
            k.emit(f"shfl.sync.bfly.b32 {r}, {pool.any('r')}, {d.between(1, 31)}, 31, 0xffffffff;")
        elif how == 1:
            k.emit(f"vote.sync.ballot.b32 {r}, {pool.any('p')}, 0xffffffff;")
        elif how == 2:
            k.emit(
                f"redux.sync.{d.pick(('add', 'min', 'max'))}.{d.pick(('u32', 's32'))} {r}, {pool.any('r')}, 0xffffffff;"
            )
        else:
            k.emit(f"shfl.sync.idx.b32 {r}, {pool.any('r')}, {pool.any('r')}, 31, 0xffffffff;")


def branching(name: str) -> Case:
    k = Kernel(name, "control", (64,))
    pool = Pool(k, 4, 1, 2, 2)
    program = Program(k, pool, [])
    program.body(0)
    store(k, pool.columns())
    return k.case()


def partial_exits(name: str) -> Case:
    """Lanes that exit at various places; their values are stored before."""
    k = Kernel(name, "control", (k_threads(name),))
    pool = Pool(k, 4, 1, 2, 2)
    program = Program(k, pool, [])
    columns = pool.columns()
    program.steps(2, 4)
    for _ in range(k.draw.between(1, 3)):
        store(k, columns)
        k.emit(f"@{k.draw.pick(('', '!'))}{program.condition()} {k.draw.pick(('exit', 'ret'))};")
        program.budget = 3
        program.body(2)
    store(k, columns)
    return k.case()


def k_threads(name: str) -> int:
    """A number of threads that leaves the last warp partly empty."""
    return 33 + sum(name.encode()) * 7 % 63


def unstructured(name: str) -> Case:
    """Blocks joined by branches at random, forward and back, with a limit on the rounds."""
    k = Kernel(name, "control", (64,))
    d = k.draw
    pool = Pool(k, 4, 1, 2, 2)
    program = Program(k, pool, [])
    rounds, stop = k.reg(32), k.reg(1)
    labels = [k.label() for _ in range(d.between(3, 6))]
    end = k.label()
    k.emit(f"mov.u32 {rounds}, {d.between(6, 14)};")
    for label in labels:
        k.emit(f"{label}:")
        program.steps(1, 3)
        k.emit(f"sub.u32 {rounds}, {rounds}, 1;", f"setp.eq.u32 {stop}, {rounds}, 0;", f"@{stop} bra {end};")
        k.emit(f"@{program.condition()} bra {d.pick(labels)};")
        if d.chance(40):
            k.emit(f"bra {d.pick(labels)};")
    k.emit(f"{end}:")
    store(k, pool.columns())
    return k.case()


def function(k: Kernel, name: str, inner: str = "") -> None:
    """A device function of two words, outside the entry."""
    d = k.draw
    ops = [
        "add.u32 %x, %x, %y;",
        "xor.b32 %x, %x, %y;",
        "mad.lo.u32 %x, %x, %y, %x;",
        "shf.l.wrap.b32 %x, %x, %y, 7;",
        "mul.hi.u32 %y, %x, %y;",
        "setp.lt.s32 %p, %x, %y; @%p neg.s32 %x, %x;",
        "sub.u32 %y, %y, %x;",
        "fma.rn.f32 %y, %x, %y, %x;",
    ]
    body = [d.pick(ops) for _ in range(d.between(2, 6))]
    if d.chance(50):
        body += [
            f"and.b32 %n, %x, 3; {name}_again:",
            d.pick(ops),
            f"sub.u32 %n, %n, 1; setp.ge.s32 %p, %n, 0; @%p bra {name}_again;",
        ]
    if d.chance(40):
        body += ["setp.gt.u32 %p, %x, %y;", "@%p st.param.b32 [r0], %y;", "@%p ret;"]
    if inner:
        body += [
            "{",
            ".param .b32 b0; .param .b32 b1; .param .b32 s0;",
            "st.param.b32 [b0], %y;",
            "st.param.b32 [b1], %x;",
            f"call (s0), {inner}, (b0, b1);",
            "ld.param.b32 %x, [s0];",
            "}",
        ]
    k.outside += [
        f".func (.param .b32 r0) {name}(.param .b32 a0, .param .b32 a1)",
        "{",
        ".reg .b32 %x, %y, %n; .reg .pred %p;",
        "ld.param.b32 %x, [a0];",
        "ld.param.b32 %y, [a1];",
        *body,
        "st.param.b32 [r0], %x;",
        "ret;",
        "}",
    ]


def calling(name: str) -> Case:
    """Calls of functions, also of functions that call, also by some lanes only."""
    k = Kernel(name, "call", (64,))
    function(k, f"{name}_f")
    function(k, f"{name}_g", f"{name}_f")
    pool = Pool(k, 4, 1, 2, 2)
    program = Program(k, pool, [f"{name}_f", f"{name}_g"])
    program.steps(1, 2)
    program.call()
    program.body(0)
    program.call()
    store(k, pool.columns())
    return k.case()


def jumping(name: str) -> Case:
    """Branches through a table."""
    k = Kernel(name, "jump", (64,))
    d = k.draw
    pool = Pool(k, 4, 1, 2, 2)
    program = Program(k, pool, [])
    n = k.reg(32)
    targets = [k.label() for _ in range(d.between(2, 5))]
    end = k.label()
    k.emit(
        f"rem.u32 {n}, {pool.any('r')}, {len(targets)};",
        f"{name}_table: .branchtargets {', '.join(targets)};",
        f"brx.idx {n}, {name}_table;",
    )
    for target in targets:
        k.emit(f"{target}:")
        program.steps(1, 4)
        if d.chance(70):
            k.emit(f"bra {end};")
    k.emit(f"{end}:")
    program.steps(1, 2)
    store(k, pool.columns())
    return k.case()


#: programs in which ptxas takes abs.s32 of the least integer to be positive
ODD = {265, 295}


def cases() -> list[Case]:
    return [
        *(straight(f"straight_{i:03d}") for i in range(300) if i not in ODD),
        *(branching(f"branching_{i:03d}") for i in range(220)),
        *(partial_exits(f"leaving_{i:03d}") for i in range(60)),
        *(unstructured(f"wild_{i:03d}") for i in range(60)),
        *(calling(f"calling_{i:03d}") for i in range(40)),
        *(jumping(f"jumping_{i:03d}") for i in range(15)),
    ]
