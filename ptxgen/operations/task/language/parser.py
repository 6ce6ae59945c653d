"""Reads the text of a task: what names, ranges and statements mean, and the rules that they must keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from ptxgen.errors import TaskError
from ptxgen.expr.node import Node, constant, variable
from ptxgen.expr.value_types import PRED, type_of
from ptxgen.operations.task.assembling import (
    AGGREGATES,
    REDUCTIONS,
    RESERVED,
    ROW_REDUCTIONS,
    check_nesting,
    depends_on,
    initial_of,
    number_type,
    program_of,
    reduced,
    step_of,
    stored,
)
from ptxgen.operations.task.language.grammar import Token, Tree, placed, tree
from ptxgen.operations.task.program import (
    ACCUMULATOR,
    AXES,
    EXTENTS,
    MEAN,
    POSITIONS,
    Aggregate,
    Output,
    Program,
    RowReduce,
    Select,
    Store,
)
from ptxgen.operations.task.typed import (
    CAST_TYPES,
    FUNCTIONS,
    INPUT_TYPES,
    Number,
    Scalar,
    Value,
    binary,
    both,
    call,
    cast,
    choice,
    condition,
    unary,
)

_BINARY = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "bit_or_": "|",
    "bit_xor_": "^",
    "bit_and_": "&",
}
_ASSOCIATIVE = ("+", "*", "&", "|", "^", "max", "min", "fmax", "fmin", *POSITIONS, MEAN)
_INSTEAD = {"-": "+= -(…)", "/": "*= 1.0 / (…)", "<<": "*= …", ">>": "*= …"}
#: words of other languages for operators
_WORDS = {"sum": "+", "add": "+", "prod": "*", "product": "*", "any": "|", "all": "&", "or": "|", "and": "&"}
#: what a list has besides add -> what it would compute
LATER = {
    "add_distinct": "a list without duplicates",
    "top": "a list of the n largest",
}


def input_ranks(text: str) -> dict[str, int]:
    """The arrays and scalars of a text, in the order of the text, and their numbers of axes; 0: a scalar."""
    return dict(_ranks(text))


def parse(text: str, dtypes: Mapping[str, str] | None = None) -> Program:
    """The program of a text. ``dtypes``: of arrays and scalars that the text does not declare; ``float`` and ``int``
    are Python numbers, which take the type of what they are combined with. TaskError: a rule is broken; the message
    has line, column and a caret."""
    return _parsed(text, tuple(sorted((dtypes or {}).items())))


@lru_cache(maxsize=256)
def _ranks(text: str) -> dict[str, int]:
    return _Reader(text, {}).ranks()


@lru_cache(maxsize=256)
def _parsed(text: str, dtypes: tuple[tuple[str, str], ...]) -> Program:
    given = dict(dtypes)
    numbers = {name: kind for name, kind in given.items() if kind in ("float", "int")}
    if numbers:
        first = _Reader(text, given)
        first.program()
        given |= {name: number_type(kind, first.wanted.get(name, ())) for name, kind in numbers.items()}
    return _Reader(text, given).program()


def _tokens(x: Tree[Token]) -> list[str]:
    return [str(t) for t in x.scan_values(lambda v: isinstance(v, Token))]


def _inner(x: Any) -> Any:
    """The expression without parentheses around it."""
    while x.data == "group":
        x = x.children[0]
    return x


def _same(a: Any, b: Any) -> bool:
    """True if a name, or an element, is written twice."""
    b = _inner(b)
    return a.data == b.data and a.data in ("name", "index") and _tokens(a) == _tokens(b)


class _Reader:
    """Reads one text. ``wanted``: the types that Python numbers are combined with."""

    def __init__(self, text: str, dtypes: Mapping[str, str]) -> None:
        self.text = text
        *declarations, where = tree(text).children
        self.declarations: list[Any] = declarations
        self.where: Any = where
        self.given = dtypes
        self.declared: dict[str, str] = {}
        self.shapes: dict[str, tuple[str, ...]] = {}
        self.uses: dict[str, dict[tuple[str, ...], Any]] = {}
        self.wanted: dict[str, set[str]] = {}
        self.axes: dict[str, str] = {}
        self.extents: dict[str, str] = {}
        self.bounds: list[Any] = [None, None, None]
        self.definitions: dict[str, Value] = {}
        self.ended: dict[str, str] = {}
        self.used: set[str] = set()
        self.defined: dict[str, Any] = {}
        self.outputs: dict[str, Output] = {}
        self.place = "when"  # when, before, reduce or after

    # ---- errors

    def fail(self, at: Any, message: str) -> TaskError:
        """The error of a token or a part of the tree."""
        if isinstance(at, Token):
            return placed(self.text, message, at.line or 1, at.column or 1, len(at))
        meta = at.meta
        if meta.empty:
            return placed(self.text, message, 1, 1)
        length = meta.end_column - meta.column if meta.end_line == meta.line else 120
        return placed(self.text, message, meta.line, meta.column, length)

    @contextmanager
    def at(self, where: Any) -> Iterator[None]:
        """Errors without a place are of this one."""
        try:
            yield
        except TaskError as error:
            if error.line:
                raise
            raise self.fail(where, str(error)) from None

    def near(self, name: str, known: Iterable[str]) -> str:
        found = get_close_matches(name, list(dict.fromkeys(known)), 1, 0.6)
        return found[0] if found else ""

    # ---- the parts of the text

    def program(self) -> Program:
        ranges, when, *statements = self.where.children
        reductions = [x for x in statements if x.data == "reduce"]
        if not reductions:
            raise self.fail(self.where, "the task has no reduction; it must have reduce (k in [0, K]) { … }")
        if len(reductions) > 1:
            raise self.fail(reductions[1].children[0], "the task has a second reduction; it must have one")
        self.read_ranges(ranges, reductions[0])
        self.accumulator = self.find_accumulator(reductions[0])
        self.find_outputs(statements)
        self.read_declarations()
        condition_ = None
        if when is not None:
            with self.at(when):
                condition_ = check_nesting(condition(self.value(when), "the condition of when"))
        self.place = "before"
        initial: tuple[Value, Any] | None = None
        seen = False
        for x in statements:
            if x.data == "reduce":
                self.read_reduction(x, initial)
                seen = True
            elif x.data == "listed" or x.children[0].data == "index":
                target = x.children[1] if x.data == "listed" else x.children[0]
                if not seen:
                    raise self.fail(target, "an output is before the reduction; it must be after it")
                self.read_output(x)
            elif not seen and str(x.children[0].children[0]) == self.accumulator:
                if self.augmented(x):
                    raise self.fail(x.children[1], f"{self.accumulator} has no value yet; write =")
                initial = self.value(x.children[-1]), x.children[-1]
            elif seen and self.outputs:
                raise self.fail(x, "a definition is after an output; it must be before it")
            else:
                self.define(x)
        if not self.outputs:
            raise placed(
                self.text,
                f"the task has no output; write C[i, j] = {self.accumulator}; here",
                self.where.meta.end_line,
                self.where.meta.end_column - 1,
            )
        self.check_unused()
        self.check_bounds()
        with self.at(when or self.where):
            return program_of(
                self.step, self.reduction, self.type, tuple(self.outputs.values()), self.initial, condition_
            )

    def read_ranges(self, ranges: Any, reduction: Any) -> None:
        spatial, inner = ranges.children, reduction.children[0].children
        if len(spatial) != 2:
            at, number = (spatial[2] if len(spatial) > 2 else spatial[0]), len(spatial)
            raise self.fail(
                at,
                f"the number of spatial axes is {number}; it must be 2: (i in [0, M], j in [0, N])",
            )
        if len(inner) != 1:
            raise self.fail(inner[1], f"the number of reduced axes is {len(inner)}; it must be 1: (k in [0, K])")
        for n, range in enumerate((*spatial, *inner)):
            name, lower, upper = range.children
            self.check_name(name)
            if name in self.axes:
                raise self.fail(name, f"{name} is an axis already; each of the three axes must have another name")
            self.axes[str(name)] = AXES[n]
            if lower is None:
                self.extents.setdefault(EXTENTS[n], EXTENTS[n])
                continue
            if lower.data != "number" or str(lower.children[0]) != "0":
                raise self.fail(lower, f"the range of {name} begins at another number than 0; it must begin at 0")
            if upper.data != "name":
                raise self.fail(
                    upper,
                    f"the end of the range of {name} must be a name, which arrays give a value: write {EXTENTS[n]}",
                )
            self.bounds[n] = upper.children[0]
            self.extents.setdefault(str(upper.children[0]), EXTENTS[n])

    def check_name(self, name: Token) -> None:
        if name in RESERVED - {*AXES, *EXTENTS, ACCUMULATOR}:
            raise self.fail(name, f"{name} is a word of the language; it must be another name")

    def find_accumulator(self, reduction: Any) -> str:
        body = reduction.children[1:]
        last = body[-1] if body else None
        if last is None or last.data != "assign" or last.children[0].data != "name":
            raise self.fail(
                last if last is not None else reduction, "the last statement of reduce must be a reduction: accum += …;"
            )
        name = last.children[0].children[0]
        self.check_name(name)
        if name in self.axes:
            raise self.fail(name, f"{name} is an axis; the accumulator must have another name")
        return str(name)

    def find_outputs(self, statements: list[Any]) -> None:
        self.output_names = set()
        for x in statements:
            if x.data == "listed" or (x.data == "assign" and x.children[0].data == "index"):
                target = x.children[1] if x.data == "listed" else x.children[0]
                self.output_names.add(str(target.children[0]))

    def read_declarations(self) -> None:
        for x in self.declarations:
            name, type, axes = x.children
            names = axes.children if axes is not None else []
            if name in self.declared:
                raise self.fail(name, f"{name} is declared twice; it must be declared once")
            if type not in CAST_TYPES:
                near = self.near(type, CAST_TYPES)
                raise self.fail(
                    type,
                    f"{type} is no type; it must be one of {', '.join(INPUT_TYPES)}{_instead(near)}",
                )
            if name == self.accumulator:
                if axes is not None:
                    raise self.fail(axes, f"the accumulator is declared with axes; write {name}: {type};")
            else:
                self.check_input(name, str(type), type)
            for axis in names:
                self.axis(axis, names)
            if len(names) > 2:
                raise self.fail(
                    names[2], f"{name} is declared with {len(names)} axes; it must have one or two of the three"
                )
            self.declared[str(name)] = str(type)
            self.shapes[str(name)] = tuple(self.axes[str(a)] for a in names)

    def check_input(self, name: Token, type: str, at: Any) -> None:
        self.check_name(name)
        if name in self.axes or name in (*AXES, ACCUMULATOR):
            raise self.fail(
                name, f"{name} is the name of an axis or of the accumulator; the input must have another name"
            )
        if type not in INPUT_TYPES:
            raise self.fail(at, f"{name} is {type}; it must be one of {', '.join(INPUT_TYPES)}")

    def axis(self, token: Any, others: Iterable[Any] = ()) -> str:
        """The axis of an index. TaskError: it is none, or is among the others."""
        if token not in self.axes:
            near = self.near(token, self.axes)
            raise self.fail(token, f"{token} is no axis; it must be {', '.join(self.axes)}{_instead(near)}")
        if sum(x == token for x in others) > 1:
            raise self.fail(token, f"the axis {token} is written twice; each axis must be written once")
        return self.axes[str(token)]

    # ---- statements

    def augmented(self, x: Any) -> str:
        """The operator of an assignment, empty: none."""
        _, *middle, _ = x.children
        if len(middle) == 1:
            return str(middle[0]).removesuffix("=")
        word = middle[0]
        if word is None:
            return ""
        if word not in ROW_REDUCTIONS and word not in REDUCTIONS:
            near = _WORDS.get(str(word)) or self.near(word, ROW_REDUCTIONS)
            raise self.fail(
                word,
                f"{word} is no reduction; it must be one of {', '.join(ROW_REDUCTIONS)}{_instead(near and f'{near}=')}",
            )
        return str(word)

    def define(self, x: Any) -> None:
        """``name = expr``, or ``name op= expr`` of a name that has a value."""
        name, op = x.children[0].children[0], self.augmented(x)
        self.check_name(name)
        if name in self.axes:
            raise self.fail(name, f"{name} is an axis; a definition must have another name")
        if name in self.output_names:
            raise self.fail(name, f"{name} is an output; a definition must have another name")
        value = self.value(x.children[-1])
        if op:
            with self.at(x):
                old = self.named(name)
                value = call(op, (old, value)) if op in FUNCTIONS else binary(op, old, value)
        if isinstance(value, Node):
            with self.at(x):
                check_nesting(value)
        self.definitions[str(name)] = value
        self.defined[str(name)] = name

    def read_reduction(self, x: Any, initial: tuple[Value, Any] | None) -> None:
        self.place = "reduce"
        outer = dict(self.definitions)
        _, *body = x.children
        for y in body[:-1]:
            if y.data != "assign" or y.children[0].data != "name":
                raise self.fail(y, "an output, or a reduction, is in reduce; it must be after it")
            name = y.children[0].children[0]
            if name == self.accumulator or (self.augmented(y) and name not in self.definitions):
                raise self.fail(
                    name, f"{name} is reduced before the last statement of reduce; it must be reduced in the last one"
                )
            self.define(y)
        if self.accumulator in self.definitions:
            raise self.fail(
                body[-1],
                f"{self.accumulator} is a definition; the last statement of reduce must be a reduction: accum += …;",
            )
        self.reduction, step, at = self.split(body[-1], f"{self.accumulator} += …")
        declared = self.declared.get(self.accumulator)
        if declared is None:
            declared = self.given.get(self.accumulator)
        value = self.pair(step) if self.reduction in POSITIONS else self.value(step)
        with self.at(at):
            self.step, self.type = step_of(self.reduction, value, declared)
        self.initial: Node | None = None
        if initial is not None:
            with self.at(initial[1]):
                self.initial = initial_of(self.reduction, initial[0], self.type)
        self.ended = {name: "reduce" for name in self.definitions if self.definitions[name] is not outer.get(name)}
        self.definitions = {name: value for name, value in outer.items() if name not in self.ended}
        self.definitions[self.accumulator] = variable(ACCUMULATOR, self.type)
        self.used.add(self.accumulator)
        self.place = "after"

    def pair(self, x: Any) -> Value:
        """The value of ``(value, k)``, or of a value alone."""
        if x.data != "pair":
            return self.value(x)
        value, index = x.children
        if index.data != "name" or self.axes.get(str(index.children[0])) != "k":
            reduced = next(name for name, axis in self.axes.items() if axis == "k")
            raise self.fail(index, f"the second of the pair is not the reduced axis; write {reduced}")
        return self.value(value)

    def split(self, x: Any, pattern: str) -> tuple[str, Any, Any]:
        """The operator and the operand of a reduction: ``target op= operand``, or ``target = op(target, operand)``."""
        target, value = x.children[0], x.children[-1]
        op = self.augmented(x)
        name = "".join(_tokens(target)) if target.data == "name" else f"{target.children[0]}[…]"
        if op:
            at = x.children[1]
        else:
            op, operand, at = self.repeated(target, value, pattern)
            value = operand
        if op not in _ASSOCIATIVE and op != "logsumexp":
            raise self.fail(
                at, f"`{op}` is not associative, so its order would matter; write {name} {_INSTEAD.get(op, '+= …')}"
            )
        return op, value, at

    def repeated(self, target: Any, value: Any, pattern: str) -> tuple[str, Any, Any]:
        """The operator of ``target = target op operand`` or ``target = op(target, operand)``, and the operand."""
        x = _inner(value)
        if x.data in _BINARY or x.data == "shifted":
            op = _BINARY.get(x.data) or str(x.children[1])
            left, right = x.children[0], x.children[-1]
            if _same(target, left):
                return op, right, x
            if _same(target, right):
                if op in _ASSOCIATIVE:
                    return op, left, x
                raise self.fail(x, f"`{op}` is not associative, so its order would matter; write {pattern}")
        if x.data in ("or_", "and_") and any(_same(target, y) for y in x.children):
            raise self.fail(x, f"`{x.data[:-1]}` is no reduction; write {'|=' if x.data == 'or_' else '&='}")
        if x.data == "call":
            name, arguments = x.children[0], x.children[1].children
            if name in ROW_REDUCTIONS + REDUCTIONS and len(arguments) == 2:
                for mine, other in ((0, 1), (1, 0)):
                    if _same(target, arguments[mine]):
                        return str(name), arguments[other], name
        raise self.fail(value, f"the statement is no reduction; write {pattern}, or = max(…, …)")

    def read_output(self, x: Any) -> None:
        if x.data == "listed":
            self.read_list(x)
            return
        target = x.children[0]
        name, indices = target.children[0], [y for y in target.children[1].children if y is not None]
        self.check_output(name)
        if len(indices) == 1:
            self.row_reduction(x, name, indices[0])
        elif len(indices) == 2:
            plain = [y.data == "name" for y in indices]
            if all(plain):
                self.store(x, name, [y.children[0] for y in indices])
            else:
                self.aggregate(x, name, indices)
        else:
            raise self.fail(target, f"{name} has {len(indices)} axes; an output must have two, or one if it is reduced")

    def check_output(self, name: Token) -> None:
        self.check_name(name)
        if name in self.axes or name == self.accumulator:
            raise self.fail(name, f"{name} is an axis or the accumulator; the output must have another name")
        if name in self.outputs:
            raise self.fail(name, f"{name} is the output of another statement; each output must have another name")
        if name in self.uses or name in self.declared:
            raise self.fail(name, f"{name} is an input; the output must have another name")

    def store(self, x: Any, name: Token, indices: list[Token]) -> None:
        axes = tuple(self.axis(y, indices) for y in indices)
        if "k" in axes:
            raise self.fail(
                indices[axes.index("k")],
                f"{name} has the reduced axis; an output must have both spatial axes: write {name}[{self.spatial()}]",
            )
        if op := self.augmented(x):
            raise self.fail(x.children[1], f"{op}= reduces, and each ({self.spatial()}) has one value; write =")
        value = self.value(x.children[-1])
        with self.at(x.children[-1]):
            self.outputs[str(name)] = Store(str(name), stored(value), axes)  # type: ignore[arg-type]

    def spatial(self) -> str:
        return ", ".join(name for name, axis in self.axes.items() if axis != "k")

    def aggregate(self, x: Any, name: Token, indices: list[Any]) -> None:
        keys = [self.key(y) for y in indices]
        for axis in ("i", "j"):
            if not any(depends_on(axis, key) for key in keys):
                missing = next(a for a, b in self.axes.items() if b == axis)
                raise self.fail(
                    x.children[0], f"{name} has no key of the axis {missing}; an output must have both spatial axes"
                )
        op, value, at = self.split(x, f"{name}[…] += …")
        if op not in AGGREGATES:
            raise self.fail(at, f"groups are not reduced by {op}; it must be one of {', '.join(AGGREGATES)}")
        found = self.value(value)
        with self.at(value):
            self.outputs[str(name)] = Aggregate(str(name), reduced(op, found), keys[0], keys[1], op)

    def key(self, x: Any) -> Node:
        """A key of an aggregate: an index, or an element of an array with one axis."""
        if x.data == "name" and x.children[0] in self.axes:
            self.axis(x.children[0])
        elif x.data != "index" or len(x.children[1].children) != 1:
            raise self.fail(
                x, "the key is an expression; it must be an axis, or an element of an array with one axis: g[i]"
            )
        found = self.value(x)
        assert isinstance(found, Node)
        if not type_of(found.type).integer:
            raise self.fail(x, f"the key is {found.type}; it must be an integer: convert the array before the call")
        return found

    def row_reduction(self, x: Any, name: Token, index: Any) -> None:
        if index.data != "name":
            raise self.fail(
                index, f"{name} has one key; an output must have both spatial axes: write {name}[g[i], h[j]] += …"
            )
        axis = self.axis(index.children[0])
        if axis == "k":
            raise self.fail(index, f"{name} has the reduced axis; it must have a spatial axis: write {name}[i] += …")
        op, value, at = self.split(x, f"{name}[{index.children[0]}] += …")
        if op not in ROW_REDUCTIONS:
            raise self.fail(at, f"rows are not reduced by {op}; it must be one of {', '.join(ROW_REDUCTIONS)}")
        found = self.value(value)
        with self.at(value):
            self.outputs[str(name)] = RowReduce(str(name), reduced(op, found), axis, op)

    def read_list(self, x: Any) -> None:
        test, target, method, arguments = x.children
        name = target.children[0]
        heap = str(name).partition("_heap_")
        if method in LATER or (heap[0] in ("min", "max") and heap[2].isdigit()):
            what = LATER.get(str(method)) or f"a list of the {'largest' if heap[0] == 'min' else 'smallest'} {heap[2]}"
            raise self.fail(method, f"{what} is not supported yet; write condition ? {name}.add({self.accumulator})")
        if method != "add":
            raise self.fail(method, f"{method} is no method of a list; write add")
        if target.data == "index":
            raise self.fail(target, f"the list has axes; write {name}.add(…)")
        self.check_output(name)
        values = [y for y in arguments.children if y is not None]
        if not values:
            raise self.fail(method, f"the list has no values; write {name}.add({self.accumulator}, {self.spatial()})")
        found = constant(True, PRED)
        if test is not None:
            with self.at(test):
                found = check_nesting(condition(self.value(test)))
        nodes = []
        for y in values:
            value = self.value(y)
            with self.at(y):
                nodes.append(stored(value))
        self.outputs[str(name)] = Select(str(name), nodes[0], found, tuple(nodes))

    # ---- expressions

    def value(self, x: Any) -> Value:
        with self.at(x):
            read: Callable[[Any], Value] = getattr(self, f"read_{x.data}", self.operator)
            return read(x)

    def operator(self, x: Any) -> Value:
        a, b = (self.value(y) for y in x.children)
        return binary(_BINARY[x.data], a, b)

    def read_group(self, x: Any) -> Value:
        return self.value(x.children[0])

    def read_pair(self, x: Any) -> Value:
        raise self.fail(x, "a pair is no value; only argmin and argmax have a pair, (value, k)")

    def read_choice(self, x: Any) -> Value:
        test, yes, no = (self.value(y) for y in x.children)
        return choice(test, yes, no)

    def read_or_(self, x: Any) -> Value:
        return both("|", *(self.value(y) for y in x.children))

    def read_and_(self, x: Any) -> Value:
        return both("&", *(self.value(y) for y in x.children))

    def read_not_(self, x: Any) -> Value:
        return unary("not", self.value(x.children[0]))

    def read_compare(self, x: Any) -> Value:
        left, op, right = x.children
        if left.data == "compare":
            raise self.fail(op, f"comparisons are chained; write a {left.children[1]} b and b {op} c")
        return binary(str(op), self.value(left), self.value(right))

    def read_shifted(self, x: Any) -> Value:
        left, op, right = x.children
        return binary(str(op), self.value(left), self.value(right))

    def read_negative(self, x: Any) -> Value:
        return unary("neg", self.value(x.children[0]))

    def read_complement(self, x: Any) -> Value:
        return unary("~", self.value(x.children[0]))

    def read_number(self, x: Any) -> Value:
        text = str(x.children[0])
        if text[:2] in ("0x", "0X"):
            found: int | float = int(text, 16)
        elif text.isdigit():
            found = int(text) if len(text) <= 20 else 1 << 64
        else:
            return Number(float(text))
        if found >= 1 << 64:
            raise self.fail(x, "the integer has more than 64 bits; write a float, with a point")
        return Number(found)

    def read_infinity(self, x: Any) -> Value:
        return Number(float("inf"))

    def read_nan(self, x: Any) -> Value:
        return Number(float("nan"))

    def read_true(self, x: Any) -> Value:
        return constant(True, PRED)

    def read_false(self, x: Any) -> Value:
        return constant(False, PRED)

    def read_call(self, x: Any) -> Value:
        name, arguments = x.children[0], [y for y in x.children[1].children if y is not None]
        if name in CAST_TYPES:
            if len(arguments) != 1:
                raise self.fail(name, f"the cast {name} has {len(arguments)} arguments; it must have one")
            return cast(self.value(arguments[0]), str(name))
        if name not in FUNCTIONS:
            near = self.near(name, (*FUNCTIONS, *CAST_TYPES))
            raise self.fail(
                name,
                f"{name} is no function; it must be one of {', '.join(FUNCTIONS)}, or a type{_instead(near)}",
            )
        return call(str(name), tuple(self.value(y) for y in arguments))

    def read_name(self, x: Any) -> Value:
        return self.named(x.children[0])

    def named(self, token: Token) -> Value:
        name = str(token)
        if name in self.definitions:
            self.used.add(name)
            return self.definitions[name]
        if name == self.accumulator:
            raise self.fail(token, self.early(name))
        if name in self.ended:
            raise self.fail(
                token,
                f"{name} is defined in reduce, where it changes with the reduced axis; it has no value after reduce",
            )
        if name in self.axes:
            axis = self.axes[name]
            if axis == "k" and self.place != "reduce":
                raise self.fail(token, f"{name} is the reduced axis; it must be read in reduce")
            return variable(axis, "s32")
        if name in self.extents:
            return variable(self.extents[name], "s32")
        return self.input(token, (), token)

    def early(self, name: str) -> str:
        if self.place == "when":
            return (
                f"{name} is reduced for the pairs that when selects; when must not read it: write condition ? L.add(…)"
            )
        if self.place == "reduce":
            return f"{name} is read in reduce, before it is complete; it must be read after reduce"
        return f"{name} is read before it is reduced; it must be read after reduce"

    def read_index(self, x: Any) -> Value:
        name, arguments = x.children
        indices = [y for y in arguments.children if y is not None]
        for y in indices:
            if y.data == "index":
                raise self.fail(
                    y,
                    f"the index is an element of an array; it must be an axis: gather rows of {name} before the call",
                )
            if y.data != "name":
                raise self.fail(y, f"the index is an expression; it must be an axis: {', '.join(self.axes)}")
        tokens = [y.children[0] for y in indices]
        if not tokens:
            raise self.fail(x, f"{name} has no index; it must have one or two axes: write {name}[i, k]")
        axes = tuple(self.axis(y, tokens) for y in tokens)
        if len(axes) > 2:
            raise self.fail(tokens[2], f"{name} has {len(axes)} axes; it must have one or two of the three")
        if "k" in axes and self.place != "reduce":
            raise self.fail(x, f"{name} has the reduced axis {tokens[axes.index('k')]}; it must be read in reduce")
        return self.input(name, axes, x)

    def input(self, token: Token, axes: tuple[str, ...], at: Any) -> Value:
        """An element of an array, or a scalar."""
        name = str(token)
        type = self.declared.get(name) or self.given.get(name)
        self.check_name(token)
        if name == self.accumulator:
            raise self.fail(token, f"{name} is the accumulator; the array must have another name")
        if name in (*AXES, ACCUMULATOR) or (not axes and name in EXTENTS):
            raise self.fail(token, f"{name} is a word of the language; the input must have another name")
        if name in self.output_names:
            raise self.fail(token, f"{name} is an output and has no value to read; the input must have another name")
        if type is None:
            raise self.fail(token, self.unknown(name, axes))
        declared = self.shapes.get(name)
        if declared is not None and len(declared) != len(axes):
            raise self.fail(
                at,
                f"{name} is declared with {_count(len(declared))}; it must not be read with {_count(len(axes))}",
            )
        uses = self.uses.setdefault(name, {})
        other = next(iter(uses), axes)
        if len(other) != len(axes):
            raise self.fail(
                at, f"{name} is read with {_count(len(other))} before; it must not be read with {_count(len(axes))}"
            )
        uses.setdefault(axes, at)
        if type in ("float", "int"):
            if axes:
                raise self.fail(at, f"{name} is a number; it must be an array")
            return Scalar(name, lambda wanted: self.number(name, wanted))
        self.check_input(token, type, token)
        return variable(f"{name}[{','.join(axes)}]" if axes else name, type)

    def number(self, name: str, wanted: str | None) -> Node:
        """A Python number in the type of what it is combined with."""
        kind = self.given[name]
        if wanted is not None:
            self.wanted.setdefault(name, set()).add(wanted)
        if wanted is None or (kind == "float" and not type_of(wanted).floating):
            wanted = number_type(kind, ())
        return variable(name, wanted)

    def unknown(self, name: str, axes: tuple[str, ...]) -> str:
        known = [*self.definitions, *self.axes, *self.extents, *self.declared, *self.given, self.accumulator]
        near = self.near(name, (x for x in known if x != name))
        written = f"[{', '.join(axes)}]" if axes else ""
        declaration = f"declare {name}: f32{written}; before where"
        return f"{name} is unknown; {f'write {near}, or ' if near else ''}{declaration}"

    # ---- checks of the whole

    def check_unused(self) -> None:
        for name, at in self.defined.items():
            if name not in self.used:
                near = self.near(name, (self.accumulator, *self.uses))
                raise self.fail(at, f"{name} is defined and not used; {f'write {near}, or ' if near else ''}remove it")
        for x in self.declarations:
            name = x.children[0]
            axes = self.shapes[str(name)]
            if name == self.accumulator:
                continue
            uses = self.uses.get(str(name))
            if uses is None:
                near = self.near(name, (n for n in self.uses if n not in self.declared))
                raise self.fail(
                    name, f"{name} is declared and not read; {f'write {near}, or ' if near else ''}remove it"
                )
            if axes not in uses:
                written = {b: a for a, b in self.axes.items()}
                read = ", ".join(f"{name}[{', '.join(written[a] for a in use)}]" for use in uses)
                raise self.fail(x.children[2], f"{name} is read as {read}; it must be declared with the same axes")

    def check_bounds(self) -> None:
        """Axes of one bound must be one axis of some array; nothing else compares their extents."""
        groups = {axis: {axis} for axis in AXES}
        for uses in self.uses.values():
            for others in zip(*uses, strict=True):
                together = set().union(*(groups[a] for a in others))
                groups |= dict.fromkeys(together, together)
        for n, token in enumerate(self.bounds):
            for m, other in enumerate(self.bounds[:n]):
                if token is not None and token == other and AXES[m] not in groups[AXES[n]]:
                    raise self.fail(
                        token,
                        f"{token} is the bound of two axes, and no array compares their extents; write another name",
                    )

    # ---- names of inputs

    def ranks(self) -> dict[str, int]:
        """Arrays and scalars that the text reads, with their numbers of axes."""
        ranges, _, *statements = self.where.children
        reductions = [x for x in statements if x.data == "reduce"]
        own = {str(x.children[0]) for r in (ranges, *(r.children[0] for r in reductions)) for x in r.children}
        for r in (ranges, *(r.children[0] for r in reductions)):
            own |= {
                str(x.children[2].children[0])
                for x in r.children
                if x.children[2] is not None and x.children[2].data == "name"
            }
        own |= set(EXTENTS)
        targets = set()
        for x in self.where.iter_subtrees():
            if x.data == "assign" and x.children[0].data == "name":
                own.add(str(x.children[0].children[0]))
            elif x.data in ("assign", "listed"):
                targets.add(id(x.children[x.data == "listed"]))
        declared = [str(x.children[0]) for x in self.declarations]
        found: dict[str, tuple[int, int]] = {}
        for x in self.where.iter_subtrees_topdown():
            if id(x) in targets or x.data not in ("name", "index") or (x.data == "name" and str(x.children[0]) in own):
                continue
            rank = len([y for y in x.children[1].children if y is not None]) if x.data == "index" else 0
            found.setdefault(str(x.children[0]), (x.children[0].start_pos, rank))
        ordered = sorted(
            found, key=lambda name: (declared.index(name) if name in declared else len(declared), found[name][0])
        )
        return {name: found[name][1] for name in ordered}


def _instead(name: str) -> str:
    return f": write {name}" if name else ""


def _count(axes: int) -> str:
    return {0: "no axis", 1: "one axis"}.get(axes, f"{axes} axes")
