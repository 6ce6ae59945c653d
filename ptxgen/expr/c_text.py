"""Prints expressions as C, each common subexpression once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ptxgen.errors import DtypeError
from ptxgen.expr.node import Node
from ptxgen.expr.value_types import PRED, type_of

#: value type -> C type, for the types that C has
C_TYPES = {
    **{f"s{bits}": f"int{bits}_t" for bits in (64, 32, 16, 8)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (64, 32, 16, 8)},
    "f64": "double",
    "f32": "float",
    PRED: "int",
}
_INFIX = {"+", "-", "*", "/", "<", "<=", "==", "!=", "<<", ">>", "^"}
#: operator -> C function, for integers and for floats. The functions that math.h does not have are defined by the C
#: text around the expressions; its max and min of floats ignore NaN
_INTEGER_FUNCTIONS = {"//": "floor_div", "%": "floor_mod", "max": "max_integer", "min": "min_integer", "abs": "llabs"}
_FLOAT_FUNCTIONS = {
    "max": "max_double",
    "min": "min_double",
    **{name: name for name in ("ceil", "floor", "sqrt", "exp", "exp2", "log", "erf", "tanh", "fmin", "fmax", "fma")},
    "abs": "fabs",
}
#: operator -> C function whose double result is rounded once to the type of the expression
_ROUNDED = {"log2": "log2", "pow": "pow", "hypot": "root_of_squares"}


def c_type(x: Node) -> str:
    """The C type of an expression. DtypeError: C has no such type."""
    if x.type not in C_TYPES:
        raise DtypeError(f"type is {x.type}; it must be one that C has: {', '.join(C_TYPES)}")
    return C_TYPES[x.type]


class Expressions:
    """The C text of nodes. Nodes with several uses are local variables, which ``definitions`` defines in order."""

    def __init__(
        self,
        roots: Iterable[Node],
        shape: str,
        names: Mapping[Node, str] | None = None,
        functions: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        """``shape``: the text before the name of a variable; ``names``: the C names of nodes that the surrounding text
        defines; ``functions``: by (operator, type), C functions to call instead of those of ``math.h``."""
        self.definitions: list[str] = []
        self._names: dict[Node, str] = dict(names or {})
        self._functions = functions or {}
        uses: Counter[Node] = Counter()
        order: dict[Node, None] = {}
        for root in roots:
            _count(root, uses, order, self._names)
        for x in order:
            if x.op == "variable":
                self._define(x, x.value, f"{shape}{x.value}")
            elif x.op != "constant" and uses[x] > 1:
                self._define(x, f"t{len(self._names)}", self._text(x))

    def _define(self, x: Node, name: str, text: str) -> None:
        self.definitions.append(f"const {c_type(x)} {name} = {text};")
        self._names[x] = name

    def __call__(self, x: Node) -> str:
        """The C expression that has the value of a node."""
        return self._names.get(x) or self._text(x)

    def _text(self, x: Node) -> str:
        if x.op == "constant":
            return literal(x)
        a = [self(y) for y in x.arguments]
        if (x.op, x.type) in self._functions:
            return f"{self._functions[x.op, x.type]}({', '.join(a)})"
        if x.op == "select":
            return f"({a[0]} ? {a[1]} : {a[2]})"
        if x.op == "cast":
            return f"({a[0]} != 0)" if x.type == PRED else f"({c_type(x)}){a[0]}"
        if x.op == "not":
            return f"!{a[0]}"
        if x.op in ("neg", "~"):
            return _narrowed(x, f"{'-' if x.op == 'neg' else '~'}({a[0]})")
        if x.op == "rcp":
            return f"({'1.0f' if x.type == 'f32' else '1.0'} / {a[0]})"
        if x.op in _INFIX:
            return _narrowed(x, f"({a[0]} {x.op} {a[1]})")
        if x.op in ("&", "|"):
            return f"({a[0]} {2 * x.op if x.type == PRED else x.op} {a[1]})"
        if x.op in _ROUNDED:
            text = f"{_ROUNDED[x.op]}({', '.join(a)})"
            return f"(float){text}" if x.type == "f32" else text
        if not type_of(x.type).floating:
            text = f"{_INTEGER_FUNCTIONS.get(x.op, x.op)}({', '.join(a)})"
            return text if x.type == "s64" else f"({c_type(x)}){text}"
        if x.op not in _FLOAT_FUNCTIONS:
            raise DtypeError(f"operator is {x.op!r}; it must be one that C has: {', '.join(_FLOAT_FUNCTIONS)}, …")
        name = _FLOAT_FUNCTIONS[x.op]
        return f"{name}({', '.join(a)})" if x.type == "f64" else f"(float){name}({', '.join(a)})"


def _narrowed(x: Node, text: str) -> str:
    """The C text of an integer operation, with a cast to its type if C computes the operation with more bits."""
    t = type_of(x.type)
    return f"({c_type(x)}){text}" if t.integer and t.bits < 32 else text


def _count(x: Node, uses: Counter[Node], order: dict[Node, None], known: Mapping[Node, str]) -> None:
    uses[x] += 1
    if uses[x] > 1 or x in known:
        return
    for y in x.arguments:
        _count(y, uses, order, known)
    order[x] = None


def literal(x: Node) -> str:
    """The C constant of a node."""
    if not type_of(x.type).floating:
        n = int(x.value)
        return str(n) if abs(n) < 1 << 31 else f"INT64_C({n})" if x.type[0] == "s" else f"UINT64_C({n})"
    if x.value != x.value or abs(x.value) == float("inf"):
        return f"{'-' if x.value < 0 else ''}{'NAN' if x.value != x.value else 'INFINITY'}"
    return float(x.value).hex() + ("f" if x.type == "f32" else "")
