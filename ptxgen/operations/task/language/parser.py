"""Reads the text of a task: interprets names, ranges and statements, and checks their rules."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ptxgen.expr.node import Node, constant, variable
from ptxgen.expr.value_types import PRED, type_of
from ptxgen.operations.task.assembling import (
    AGGREGATES,
    REDUCTIONS,
    ROW_REDUCTIONS,
    check_nesting,
    depends_on,
    initial_of,
    number_type,
    program_of,
    reduced,
    step_of,
    stored,
    top_count,
)
from ptxgen.operations.task.language.expressions import BINARY, Expressions
from ptxgen.operations.task.language.grammar import Token, Tree, placed, tree
from ptxgen.operations.task.language.scope import Scope, instead
from ptxgen.operations.task.program import (
    ACCUMULATOR,
    AXES,
    EXTENTS,
    MEAN,
    POSITIONS,
    Aggregate,
    Distinct,
    Output,
    Program,
    RowReduce,
    Scatter,
    Select,
    Store,
    Top,
)
from ptxgen.operations.task.typed import (
    CAST_TYPES,
    FUNCTIONS,
    INPUT_TYPES,
    Value,
    binary,
    call,
    condition,
)

_ASSOCIATIVE = ("+", "*", "&", "|", "^", "max", "min", "fmax", "fmin", *POSITIONS, MEAN)
_INSTEAD = {"-": "+= -(…)", "/": "*= 1.0 / (…)", "<<": "*= …", ">>": "*= …"}
#: word of other languages -> operator
_WORDS = {"sum": "+", "add": "+", "prod": "*", "product": "*", "any": "|", "all": "&", "or": "|", "and": "&"}
#: method of lists that does not exist yet -> what it would compute
LATER = {
    "add_distinct": "a list without duplicates",
}
#: method of a list of the n best values -> True if these are the greatest
TOP = {"top": True, "bottom": False}


def input_ranks(text: str) -> dict[str, int]:
    """Array or scalar of a text, in the order of the text -> its number of axes; 0: a scalar."""
    return dict(_ranks(text))


def parse(text: str, dtypes: Mapping[str, str] | None = None) -> Program:
    """The program of a text. ``dtypes``: the types of arrays and scalars that the text does not declare; "float" and
    "int" are Python numbers, which get the type of the values with which they are combined. TaskError: the text breaks
    a rule; the message has the line, the column and a caret."""
    return _parsed(text, tuple(sorted((dtypes or {}).items())))


@lru_cache(maxsize=256)
def _ranks(text: str) -> dict[str, int]:
    return _Reader(text, {}).ranks()


@lru_cache(maxsize=256)
def _parsed(text: str, dtypes: tuple[tuple[str, str], ...]) -> Program:
    given = dict(dtypes)
    numbers = {name: number for name, number in given.items() if number in ("float", "int")}
    if numbers:
        first = _Reader(text, given)
        first.program()
        given |= {name: number_type(number, first.scope.wanted.get(name, ())) for name, number in numbers.items()}
    return _Reader(text, given).program()


def _tokens(x: Tree[Token]) -> list[str]:
    return [str(t) for t in x.scan_values(lambda v: isinstance(v, Token))]


def _inner(x: Any) -> Any:
    """The expression without parentheses around it."""
    while x.data == "group":
        x = x.children[0]
    return x


def _same(a: Any, b: Any) -> bool:
    """True if two parts of the tree are the same name, or the same element."""
    b = _inner(b)
    return a.data == b.data and a.data in ("name", "index") and _tokens(a) == _tokens(b)


class _Reader:
    """Reads one text into a program."""

    def __init__(self, text: str, dtypes: Mapping[str, str]) -> None:
        *declarations, where = tree(text).children
        self.declarations: list[Any] = declarations
        self.where: Any = where
        self.scope = Scope(text, dtypes)
        self.value = Expressions(self.scope).value
        self.bounds: list[Any] = [None, None, None]
        self.defined: dict[str, Any] = {}
        self.outputs: dict[str, Output] = {}

    def program(self) -> Program:
        ranges, when, *statements = self.where.children
        reductions = [x for x in statements if x.data == "reduce"]
        if not reductions:
            raise self.scope.fail(self.where, "the task has no reduction; it must have reduce (k in [0, K]) { … }")
        if len(reductions) > 1:
            raise self.scope.fail(reductions[1].children[0], "the task has a second reduction; it must have one")
        self.read_ranges(ranges, reductions[0])
        self.scope.accumulator = self.find_accumulator(reductions[0])
        self.find_outputs(statements)
        self.read_declarations()
        condition_ = None
        if when is not None:
            with self.scope.at(when):
                condition_ = check_nesting(condition(self.value(when), "the condition of when"))
        self.scope.place = "before"
        initial: tuple[Value, Any] | None = None
        seen = False
        for x in statements:
            if x.data == "reduce":
                self.read_reduction(x, initial)
                seen = True
            elif x.data == "listed" or x.children[0].data == "index":
                target = x.children[1] if x.data == "listed" else x.children[0]
                if not seen:
                    raise self.scope.fail(target, "an output is before the reduction; it must be after it")
                self.read_output(x)
            elif not seen and str(x.children[0].children[0]) == self.scope.accumulator:
                if self.augmented(x):
                    raise self.scope.fail(x.children[1], f"{self.scope.accumulator} has no value yet; write =")
                initial = self.value(x.children[-1]), x.children[-1]
            elif seen and self.outputs:
                raise self.scope.fail(x, "a definition is after an output; it must be before it")
            else:
                self.define(x)
        if not self.outputs:
            raise placed(
                self.scope.text,
                f"the task has no output; write C[i, j] = {self.scope.accumulator}; here",
                self.where.meta.end_line,
                self.where.meta.end_column - 1,
            )
        self.check_unused()
        self.check_bounds()
        with self.scope.at(when or self.where):
            return program_of(
                self.step, self.reduction, self.type, tuple(self.outputs.values()), self.initial, condition_
            )

    def read_ranges(self, ranges: Any, reduction: Any) -> None:
        spatial, inner = ranges.children, reduction.children[0].children
        if len(spatial) != 2:
            at, number = (spatial[2] if len(spatial) > 2 else spatial[0]), len(spatial)
            raise self.scope.fail(
                at,
                f"the number of spatial axes is {number}; it must be 2: (i in [0, M], j in [0, N])",
            )
        if len(inner) != 1:
            raise self.scope.fail(inner[1], f"the number of reduced axes is {len(inner)}; it must be 1: (k in [0, K])")
        for n, range in enumerate((*spatial, *inner)):
            name, lower, upper = range.children
            self.scope.check_name(name)
            if name in self.scope.axes:
                raise self.scope.fail(name, f"{name} is an axis already; each of the three axes must have another name")
            self.scope.axes[str(name)] = AXES[n]
            if lower is None:
                self.scope.extents.setdefault(EXTENTS[n], EXTENTS[n])
                continue
            if lower.data != "number" or str(lower.children[0]) != "0":
                raise self.scope.fail(lower, f"the range of {name} begins at another number than 0; it must begin at 0")
            if upper.data != "name":
                raise self.scope.fail(
                    upper,
                    f"the end of the range of {name} must be a name, which arrays give a value: write {EXTENTS[n]}",
                )
            self.bounds[n] = upper.children[0]
            self.scope.extents.setdefault(str(upper.children[0]), EXTENTS[n])

    def find_accumulator(self, reduction: Any) -> str:
        body = reduction.children[1:]
        last = body[-1] if body else None
        if last is None or last.data != "assign" or last.children[0].data != "name":
            raise self.scope.fail(
                last if last is not None else reduction, "the last statement of reduce must be a reduction: accum += …;"
            )
        name = last.children[0].children[0]
        self.scope.check_name(name)
        if name in self.scope.axes:
            raise self.scope.fail(name, f"{name} is an axis; the accumulator must have another name")
        return str(name)

    def find_outputs(self, statements: list[Any]) -> None:
        for x in statements:
            if x.data == "listed" or (x.data == "assign" and x.children[0].data == "index"):
                target = x.children[1] if x.data == "listed" else x.children[0]
                self.scope.output_names.add(str(target.children[0]))

    def read_declarations(self) -> None:
        for x in self.declarations:
            name, type, axes = x.children
            names = axes.children if axes is not None else []
            if name in self.scope.declared:
                raise self.scope.fail(name, f"{name} is declared twice; it must be declared once")
            if type not in CAST_TYPES:
                near = self.scope.near(type, CAST_TYPES)
                raise self.scope.fail(
                    type,
                    f"{type} is no type; it must be one of {', '.join(INPUT_TYPES)}{instead(near)}",
                )
            if name == self.scope.accumulator:
                if axes is not None:
                    raise self.scope.fail(axes, f"the accumulator is declared with axes; write {name}: {type};")
            else:
                self.scope.check_input(name, str(type), type)
            for axis in names:
                self.scope.axis(axis, names)
            if len(names) > 2:
                raise self.scope.fail(
                    names[2], f"{name} is declared with {len(names)} axes; it must have one or two of the three"
                )
            self.scope.declared[str(name)] = str(type)
            self.scope.shapes[str(name)] = tuple(self.scope.axes[str(a)] for a in names)

    def augmented(self, x: Any) -> str:
        """The operator of an augmented assignment; empty for a plain assignment."""
        _, *middle, _ = x.children
        if len(middle) == 1:
            return str(middle[0]).removesuffix("=")
        word = middle[0]
        if word is None:
            return ""
        if word not in ROW_REDUCTIONS and word not in REDUCTIONS:
            near = _WORDS.get(str(word)) or self.scope.near(word, ROW_REDUCTIONS)
            raise self.scope.fail(
                word,
                f"{word} is no reduction; it must be one of {', '.join(ROW_REDUCTIONS)}{instead(near and f'{near}=')}",
            )
        return str(word)

    def define(self, x: Any) -> None:
        """Reads the definition ``name = expr``, or ``name op= expr`` for a name that has a value."""
        name, op = x.children[0].children[0], self.augmented(x)
        self.scope.check_name(name)
        if name in self.scope.axes:
            raise self.scope.fail(name, f"{name} is an axis; a definition must have another name")
        if name in self.scope.output_names:
            raise self.scope.fail(name, f"{name} is an output; a definition must have another name")
        value = self.value(x.children[-1])
        if op:
            with self.scope.at(x):
                old = self.scope.named(name)
                value = call(op, (old, value)) if op in FUNCTIONS else binary(op, old, value)
        if isinstance(value, Node):
            with self.scope.at(x):
                check_nesting(value)
        self.scope.definitions[str(name)] = value
        self.defined[str(name)] = name

    def read_reduction(self, x: Any, initial: tuple[Value, Any] | None) -> None:
        self.scope.place = "reduce"
        outer = dict(self.scope.definitions)
        _, *body = x.children
        for y in body[:-1]:
            if y.data != "assign" or y.children[0].data != "name":
                raise self.scope.fail(y, "an output, or a reduction, is in reduce; it must be after it")
            name = y.children[0].children[0]
            if name == self.scope.accumulator or (self.augmented(y) and name not in self.scope.definitions):
                raise self.scope.fail(
                    name, f"{name} is reduced before the last statement of reduce; it must be reduced in the last one"
                )
            self.define(y)
        if self.scope.accumulator in self.scope.definitions:
            raise self.scope.fail(
                body[-1],
                f"{self.scope.accumulator} is a definition; reduce must end with a reduction: accum += …;",
            )
        self.reduction, step, at = self.split(body[-1], f"{self.scope.accumulator} += …")
        declared = self.scope.declared.get(self.scope.accumulator)
        if declared is None:
            declared = self.scope.given.get(self.scope.accumulator)
        value = self.pair(step) if self.reduction in POSITIONS else self.value(step)
        with self.scope.at(at):
            self.step, self.type = step_of(self.reduction, value, declared)
        self.initial: Node | None = None
        if initial is not None:
            with self.scope.at(initial[1]):
                self.initial = initial_of(self.reduction, initial[0], self.type)
        values = self.scope.definitions
        self.scope.ended = {name for name in values if values[name] is not outer.get(name)}
        self.scope.definitions = {name: value for name, value in outer.items() if name not in self.scope.ended}
        self.scope.definitions[self.scope.accumulator] = variable(ACCUMULATOR, self.type)
        self.scope.used.add(self.scope.accumulator)
        self.scope.place = "after"

    def pair(self, x: Any) -> Value:
        """The value of the pair ``(value, k)``, or of ``value``."""
        if x.data != "pair":
            return self.value(x)
        value, index = x.children
        if index.data != "name" or self.scope.axes.get(str(index.children[0])) != "k":
            reduced = next(name for name, axis in self.scope.axes.items() if axis == "k")
            raise self.scope.fail(index, f"the second of the pair is not the reduced axis; write {reduced}")
        return self.value(value)

    def split(self, x: Any, pattern: str) -> tuple[str, Any, Any]:
        """The operator of a reduction, its operand, and the place of the operator. The statement is ``target op=
        operand`` or ``target = op(target, operand)``."""
        target, value = x.children[0], x.children[-1]
        op = self.augmented(x)
        name = "".join(_tokens(target)) if target.data == "name" else f"{target.children[0]}[…]"
        if op:
            at = x.children[1]
        else:
            op, operand, at = self.repeated(target, value, pattern)
            value = operand
        if op not in _ASSOCIATIVE and op != "logsumexp":
            raise self.scope.fail(
                at, f"`{op}` is not associative, so its order would matter; write {name} {_INSTEAD.get(op, '+= …')}"
            )
        return op, value, at

    def repeated(self, target: Any, value: Any, pattern: str) -> tuple[str, Any, Any]:
        """The operator of ``target = target op operand`` or ``target = op(target, operand)``, the operand, and the
        place of the operator."""
        x = _inner(value)
        if x.data in BINARY or x.data == "shifted":
            op = BINARY.get(x.data) or str(x.children[1])
            left, right = x.children[0], x.children[-1]
            if _same(target, left):
                return op, right, x
            if _same(target, right):
                if op in _ASSOCIATIVE:
                    return op, left, x
                raise self.scope.fail(x, f"`{op}` is not associative, so its order would matter; write {pattern}")
        if x.data in ("or_", "and_") and any(_same(target, y) for y in x.children):
            raise self.scope.fail(x, f"`{x.data[:-1]}` is no reduction; write {'|=' if x.data == 'or_' else '&='}")
        if x.data == "call":
            name, arguments = x.children[0], x.children[1].children
            if name in ROW_REDUCTIONS + REDUCTIONS and len(arguments) == 2:
                for mine, other in ((0, 1), (1, 0)):
                    if _same(target, arguments[mine]):
                        return str(name), arguments[other], name
        raise self.scope.fail(value, f"the statement is no reduction; write {pattern}, or = max(…, …)")

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
            raise self.scope.fail(
                target, f"{name} has {len(indices)} axes; an output must have two, or one if it is reduced"
            )

    def check_output(self, name: Token) -> None:
        self.scope.check_name(name)
        if name in self.scope.axes or name == self.scope.accumulator:
            raise self.scope.fail(name, f"{name} is an axis or the accumulator; the output must have another name")
        if name in self.outputs:
            raise self.scope.fail(
                name, f"{name} is the output of another statement; each output must have another name"
            )
        if name in self.scope.uses or name in self.scope.declared:
            raise self.scope.fail(name, f"{name} is an input; the output must have another name")

    def store(self, x: Any, name: Token, indices: list[Token]) -> None:
        axes = tuple(self.scope.axis(y, indices) for y in indices)
        if "k" in axes:
            raise self.scope.fail(
                indices[axes.index("k")],
                f"{name} has the reduced axis; an output must have both spatial axes: write {name}[{self.spatial()}]",
            )
        if op := self.augmented(x):
            raise self.scope.fail(x.children[1], f"{op}= reduces, and each ({self.spatial()}) has one value; write =")
        value = self.value(x.children[-1])
        with self.scope.at(x.children[-1]):
            self.outputs[str(name)] = Store(str(name), stored(value), axes)  # type: ignore[arg-type]

    def spatial(self) -> str:
        return ", ".join(name for name, axis in self.scope.axes.items() if axis != "k")

    def aggregate(self, x: Any, name: Token, indices: list[Any]) -> None:
        keys = self.keys(x.children[0], name, indices)
        op, value, at = self.split(x, f"{name}[…] += …")
        if op not in AGGREGATES:
            raise self.scope.fail(at, f"groups are not reduced by {op}; it must be one of {', '.join(AGGREGATES)}")
        read = self.value(value)
        with self.scope.at(value):
            self.outputs[str(name)] = Aggregate(str(name), reduced(op, read), keys[0], keys[1], op)

    def keys(self, at: Any, name: Token, indices: list[Any]) -> list[Node]:
        """The two keys of an output, one for each spatial axis."""
        keys = [self.key(y) for y in indices]
        for axis in ("i", "j"):
            if not any(depends_on(axis, key) for key in keys):
                missing = next(a for a, b in self.scope.axes.items() if b == axis)
                raise self.scope.fail(
                    at, f"{name} has no key of the axis {missing}; an output must have both spatial axes"
                )
        return keys

    def key(self, x: Any) -> Node:
        """A key of an aggregate: an index, or an element of an array with one axis."""
        if x.data == "name" and x.children[0] in self.scope.axes:
            self.scope.axis(x.children[0])
        elif x.data != "index" or len(x.children[1].children) != 1:
            raise self.scope.fail(
                x, "the key is an expression; it must be an axis, or an element of an array with one axis: g[i]"
            )
        key = self.value(x)
        assert isinstance(key, Node)
        if not type_of(key.type).integer:
            written = f"{x.children[0]}: s32[{x.children[1].children[0].children[0]}];"
            raise self.scope.fail(
                x, f"the key is {key.type}; it must be an integer: convert the array, or declare {written} before where"
            )
        return key

    def row_reduction(self, x: Any, name: Token, index: Any) -> None:
        if index.data != "name":
            raise self.scope.fail(
                index, f"{name} has one key; an output must have both spatial axes: write {name}[g[i], h[j]] += …"
            )
        axis = self.scope.axis(index.children[0])
        if axis == "k":
            raise self.scope.fail(
                index, f"{name} has the reduced axis; it must have a spatial axis: write {name}[i] += …"
            )
        op, value, at = self.split(x, f"{name}[{index.children[0]}] += …")
        if op not in ROW_REDUCTIONS:
            raise self.scope.fail(at, f"rows are not reduced by {op}; it must be one of {', '.join(ROW_REDUCTIONS)}")
        read = self.value(value)
        with self.scope.at(value):
            self.outputs[str(name)] = RowReduce(str(name), reduced(op, read), axis, op)

    def read_list(self, x: Any) -> None:
        test, target, method, arguments = x.children
        name = target.children[0]
        heap = str(name).partition("_heap_")
        if method in LATER:
            what = LATER[str(method)]
            raise self.scope.fail(
                method, f"{what} is not supported yet; write condition ? {name}.add({self.scope.accumulator})"
            )
        if heap[0] in ("min", "max") and heap[2].isdigit():
            what, word = ("greatest", "top") if heap[0] == "min" else ("least", "bottom")
            written = f"best.{word}({heap[2]}, {self.scope.accumulator}, {self.spatial()})"
            raise self.scope.fail(name, f"a heap of the {heap[2]} {what} is another output; write {written}")
        if method in TOP:
            self.read_top(test, target, method, arguments)
            return
        if method == "put":
            self.put(x, name)
            return
        if method == "distinct":
            self.distinct(x, name)
            return
        if method != "add":
            known = ("add", "bottom", "distinct", "put", "top")
            near = self.scope.near(method, known) or "add"
            rule = f"it must be one of {', '.join(known)}: write {near}"
            raise self.scope.fail(method, f"{method} is no method of an output; {rule}")
        if target.data == "index":
            raise self.scope.fail(target, f"the list has axes; write {name}.add(…)")
        self.check_output(name)
        values = [y for y in arguments.children if y is not None]
        if not values:
            raise self.scope.fail(
                method, f"the list has no values; write {name}.add({self.scope.accumulator}, {self.spatial()})"
            )
        holds = constant(True, PRED)
        if test is not None:
            with self.scope.at(test):
                holds = check_nesting(condition(self.value(test)))
        nodes = []
        for y in values:
            value = self.value(y)
            with self.scope.at(y):
                nodes.append(stored(value))
        self.outputs[str(name)] = Select(str(name), nodes[0], holds, tuple(nodes))

    def read_top(self, test: Any, target: Any, method: Token, arguments: Any) -> None:
        """Reads the output ``best.top(n, e, i, j)``, or ``best[i].top(n, e, j)``; bottom likewise."""
        name = target.children[0]
        self.check_output(name)
        axis, target_text = "", str(name)
        names = [a for a, b in self.scope.axes.items() if b != "k"]
        if target.data == "index":
            index = [y for y in target.children[1].children if y is not None]
            if len(index) != 1 or index[0].data != "name" or index[0].children[0] not in names:
                raise self.scope.fail(
                    target, f"{name} has no spatial axis; it must be {name}, or one of each {' or '.join(names)}"
                )
            own = str(index[0].children[0])
            axis, target_text = self.scope.axes[own], f"{name}[{own}]"
            names.remove(own)
        values = [y for y in arguments.children if y is not None]
        pattern = f"{target_text}.{method}(n, {self.scope.accumulator}, {', '.join(names)})"
        if [str(y.children[0]) if y.data == "name" else "" for y in values[2:]] != names:
            raise self.scope.fail(method, f"{method} takes the number of values, the value and the indices: {pattern}")
        with self.scope.at(values[0]):
            count = top_count(self.value(values[0]))
        holds = constant(True, PRED)
        if test is not None:
            with self.scope.at(test):
                holds = check_nesting(condition(self.value(test)))
        value = self.value(values[1])
        with self.scope.at(values[1]):
            self.outputs[str(name)] = Top(str(name), stored(value), holds, count, axis, TOP[str(method)])

    def put(self, x: Any, name: Token) -> None:
        """Reads the output ``C.put(value, row, column)``, which stores a value of a matrix at keys."""
        test, target, method, arguments = x.children
        if test is not None:
            raise self.scope.fail(test, "put has a condition; write it after where: when (…)")
        if target.data == "index":
            raise self.scope.fail(target, f"the matrix has axes; write {name}.put(…)")
        self.check_output(name)
        given = [y for y in arguments.children if y is not None]
        if len(given) != 3:
            raise self.scope.fail(
                method,
                f"put has {len(given)} values; it must have a value, a row and a column: write"
                f" {name}.put({self.scope.accumulator}, g[i], h[j])",
            )
        row, column = self.keys(target, name, given[1:])
        value = self.value(given[0])
        with self.scope.at(given[0]):
            self.outputs[str(name)] = Scatter(str(name), stored(value), row, column)

    def distinct(self, x: Any, name: Token) -> None:
        """Reads the output ``seen.distinct(row, column)``, which lists each pair of keys once."""
        test, target, method, arguments = x.children
        if target.data == "index":
            raise self.scope.fail(target, f"the list has axes; write {name}.distinct(…)")
        self.check_output(name)
        given = [y for y in arguments.children if y is not None]
        if len(given) != 2:
            raise self.scope.fail(
                method, f"distinct has {len(given)} values; it must have two keys: write {name}.distinct(g[i], h[j])"
            )
        row, column = self.keys(target, name, given)
        holds = constant(True, PRED)
        if test is not None:
            with self.scope.at(test):
                holds = check_nesting(condition(self.value(test)))
        self.outputs[str(name)] = Distinct(str(name), holds, row, column)

    def check_unused(self) -> None:
        for name, at in self.defined.items():
            if name not in self.scope.used:
                near = self.scope.near(name, (self.scope.accumulator, *self.scope.uses))
                raise self.scope.fail(
                    at, f"{name} is defined and not used; {f'write {near}, or ' if near else ''}remove it"
                )
        for x in self.declarations:
            name = x.children[0]
            axes = self.scope.shapes[str(name)]
            if name == self.scope.accumulator:
                continue
            uses = self.scope.uses.get(str(name))
            if uses is None:
                near = self.scope.near(name, (n for n in self.scope.uses if n not in self.scope.declared))
                raise self.scope.fail(
                    name, f"{name} is declared and not read; {f'write {near}, or ' if near else ''}remove it"
                )
            if axes not in uses:
                written = {b: a for a, b in self.scope.axes.items()}
                read = ", ".join(f"{name}[{', '.join(written[a] for a in use)}]" for use in uses)
                raise self.scope.fail(
                    x.children[2], f"{name} is read as {read}; it must be declared with the same axes"
                )

    def check_bounds(self) -> None:
        """Checks that axes with the same bound are the same axis of some array, because nothing else compares their
        extents."""
        groups = {axis: {axis} for axis in AXES}
        for uses in self.scope.uses.values():
            for others in zip(*uses, strict=True):
                together = set().union(*(groups[a] for a in others))
                groups |= dict.fromkeys(together, together)
        for n, token in enumerate(self.bounds):
            for m, other in enumerate(self.bounds[:n]):
                if token is not None and token == other and AXES[m] not in groups[AXES[n]]:
                    raise self.scope.fail(
                        token,
                        f"{token} is the bound of two axes, and no array compares their extents; write another name",
                    )

    def ranks(self) -> dict[str, int]:
        """Array or scalar that the text reads -> its number of axes. TaskError: an index is a name that is no axis."""
        ranges, _, *statements = self.where.children
        reductions = [x for x in statements if x.data == "reduce"]
        own = {str(x.children[0]) for r in (ranges, *(r.children[0] for r in reductions)) for x in r.children}
        axes = sorted(own)
        for r in (ranges, *(r.children[0] for r in reductions)):
            own |= {
                str(x.children[2].children[0])
                for x in r.children
                if x.children[2] is not None and x.children[2].data == "name"
            }
        own |= set(EXTENTS)
        targets, outputs = set(), set()
        for x in self.where.iter_subtrees():
            if x.data == "assign" and x.children[0].data == "name":
                own.add(str(x.children[0].children[0]))
            elif x.data in ("assign", "listed"):
                target = x.children[x.data == "listed"]
                targets.add(id(target))
                outputs.add(str(target.children[0]))
        declared = [str(x.children[0]) for x in self.declarations]
        ranks: dict[str, tuple[int, int]] = {}
        for x in self.where.iter_subtrees_topdown():
            for y in x.children[1].children if x.data == "index" else ():
                if y is not None and y.data == "name" and str(y.children[0]) not in axes:
                    raise self.scope.no_axis(y.children[0], axes)
        for x in self.where.iter_subtrees_topdown():
            if id(x) in targets or x.data not in ("name", "index") or str(x.children[0]) in outputs:
                continue
            if x.data == "name" and str(x.children[0]) in own:
                continue
            rank = len([y for y in x.children[1].children if y is not None]) if x.data == "index" else 0
            ranks.setdefault(str(x.children[0]), (x.children[0].start_pos, rank))
        ordered = sorted(
            ranks, key=lambda name: (declared.index(name) if name in declared else len(declared), ranks[name][0])
        )
        return {name: ranks[name][1] for name in ordered}
