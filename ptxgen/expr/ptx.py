"""Prints expressions as PTX."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptxgen.errors import DtypeError, InputError
from ptxgen.expr.instructions import TEMPORARY, literal, register_class, row_of, table_version
from ptxgen.expr.node import Node, constant, node, variable
from ptxgen.expr.value_types import PRED, type_of


class Temporaries:
    """Temporary registers that hold values between instructions: ``%t_f32_0``, …, by register class (PTX type).

    Every call of ``statements`` uses the registers from the first one again, except those that ``keep`` reserves until
    ``release``. ``first``: by class, registers that the kernel declares, which are used first."""

    def __init__(self, prefix: str = "t", first: Mapping[str, Sequence[str]] | None = None) -> None:
        self.prefix, self.first = prefix, dict(first or {})
        self.counts: Counter[str] = Counter()  #: registers to declare, by class
        self._next: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._free: dict[str, list[str]] = {}

    @property
    def state(self) -> tuple[Any, ...]:
        """The values that determine which registers the next call uses."""
        first = tuple((ptx_type, tuple(names)) for ptx_type, names in self.first.items())
        return self.prefix, first, tuple(sorted(self._kept.items()))

    @classmethod
    def of(cls, state: tuple[Any, ...]) -> Temporaries:
        """Temporary registers in a given state, none of them counted for declaration yet."""
        prefix, first, kept = state
        made = cls(prefix, dict(first))
        made._kept = Counter(dict(kept))
        made._next = Counter(dict(kept))
        return made

    @property
    def following(self) -> dict[str, int]:
        """The number of the next register, by class."""
        return dict(self._next)

    def use(self, counts: Mapping[str, int], following: Mapping[str, int]) -> None:
        """Counts the registers that a call uses. ``counts``: their number by class; ``following``: the next register by
        class."""
        for ptx_type, n in counts.items():
            self.counts[ptx_type] = max(self.counts[ptx_type], n)
        self._next = Counter(following)

    def take(self, ptx_type: str) -> str:
        """A free register of a class."""
        free = self._free.get(ptx_type)
        if free:
            return free.pop()
        own, n = self.first.get(ptx_type, ()), self._next[ptx_type]
        self._next[ptx_type] += 1
        if n < len(own):
            return own[n]
        n -= len(own)
        self.counts[ptx_type] = max(self.counts[ptx_type], n + 1)
        return f"%{self.prefix}_{ptx_type}_{n}"

    def give(self, ptx_type: str, register: str) -> None:
        """Makes a register free."""
        self._free.setdefault(ptx_type, []).append(register)

    def keep(self) -> None:
        """Reserves the registers in use, because their values are still read: later calls use others."""
        self._kept = Counter(self._next)

    def release(self) -> None:
        """Ends ``keep``."""
        self._kept = Counter()

    @property
    def declarations(self) -> list[str]:
        """The lines that declare the registers, after all statements are printed."""
        return [
            f".reg .{ptx_type} %{self.prefix}_{ptx_type}_<{n}>;" for ptx_type, n in sorted(self.counts.items()) if n
        ]


@dataclass(frozen=True)
class Statements:
    """Expressions as PTX. ``lines``: the PTX lines; ``operands``: for each root, the register or the number that has
    its value."""

    lines: list[str]
    operands: list[str]


def check(roots: Iterable[Node], sm: int) -> None:
    """Raises DtypeError if the target has no instructions for an expression."""
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        x = stack.pop()
        if x not in seen:
            seen.add(x)
            if x.arguments:
                row_of(x, sm)
                stack.extend(x.arguments)


def is_computed(roots: Iterable[Node], sm: int) -> bool:
    """True if a target has instructions for the expressions."""
    try:
        check(roots, sm)
    except DtypeError:
        return False
    return True


def statements(
    roots: Sequence[Node],
    registers: Mapping[Node, str],
    results: Sequence[str | None] | None = None,
    *,
    sm: int,
    temporaries: Temporaries,
    guard: str = "",
    guards_all: bool = False,
    contract: bool = True,
    fast: bool = False,
) -> Statements:
    """The instructions that compute ``roots``, each common subexpression once.

    ``registers``: the registers of variables, and of other expressions whose values the kernel holds. ``results``: the
    register that gets the value of each root, or None for any register; a result may be the register of a variable,
    which is read before it is written. ``guard``: text before the instructions that write results, such as ``@%p``;
    with ``guards_all`` before all others, too. ``contract``: a product of floats that only sums and differences use
    becomes fma.rn in each, with one rounding instead of two. ``fast``: approximate functions of f32 without subnormal
    numbers (``instructions.fast_rows``). DtypeError: the target has no instruction for an operator. InputError: a
    variable has no register.
    """
    results = [None] * len(roots) if results is None else results
    places: dict[str, int] = {}  #: register name -> number: calls that differ in names alone have one pattern
    held = tuple([places.setdefault(name, len(places)) for name in registers.values()])
    into = tuple([None if name is None else places.setdefault(name, len(places)) for name in results])
    given = [n for n in into if n is not None]
    if len(set(given)) < len(given):
        raise InputError(f"results are {', '.join(filter(None, results))}; each must be another register")
    flags = (bool(guard), guards_all, contract, fast, table_version())
    pattern = _pattern(tuple(roots), tuple(registers), held, into, sm, temporaries.state, *flags)
    temporaries.use(pattern.counts, pattern.following)
    names = (*places, guard if guard.endswith(" ") or not guard else f"{guard} ")
    lines = pattern.lines.format(*names).split("\n") if pattern.lines else []
    return Statements(lines, [operand.format(*names) for operand in pattern.operands])


def combined(
    operator: str, ptx_type: str, values: Sequence[str], into: str, *, sm: int, temporaries: Temporaries
) -> list[str]:
    """The instructions that combine the registers ``values`` by a binary operator."""
    each = [variable(f"value{n}", ptx_type) for n in range(len(values))]
    root = functools.reduce(lambda x, y: node(operator, ptx_type, x, y), each)
    return statements([root], dict(zip(each, values, strict=True)), [into], sm=sm, temporaries=temporaries).lines


@dataclass(frozen=True)
class _Pattern:
    """Instructions with placeholders, which ``str.format`` fills with the names of registers and, last, the guard.
    ``lines``: the PTX lines as one string; ``counts``, ``following``: the arguments of ``Temporaries.use``."""

    lines: str
    operands: tuple[str, ...]
    counts: dict[str, int]
    following: dict[str, int]


_PLACE = re.compile("\x01([0-9]+)\x02")


@functools.lru_cache(maxsize=256)
def _pattern(
    roots: tuple[Node, ...],
    leaves: tuple[Node, ...],
    held: tuple[int, ...],
    into: tuple[int | None, ...],
    sm: int,
    state: tuple[Any, ...],
    guarded: bool,
    guards_all: bool,
    contract: bool,
    fast: bool,
    version: int,
) -> _Pattern:
    """The instructions of all calls of ``statements`` that differ only in the names of registers and of the guard.
    ``leaves``: the expressions in registers; ``held``: the numbers of their placeholders; ``into``: the numbers of the
    placeholders of results; ``version``: the version of the instruction table."""

    def place(n: int) -> str:
        return f"\x01{n}\x02"

    registers = {x: place(n) for x, n in zip(leaves, held, strict=True)}
    results = [None if n is None else place(n) for n in into]
    guard = place(len({*held, *(n for n in into if n is not None)})) if guarded else ""
    temporaries = Temporaries.of(state)
    made = _Printer(contracted(roots, registers, contract), registers, results, sm, temporaries, guard, fast).run()
    if guarded and guards_all:
        made.lines[:] = [line if line.startswith(guard) else f"{guard}{line}" for line in made.lines]

    def template(text: str) -> str:
        return _PLACE.sub(r"{\1}", text.replace("{", "{{").replace("}", "}}"))

    lines, operands = template("\n".join(made.lines)), tuple(map(template, made.operands))
    return _Pattern(lines, operands, dict(temporaries.counts), temporaries.following)


def contracted(roots: Sequence[Node], registers: Mapping[Node, str], floats: bool = True) -> list[Node]:
    """The expressions with multiply-adds: fma for products of floats that only sums and differences use, mad for
    products of integers that one sum uses."""
    uses: Counter[Node] = Counter(roots)
    added: Counter[Node] = Counter()  #: uses by sums and differences
    order = ordered(roots, registers)
    for x in order:
        uses.update(x.arguments)
        if x.op in ("+", "-"):
            added.update(x.arguments)
    made: dict[Node, Node] = {}

    def product(x: Node) -> bool:
        if x.op != "*" or x in registers or uses[x] != (added[x] if type_of(x.type).floating else 1):
            return False
        return floats if type_of(x.type).floating else x.type != PRED

    def factors(x: Node) -> list[Node]:
        return [made.get(y, y) for y in x.arguments]

    for x in order:
        floating = type_of(x.type).floating
        arguments = [made.get(y, y) for y in x.arguments]
        new = node(x.op, x.type, *arguments, value=x.value) if x.arguments else x
        if x.op == "+":
            for p, other in ((0, 1), (1, 0)):
                if product(x.arguments[p]):
                    name = "fma" if floating else "mad"
                    new = node(name, x.type, *factors(x.arguments[p]), arguments[other])
                    break
        elif x.op == "-" and floating:
            if product(x.arguments[0]):
                new = node("fma", x.type, *factors(x.arguments[0]), _negated(arguments[1]))
            elif product(x.arguments[1]):
                a, b = factors(x.arguments[1])
                a, b = (a, _negated(b)) if b.op == "constant" else (_negated(a), b)
                new = node("fma", x.type, a, b, arguments[0])
        made[x] = new
    return [made.get(x, x) for x in roots]


def _negated(x: Node) -> Node:
    if x.op == "constant":
        return constant(-x.value, x.type)
    return x.arguments[0] if x.op == "neg" else node("neg", x.type, x)


def ordered(roots: Iterable[Node], registers: Mapping[Node, str]) -> list[Node]:
    """Every expression that is not in a register, arguments before the expressions that use them."""
    done: dict[Node, None] = {}
    stack = [(x, False) for x in reversed(list(roots))]
    while stack:
        x, ready = stack.pop()
        if x in done or x in registers:
            continue
        if ready or not x.arguments:
            done[x] = None
        else:
            stack.append((x, True))
            stack.extend((y, False) for y in reversed(x.arguments))
    return list(done)


def _needs_register(x: Node) -> bool:
    """True if the constant must be in a register, because no instruction takes it as an immediate."""
    return register_class(x.type) in ("b16", PRED) or type_of(x.type).values > 1


class _Printer:
    def __init__(
        self,
        roots: Sequence[Node],
        registers: Mapping[Node, str],
        results: list[str | None],
        sm: int,
        temporaries: Temporaries,
        guard: str,
        fast: bool,
    ) -> None:
        self.registers, self.results, self.sm, self.fast = registers, results, sm, fast
        self.temporaries, self.guard = temporaries, guard
        self.lines: list[str] = []
        self.values: dict[Node, str] = {}
        self.same: dict[Node, Node] = {}  #: casts without instructions, and their operands
        self.computed: list[Node] = []
        for x in ordered(roots, registers):
            if x.op == "variable":
                raise InputError(f"variable {x.value} has no register; registers must have one for each variable")
            if x.op == "constant":
                if _needs_register(x):
                    self.computed.append(x)
            elif row_of(x, sm, fast).lines:
                self.computed.append(x)
            else:
                self.same[x] = self.base(x.arguments[0])
        self.roots = [self.base(x) for x in roots]
        self.place = {x: n for n, x in enumerate(self.computed)}
        self.last: dict[Node, int] = {}  #: the place of the last use
        for n, x in enumerate(self.computed):
            for y in x.arguments:
                self.last[self.base(y)] = n

    def base(self, x: Node) -> Node:
        """The expression whose register has the value of ``x``."""
        return self.same.get(x, x)

    def direct_results(self) -> dict[Node, str]:
        """Root -> result register, for the roots whose last instruction can write that register, because nothing reads
        its old value later."""
        reads: dict[str, int] = {}
        for x, register in self.registers.items():
            if x in self.last:
                reads[register] = max(reads.get(register, -1), self.last[x])
        direct: dict[Node, str] = {}
        for x, result in zip(self.roots, self.results, strict=True):
            if not result or x not in self.place or x in direct:
                continue
            if reads.get(result, -1) > self.place[x]:
                continue
            # with a guard the register may keep its old value
            if self.guard and (x in self.last or self.roots.count(x) > 1):
                continue
            direct[x] = result
        return direct

    def run(self) -> Statements:
        t = self.temporaries
        direct = self.direct_results()
        written = {r for r in self.results if r}
        saved: dict[Node, str] = {}
        for x, result in zip(self.roots, self.results, strict=True):
            held = self.registers.get(x, "")
            if held in written and held != result and x not in saved:
                saved[x] = t.take(register_class(x.type))
                self.move(saved[x], held, x.type)
        for n, x in enumerate(self.computed):
            self.compute(n, x, direct.get(x))
        operands = []
        for x, result in zip(self.roots, self.results, strict=True):
            value = saved.get(x) or self.value(x)
            if result and direct.get(x) != result and value != result:
                self.move(result, value, x.type, self.guard)
            operands.append(result or value)
        return Statements(self.lines, operands)

    def move(self, to: str, value: str, type: str, guard: str = "") -> None:
        self.lines.append(f"{guard}mov.{register_class(type)} {to}, {value};")

    def value(self, x: Node) -> str:
        """The register or the number that has the value of an expression."""
        x = self.base(x)
        return self.registers.get(x) or self.values.get(x) or literal(x)

    def compute(self, n: int, x: Node, result: str | None) -> None:
        """Prints the instructions of one expression."""
        t = self.temporaries
        guard = self.guard if result else ""
        if x.op == "constant":
            self.values[x] = result or t.take(register_class(x.type))
            self.move(self.values[x], literal(x), x.type, guard)
            return
        row = row_of(x, self.sm, self.fast)
        names = dict(zip("abc", map(self.value, x.arguments), strict=False))
        scratch: dict[str, str] = {}
        first = x.arguments[0]
        numbers = [self.base(y).op == "constant" and self.base(y) not in self.registers for y in x.arguments]
        if all(numbers) and not _needs_register(first):  # instructions take one number, not several
            names["a"] = scratch[f"{register_class(first.type)}_number"] = t.take(register_class(first.type))
            self.move(names["a"], literal(self.base(first)), first.type)
        for name in TEMPORARY.findall(" ".join(row.lines)):
            if name not in scratch:
                scratch[name] = names[name] = t.take(name.split("_")[0])
        # the last line alone writes the result, so an operand that it reads may have the same register
        for y in dict.fromkeys(map(self.base, x.arguments)):
            if y in self.place and self.last[y] == n and y not in self.roots:
                t.give(register_class(y.type), self.values[y])
        names["d"] = self.values[x] = result or t.take(register_class(x.type))
        for m, line in enumerate(row.lines):
            prefix = guard if m == len(row.lines) - 1 else ""
            self.lines.append(f"{prefix}{line.format_map(names)};")
        for name, register in scratch.items():
            t.give(name.split("_")[0], register)


def reduced(operator: str, accumulator: Node, step: Node) -> Node:
    """The expression that combines an accumulator with a step; its value goes to the register of the accumulator.

    DtypeError: the types of step and accumulator differ."""
    if step.type != accumulator.type:
        raise DtypeError(f"the step is {step.type}; it must be {accumulator.type}, the type of the accumulator")
    return node(operator, accumulator.type, accumulator, step)
