"""The gradients of a task, as tasks.

If C[i,j] = f(accum) with accum = Σ_k s(A[i,k], B[k,j], …), and D[i,j] is the gradient of accum, the gradient of A is
Σ_j D[i,j] · ∂s/∂A: a task with the spatial axes i and k, which reduces over j. This task reads D as its operand A, B as
its operand B, and the array A at both spatial axes: a thread holds these elements in registers. Factors without j are
taken out of the sum, so the gradients of a matrix product are matrix products.

If accum is a maximum or minimum over k, a second task computes its position (the first one of equal steps), and only
the elements at this position have a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial

from ptxgen.errors import TaskError
from ptxgen.expr.derivative import derivatives, over, plus, terms, times, where
from ptxgen.expr.node import Node, constant, node, rewritten, substituted, variable, variables
from ptxgen.expr.simplify import cast, simplified
from ptxgen.expr.value_types import PRED, type_of
from ptxgen.operations.task.assembling import RESERVED, array_of, axes_of, depends_on, program_of
from ptxgen.operations.task.program import (
    ACCUMULATOR,
    AXES,
    EXTENTS,
    MEAN,
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

#: reduction over k whose result is the step at one position -> the reduction that returns the position
POSITION = {"max": "argmax", "fmax": "argmax", "min": "argmin", "fmin": "argmin"}
#: class of an output without gradients -> its name in errors
DESCRIBED: dict[type[Output], str] = {
    **{Select: "a list", Top: "a list", Distinct: "a list"},
    **{Aggregate: "a result in groups", Scatter: "a result at keys"},
}
#: the most terms into which a derivative that is a sum is divided; each becomes a sum of products
MOST_TERMS = 4
_EXTENT = dict(zip(AXES, EXTENTS, strict=True))


@dataclass(frozen=True)
class Filled:
    """A step that makes an array filled with one value. ``axes``: the axes of the task whose extents the array has; ""
    stands for the extent 0."""

    name: str
    axes: tuple[str, ...]
    dtype: str
    value: float


@dataclass(frozen=True)
class Computed:
    """A step that computes a program of the inputs of the task and of arrays of earlier steps."""

    name: str
    program: Program


@dataclass(frozen=True)
class Gathered:
    """A step that gathers, for each pair (i, j), the element of the input ``array`` at [i,k], [k,j] or [k] (axes in
    either order), where k is the element [i,j] of the array ``positions``."""

    name: str
    array: str
    axes: tuple[str, ...]
    positions: str


@dataclass(frozen=True)
class Part:
    """A part of the gradient of an input: the computed array ``name``. ``gathered``: the elements of the array are
    added to the elements that this step gathers; None: the array has the axes of the input."""

    name: str
    gathered: Gathered | None = None


@dataclass(frozen=True)
class Gradients:
    """The computation of the gradients of a task. ``steps``: the steps in order; ``parts``: input -> the parts whose
    sum is its gradient; ``gradient``, ``result``: the names by which steps read the gradient of the output, and the
    output; ``extents``: scalar of the steps -> the axis whose extent it is."""

    steps: tuple[Filled | Computed | Gathered, ...]
    parts: dict[str, tuple[Part, ...]]
    gradient: str
    result: str
    extents: dict[str, str]

    @cached_property
    def read(self) -> frozenset[str]:
        """The arrays that steps read."""
        programs = [x.program for x in self.steps if isinstance(x, Computed)]
        return frozenset(x.name for program in programs for x in program.inputs) | {
            x.array for x in self.steps if isinstance(x, Gathered)
        }


@lru_cache(maxsize=256)
def gradients(program: Program, wanted: frozenset[str], expand: bool) -> Gradients:
    """The gradients of the arrays ``wanted`` of a program with one output, a matrix, rows or columns. ``expand``: True:
    the terms of a derivative that is a sum may be computed as several sums of products. TaskError: an operator on the
    way to an array has no derivative."""
    return _Builder(program, wanted, expand).made()


@dataclass
class _Builder:
    """Collects the steps, parts and extents of ``Gradients``; the other fields are the arguments of ``gradients``."""

    program: Program
    wanted: frozenset[str]
    expand: bool
    steps: list[Filled | Computed | Gathered] = field(default_factory=list)
    parts: dict[str, list[Part]] = field(default_factory=dict)
    extents: dict[str, str] = field(default_factory=dict)

    def made(self) -> Gradients:
        """The collected gradients. TaskError: as for ``gradients``."""
        program = self.program
        self.output = program.outputs[0]
        if not isinstance(self.output, Store | RowReduce):
            what = DESCRIBED[type(self.output)]
            raise TaskError(
                f"{self.output.name} is {what}, which has no derivative; it must be a matrix, rows or columns"
            )
        self.types = {x.name: x.dtype for x in program.inputs}
        self.names = {*self.types, *(x.name for x in program.outputs), *RESERVED}
        self.gradient, self.result = self.name("gradient"), self.name("result")
        self.kept: dict[object, str] = {}  #: what a step computes -> its name
        #: that pairs with a gradient fulfil
        self.conditions = [] if program.when is None else [program.when]
        reduced = [program.step] if program.initial is None else [program.step, program.initial]
        inside = any(self.wanted_in(x) for x in reduced) and ACCUMULATOR in variables(self.output.value)
        if program.reduction in POSITION and inside:
            self.of_position()
        else:
            self.of_sums(inside)
        parts = {name: tuple(terms) for name, terms in self.parts.items()}
        read = {x.name for step in self.steps if isinstance(step, Computed) for x in step.program.inputs}
        steps = [x for x in self.steps if isinstance(x, Computed) or x.name in read]
        return Gradients(tuple(steps), parts, self.gradient, self.result, self.extents)

    # ---- names and arrays

    def name(self, wanted: str) -> str:
        """A new name: ``wanted``, with underscores added if the name is taken."""
        while wanted in self.names:
            wanted += "_"
        self.names.add(wanted)
        return wanted

    def filled(self, wanted: str, axes: tuple[str, ...], dtype: str, value: float = 1) -> str:
        """The name of an array filled with one value, which is made once."""
        key = (wanted, axes, dtype)
        if key not in self.kept:
            self.kept[key] = self.name(wanted)
            self.steps.append(Filled(self.kept[key], axes, dtype, value))
        return self.kept[key]

    def computed(self, wanted: str, program: Program) -> str:
        """The name of the result of a program, which is computed once."""
        if program not in self.kept:
            self.kept[program] = self.name(wanted)
            self.steps.append(Computed(self.kept[program], program))
        return self.kept[program]

    def extent(self, axis: str) -> Node:
        """The extent of an axis as a scalar, because programs of pairs have no extent of k."""
        scalar = next((name for name, known in self.extents.items() if known == axis), None)
        if scalar is None:
            scalar = self.name("extent")
            self.extents[scalar] = axis
        return variable(scalar, "s32")

    def wanted_in(self, root: Node) -> list[str]:
        """The variables of an expression that are elements of arrays whose gradient is wanted."""
        return [x for x in variables(root) if array_of(x) in self.wanted]

    # ---- programs

    def of_pairs(
        self,
        value: Node,
        output: Callable[[Node], Output],
        axes: tuple[str, str] = ("i", "j"),
        reduced: str = "k",
        renamed: dict[str, str] | None = None,
    ) -> Program:
        """The program of a value that needs no reduction over the axis ``reduced``. ``axes``: the two other axes, which
        are i and j of the program; ``renamed``: axis of the task -> axis of the program."""
        extent = _EXTENT[reduced]
        value = rewritten(value, lambda x: self.extent(reduced) if x.op == "variable" and x.value == extent else x)
        left = variable(f"{self.filled('left', (axes[0], ''), 'f32')}[i,k]", "f32")
        right = variable(f"{self.filled('right', ('', axes[1]), 'f32')}[k,j]", "f32")
        value = value if renamed is None else _renamed(value, renamed)
        return program_of(node("*", "f32", left, right), "+", "f32", (output(value),))

    def of_reductions(self, value: Node, output: Callable[[Node], Output]) -> Program:
        """The program of a value that may read the reduction of each pair."""
        if ACCUMULATOR not in variables(value):
            return self.of_pairs(value, output)
        p = self.program
        return program_of(p.step, p.reduction, p.accumulator, (output(value),), p.initial)

    def stored(self, value: Node, dtype: str, axes: tuple[str, ...]) -> Output:
        """The output that stores a value of each pair."""
        return Store("out", cast(simplified(value, relaxed=True), dtype), (axes[0], axes[1]))

    def reduced(self, value: Node, axis: str) -> Output:
        """The output that sums a value over rows or columns."""
        return RowReduce("out", simplified(value, relaxed=True), axis, "+")

    def output_of(self, dtype: str, axes: tuple[str, ...]) -> Callable[[Node], Output]:
        """The function that makes the output for the gradient of an input with these axes."""
        if len(axes) == 1:
            return partial(self.reduced, axis=axes[0])
        return partial(self.stored, dtype=dtype, axes=axes)

    # ---- the gradient of the value of each pair

    def seed(self) -> Node:
        """The gradient of the value of each pair for which ``conditions`` hold, in f32 or f64."""
        output = self.output
        assert isinstance(output, Store | RowReduce)
        type = "f64" if output.value.type == "f64" else "f32"
        axes = output.axes if isinstance(output, Store) else (output.axis,)
        seed = cast(variable(f"{self.gradient}[{','.join(axes)}]", output.value.type), type)
        return self.seed_of_rows(output, seed) if isinstance(output, RowReduce) else seed

    def seed_of_rows(self, output: RowReduce, seed: Node) -> Node:
        """The gradient of the values that an output of rows or columns reduces. ``seed``: the gradient of the results
        of the output."""
        axis, other, type = output.axis, "j" if output.axis == "i" else "i", seed.type
        if output.op == "+":
            return seed
        if output.op == MEAN:
            if self.program.when is None:
                return over(seed, cast(variable(_EXTENT[other], "s32"), type))
            ones = where(self.program.when, constant(1, type))
            count = self.computed("count", self.of_pairs(ones, partial(self.reduced, axis=axis)))
            return over(seed, variable(f"{count}[{axis}]", type))
        if output.op in POSITION:
            p = self.program
            at = RowReduce("out", output.value, axis, POSITION[output.op])
            name = self.computed("position", program_of(p.step, p.reduction, p.accumulator, (at,), p.initial, p.when))
            self.conditions.append(node("==", PRED, variable(other, "s32"), variable(f"{name}[{axis}]", "s32")))
            return seed
        if output.op == "logsumexp":
            total = variable(f"{self.result}[{axis}]", output.value.type)
            difference = node("-", type, cast(output.value, type), cast(total, type))
            return times(seed, node("exp", type, difference))
        raise TaskError(
            f"`{output.op}` has no derivative as a reduction of rows or columns; it must be one of + mean max min"
            " logsumexp"
        )

    def selected(self, value: Node) -> Node:
        """A value for the pairs that have a gradient, and 0 for the others."""
        for condition in self.conditions:
            value = where(condition, value)
        return value

    def add(self, element: str, program: Program, gathered: Gathered | None = None) -> None:
        """Adds the result of a program to the gradient of the array of an element."""
        array = array_of(element) if gathered is None else gathered.array
        self.parts.setdefault(array, []).append(Part(self.computed(f"d{array}", program), gathered))

    # ---- sums over k

    def of_sums(self, inside: bool) -> None:
        """Adds the gradients of a program that sums over k. ``inside``: True: gradients of inputs of the step are
        wanted; False: only those of inputs outside of the sum."""
        program, value = self.program, self.output.value
        of_step = derivatives(program.step, self.wanted_in(program.step)) if inside else {}
        initial = program.initial if inside else None
        of_initial = {} if initial is None else derivatives(initial, self.wanted_in(initial))
        inside = bool(of_step or of_initial)
        by_variable = derivatives(value, [*self.wanted_in(value), *([ACCUMULATOR] if inside else [])])
        if not by_variable:
            return
        seed = self.seed()
        values = {x: times(seed, derivative) for x, derivative in by_variable.items()}
        inner = values.pop(ACCUMULATOR, None)
        if inner is not None:
            if program.reduction == MEAN:
                inner = over(inner, cast(variable("K", "s32"), inner.type))
            elif program.reduction != "+":
                known = " ".join(("+", MEAN, *POSITION))
                raise TaskError(
                    f"`{program.reduction}` has no derivative as a reduction over k; it must be one of {known}"
                )
            for x, derivative in of_initial.items():
                part = times(inner, derivative)
                values[x] = plus(values[x], part) if x in values else part
            inner = self.selected(inner) if of_step else None
        self.from_reductions({x: self.selected(y) for x, y in values.items()}, inner)
        for x, derivative in of_step.items() if inner is not None else ():
            self.of_step(x, derivative)

    def from_reductions(self, values: dict[str, Node], inner: Node | None) -> None:
        """Adds the gradients ``values``, which depend only on the pair, and stores ``inner``, the gradient of the
        reduction."""
        every = [*values.values(), *([] if inner is None else [inner])]
        if sum(ACCUMULATOR in variables(x) for x in every) > 1:
            p = self.program
            store = Store("out", variable(ACCUMULATOR, p.accumulator))
            name = self.computed("reduction", program_of(p.step, p.reduction, p.accumulator, (store,), p.initial))
            read = {ACCUMULATOR: variable(f"{name}[i,j]", p.accumulator)}
            values = {x: substituted(value, read) for x, value in values.items()}
            inner = None if inner is None else substituted(inner, read)
        for x, value in values.items():
            self.add(x, self.of_reductions(value, self.output_of(self.types[array_of(x)], axes_of(x))))
        if inner is None:
            return
        inner = simplified(inner, relaxed=True)
        bare = inner.arguments[0] if inner.op == "cast" else inner
        if bare.op == "variable" and set(axes_of(bare.value)) == {"i", "j"}:
            self.inner = inner
            return
        name = self.computed("inner", self.of_reductions(inner, self.output_of(inner.type, ("i", "j"))))
        self.inner = variable(f"{name}[i,j]", inner.type)

    def of_step(self, element: str, derivative: Node) -> None:
        """Adds the gradient of an element of the step: the sum of the gradient of the reduction times
        ``derivative``."""
        axes = axes_of(element)
        reduced = "k" if "k" not in axes else "i" if "j" in axes else "j"
        spatial = [axis for axis in AXES if axis != reduced]
        dtype = self.types[array_of(element)]
        renamed = dict(zip((*spatial, reduced), AXES, strict=True))
        if spatial == ["j", "k"]:  # the rows are those of k, so that the gradient of the reduction is B
            renamed = {"k": "i", "j": "j", "i": "k"}
            spatial = ["k", "j"]
        output = self.output_of(dtype, tuple(renamed[axis] for axis in axes))
        every = terms(derivative, lambda x: not depends_on(reduced, x), MOST_TERMS if self.expand else 1)
        if not all(_is_element(x.inside) for x in every):
            every = terms(derivative, lambda x: not depends_on(reduced, x), 1)
        for term in every:
            outside, inside = term.outside, term.inside
            if reduced == "k":
                outside = times(self.inner, outside)
            else:
                inside = times(self.inner, inside)
            self.add(element, self.contraction(outside, inside, (spatial[0], spatial[1]), reduced, renamed, output))

    def contraction(
        self,
        outside: Node,
        inside: Node,
        spatial: tuple[str, str],
        reduced: str,
        renamed: dict[str, str],
        output: Callable[[Node], Output],
    ) -> Program:
        """The program of ``outside`` · Σ ``inside``, summed over the axis ``reduced``. ``renamed``: axis of the task ->
        axis of the program."""
        total: Node | None = None
        if not depends_on(reduced, inside):
            total = times(cast(self.extent(reduced), inside.type), inside)
        elif inside is self.inner:
            kept = next(axis for axis in spatial if axis != "k")
            sums = self.computed("sums", self.of_pairs(inside, partial(self.reduced, axis=kept)))
            total = variable(f"{sums}[{kept}]", inside.type)
        if total is not None:
            return self.of_pairs(times(outside, total), output, spatial, reduced, renamed)
        for axis in spatial:
            if not any(set(axes_of(x)) == {axis, reduced} for x in variables(inside)):
                ones = self.filled("ones", (axis, reduced), inside.type)
                inside = times(inside, variable(f"{ones}[{axis},{reduced}]", inside.type))
        value = times(outside, variable(ACCUMULATOR, inside.type))
        step = _renamed(simplified(inside, relaxed=True), renamed)
        return program_of(step, "+", inside.type, (output(_renamed(value, renamed)),))

    # ---- maxima and minima over k

    def of_position(self) -> None:
        """Adds the gradients of a maximum or minimum, from the step at its position."""
        program = self.program
        accum = variable(ACCUMULATOR, program.accumulator)
        inner, gathered = self.step_at_position()
        if program.initial is not None:
            inner = node(program.reduction, inner.type, inner, program.initial)

        def known(root: Node) -> Node:
            return rewritten(root, lambda x: inner if x is accum else x)

        value = known(self.output.value)
        by_variable = derivatives(value, [*self.wanted_in(value), *gathered])
        if not by_variable:
            return
        seed = known(self.seed())
        for element, derivative in by_variable.items():
            source = gathered.get(element)
            dtype = self.types[source.array if source else array_of(element)]
            each = self.selected(times(seed, derivative))
            self.add(element, self.of_pairs(each, self.output_of(dtype, axes_of(element))), source)

    def step_at_position(self) -> tuple[Node, dict[str, Gathered]]:
        """The step at the position of the extreme; and element -> gathered array, for the wanted arrays along k that
        the step reads."""
        program, step = self.program, self.program.step
        if program.reduction in ("fmax", "fmin"):  # a NaN is no extreme
            extremes = type_of(step.type)
            step = node(
                program.reduction,
                step.type,
                step,
                constant(extremes.least if program.reduction == "fmax" else extremes.greatest, step.type),
            )
        at = Store("out", variable(ACCUMULATOR, "s32"))
        positions = self.computed("positions", program_of(step, POSITION[program.reduction], "s32", (at,)))
        changes = {"k": variable(f"{positions}[i,j]", "s32")}
        gathered = {}
        for name in variables(program.step):
            if "k" in axes_of(name):
                array = array_of(name)
                each = Gathered(self.name(f"{array}_at"), array, axes_of(name), positions)
                self.steps.append(each)
                element = f"{each.name}[i,j]"
                changes[name] = variable(element, self.types[array])
                if array in self.wanted:
                    gathered[element] = each
        return cast(substituted(program.step, changes), program.accumulator), gathered


def _is_element(x: Node) -> bool:
    """True for an element of an array, possibly cast, or a constant: kernels of products read these directly."""
    x = x.arguments[0] if x.op == "cast" else x
    return not x.arguments


def _renamed(root: Node, axes: dict[str, str]) -> Node:
    """The expression with the axes renamed by ``axes``."""
    extents = {_EXTENT[axis]: _EXTENT[other] for axis, other in axes.items()}
    changes = {}
    for x in variables(root):
        if own := axes_of(x):
            changes[x] = f"{array_of(x)}[{','.join(axes[axis] for axis in own)}]"
        elif x in axes or x in extents:
            changes[x] = axes.get(x) or extents[x]
    return rewritten(
        root, lambda x: variable(changes[x.value], x.type) if x.op == "variable" and x.value in changes else x
    )
