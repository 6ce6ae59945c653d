"""The canonical text of a program, and the digest of its meaning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from itertools import count

from ptxgen.expr.node import Node, node, rewritten, walk
from ptxgen.expr.operators import OPERATORS
from ptxgen.operations.task.assembling import RESERVED, array_of, axes_of, mapped, renamed, roots, roots_of
from ptxgen.operations.task.printing import printed
from ptxgen.operations.task.program import (
    ACCUMULATOR,
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

_SYMBOLS = ("+", "*", "&", "|", "^")


def canonical(program: Program) -> str:
    """The canonical text of a program: one line without spaces, which parses to an equal program. It declares the types
    of all inputs, and names each part of an expression that is used more than once."""
    names = _unused(program)
    axes = [f"[{','.join(x.uses[0])}]" if x.uses else "" for x in program.inputs]
    head = [f"{x.name}:{x.dtype}{shape};" for x, shape in zip(program.inputs, axes, strict=True)]
    head.append(f"{ACCUMULATOR}:{program.accumulator};where(i,j)")
    if program.when is not None:
        head.append(f"when({printed(program.when)})")
    body = []
    if program.initial is not None:
        definitions, known = _definitions((program.initial,), names)
        body += [*definitions, f"{ACCUMULATOR}={printed(program.initial, known)};"]
    definitions, known = _definitions((program.step,), names)
    body += ["reduce(k){", *definitions, _reduction(program, printed(program.step, known)), "}"]
    definitions, known = _definitions([x for output in program.outputs for x in roots_of(output)], names)
    body += definitions
    body += [_output(output, known) for output in program.outputs]
    return "".join([*head, "{", *body, "}"])


def _unused(program: Program) -> Iterator[str]:
    """Names that the program does not have."""
    taken = {x.name for x in program.inputs} | {x.name for x in program.outputs} | RESERVED
    return (name for name in (f"t{n}" for n in count()) if name not in taken)


def _definitions(expressions: tuple[Node, ...] | list[Node], names: Iterator[str]) -> tuple[list[str], dict[Node, str]]:
    """The definitions of the parts of expressions that are used more than once, and the names of these parts."""
    used = Counter(y for x in walk(*expressions) for y in x.arguments) + Counter(expressions)
    texts, known = [], dict[Node, str]()
    for x in walk(*expressions):
        converted = x.op in ("cast", "neg", "not") and not x.arguments[0].arguments
        if x.arguments and used[x] > 1 and not converted:
            text = printed(x, known)
            known[x] = next(names)
            texts.append(f"{known[x]}={text};")
    return texts, known


def _reduction(program: Program, step: str) -> str:
    op = program.reduction
    if op in _SYMBOLS:
        return f"{ACCUMULATOR}{op}={step};"
    return f"{ACCUMULATOR}={op}({ACCUMULATOR},{f'({step},k)' if op in POSITIONS else step});"


def _output(output: Output, names: dict[Node, str]) -> str:
    value = printed(output.value, names)
    if isinstance(output, Store):
        return f"{output.name}[{','.join(output.axes)}]={value};"
    if isinstance(output, Aggregate):
        return f"{output.name}[{printed(output.row)},{printed(output.column)}]{output.op}={value};"
    if isinstance(output, Scatter):
        return f"{output.name}.put({value},{printed(output.row)},{printed(output.column)});"
    if isinstance(output, Distinct):
        test = _condition(output.value, names)
        return f"{test}{output.name}.distinct({printed(output.row)},{printed(output.column)});"
    if isinstance(output, RowReduce):
        return f"{output.name}[{output.axis}]{output.op}={value};"
    if isinstance(output, Top):
        target = f"{output.name}[{output.axis}]" if output.axis else output.name
        method = "top" if output.greatest else "bottom"
        indices = {"": "i,j", "i": "j", "j": "i"}[output.axis]
        call = f"{target}.{method}({printed(output.count)},{value},{indices});"
    else:
        assert isinstance(output, Select)
        call = f"{output.name}.add({','.join(printed(x, names) for x in output.values)});"
    return f"{_condition(output.condition, names)}{call}"


def _condition(test: Node, names: dict[Node, str]) -> str:
    """The text of the condition of a list, with its ?; empty if all pairs are in the list."""
    # the condition of a list ends at the first ?
    text = printed(test, names) if test.op != "select" or test in names else f"({printed(test, names)})"
    all_pairs = test.op == "constant" and test.value
    return "" if all_pairs else f"{text}?"


def erased(program: Program) -> tuple[Program, dict[str, str]]:
    """Returns the program with numbered names, and a map from original to numbered names. The operands of commutative
    operators are in an order that does not depend on names."""
    colours = _colours(program)
    keys: dict[Node, str] = {}

    def key(x: Node) -> str:
        name = (
            colours[array_of(x.value)] + str(axes_of(x.value))
            if x.op == "variable" and array_of(x.value) in colours
            else repr(x.value)
        )
        return _hash(x.op, x.type, name, *(keys[y] for y in x.arguments))

    def ordered(x: Node) -> Node:
        if x.op in OPERATORS and OPERATORS[x.op].commutative:
            x = node(x.op, x.type, *sorted(x.arguments, key=keys.__getitem__), value=x.value)
        keys[x] = key(x)
        return x

    program = mapped(program, lambda root: rewritten(root, ordered))
    inputs = {x.name: f"{'x' if x.uses else 's'}{n}" for n, x in enumerate(program.inputs)}
    outputs = {x.name: f"y{n}" for n, x in enumerate(program.outputs)}
    return renamed(program, inputs, outputs), inputs | {f"{name}": y for name, y in outputs.items()}


def _colours(program: Program) -> dict[str, str]:
    """Input -> a digest of its place in the program, without its name. Inputs with equal digests are in most cases
    interchangeable."""
    colours = {x.name: _hash(x.dtype, str(sorted(x.uses))) for x in program.inputs}
    expressions = roots(program)
    for _ in range(3):
        below: dict[Node, str] = {}
        for x in walk(*expressions):
            arguments = [below[y] for y in x.arguments]
            if x.op in OPERATORS and OPERATORS[x.op].commutative:
                arguments.sort()
            value = str(x.value)
            if x.op == "variable" and array_of(value) in colours:
                value = colours[array_of(value)] + str(axes_of(value))
            below[x] = _hash(x.op, x.type, value, *arguments)
        contexts: dict[Node, list[str]] = {x: [] for x in below}
        for n, root in enumerate(expressions):
            contexts[root].append(f"root {n}")
        for x in reversed(list(walk(*expressions))):
            own = _hash(*sorted(contexts[x]))
            commutes = x.op in OPERATORS and OPERATORS[x.op].commutative
            for n, y in enumerate(x.arguments):
                contexts[y].append(_hash(own, below[x], "" if commutes else str(n)))
        seen: dict[str, list[str]] = {name: [] for name in colours}
        for x in below:
            if x.op == "variable" and array_of(x.value) in colours:
                seen[array_of(x.value)].append(_hash(str(axes_of(x.value)), *sorted(contexts[x])))
        colours = {name: _hash(colour, *sorted(seen[name])) for name, colour in colours.items()}
    return colours


def _hash(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:24]


def digest(program: Program) -> str:
    """The digest of a program's meaning. Programs that differ only in names, or in the order of operands of commutative
    operators, have equal digests."""
    return _hash(canonical(erased(program)[0]))
