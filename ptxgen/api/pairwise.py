"""``pairwise``: results of all pairs of rows of two arrays, reduced as they are computed."""

from __future__ import annotations

import inspect
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from types import CellType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from ptxgen.api import call_lock, drivers, new_arrays, task_call, task_keys, truth_arrays
from ptxgen.api.arrays import View, require_same_memory, tensor
from ptxgen.api.selection import Selection
from ptxgen.api.task import TaskFunction
from ptxgen.api.task_launches import NOT_RECORDED
from ptxgen.arguments import closest, flag, integer, shown, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.task import exact_parts
from ptxgen.operations.task.assembling import REDUCTIONS
from ptxgen.operations.task.fast_distances import fast_compute, fast_distance
from ptxgen.operations.task.problem import CAPACITY_LIMIT, Task
from ptxgen.operations.task.program import MOST_TOP, Program
from ptxgen.operations.task.roles import roles_of
from ptxgen.operations.task.tracing import pairs as forms
from ptxgen.operations.task.tracing.pairs import NAMED_STEPS, Pairs
from ptxgen.problem.base import COMPUTE_MODES
from ptxgen.problem.dtypes import dtype
from ptxgen.tuning.selection import require

LISTED = 1 << 25  #: about the number of pairs that calls of topk list at once; a row with more is listed whole
#: name of a reduction elsewhere -> its name in tasks
_REDUCTION_NAMES = {"sum": "+", "add": "+", "prod": "*", "any": "|", "all": "&"}
KEPT = 64  #: tasks of the caller's functions that an object keeps, at most


class TopK(NamedTuple):
    """The best results of each row, the best first. ``values``, ``indices``: arrays with one row for each row of
    pairs."""

    values: Any
    indices: Any


class Memory(NamedTuple):
    """The bytes that a method needs besides X and Y. ``results``: those of the arrays that it returns; ``workspace``:
    those of its kernels."""

    results: int
    workspace: int


def pairwise(
    X: Any,  # noqa: N803 the paper's and the libraries' names
    Y: Any = None,  # noqa: N803
    step: str | Callable[..., Any] = "sqeuclidean",
    reduce: str = "+",
    finish: Callable[..., Any] | None = None,
    *,
    p: float | None = None,
    when: Callable[..., Any] | None = None,
    precision: str = task_call.EXACT,
    compute: str | None = None,
) -> Pairwise:
    """The results (distances, kernel functions, similarities) of all pairs of a row of ``X`` (M×K) and a row of ``Y``
    (N×K), for methods that reduce results as they are computed. Nothing is computed before a method is called, and no
    method has an array of M·N·K elements.

    ``Y``: None: the rows of ``X``; if results of (i, j) and (j, i) are equal, only half of them are then computed.
    ``step``: a function of two elements, such as ``lambda x, y: abs(x - y)``, in the language of tasks, or a distance
    by SciPy's name: sqeuclidean, euclidean, cityblock, chebyshev, minkowski (with the number ``p``), canberra, hamming,
    jaccard or cosine. ``reduce``: the operation that reduces the steps over K: + * max min fmax fmin & | ^ mean argmax
    argmin; a named distance has its own. ``finish``: a function that computes the result from the reduced value:
    ``ptxgen.sqrt``, ``lambda c: ptxgen.exp(-c)``. ``when``: a condition on indices that selects the pairs to compute:
    ``lambda i, j: i != j``. Numbers that these functions read from outside are scalars: another value compiles nothing.

    ``precision``: exact: results are computed as ``step`` says; fast: squared Euclidean distances are computed from
    sums of squares and a product, and large products of float32 on tensor cores where these are faster; errors are then
    relative to the sums of squares. ``compute``: how tensor cores compute products of float32: tf32 or f32_bf16x6.

    ShapeError, DtypeError, InputError: an argument breaks a rule. TaskError: a function breaks a rule; it is raised
    when a method is called.
    """
    vx = _rows(X, "X")
    vy = vx if Y is None else _rows(Y, "Y")
    if vx.dtype is not vy.dtype:
        raise DtypeError(f"X is {vx.dtype} and Y is {vy.dtype}; they must have one dtype")
    if vx.shape[1] != vy.shape[1]:
        raise ShapeError(f"X has {vx.shape[1]} columns and Y has {vy.shape[1]}; they must be equal")
    require_same_memory("X", vx, "Y", vy)
    given = pairs_of(step, reduce, finish, when, p, vx.shape[1] == 0)
    options = {
        "precision": word("precision", precision, (task_call.EXACT, task_call.FAST)),
        "compute": None if compute is None else word("compute", compute, COMPUTE_MODES.get(vx.dtype.name, ("None",))),
    }
    return Pairwise((X, vx), None if Y is None else (Y, vy), given, None if p is None else float(p), options)


def pairs_of(
    step: str | Callable[..., Any],
    reduce: str,
    finish: Callable[..., Any] | None,
    when: Callable[..., Any] | None,
    p: float | None,
    empty: bool,
) -> Pairs:
    """The functions of ``pairwise``, from its arguments. ``empty``: rows have no elements. InputError: an argument
    breaks a rule."""
    if isinstance(step, str):
        if step not in NAMED_STEPS:
            near = closest(step, NAMED_STEPS)
            rule = f"{', '.join(NAMED_STEPS)}, or a function of two elements" + (f": write {near}" if near else "")
            raise InputError(f"step is {shown(step)}; it must be one of {rule}")
        if reduce != "+":
            raise InputError(f"reduce is {shown(reduce)}; the distance {step} has its own, so it must not be given")
        if NAMED_STEPS[step].takes_p != (p is not None):
            rule = "a positive number with minkowski" if p is None else f"None with {step}"
            raise InputError(f"p is {shown(p)}; it must be {rule}")
    elif p is not None:
        raise InputError(f"p is {shown(p)}; it must be None with a function: write the number in it")
    if p is not None and (isinstance(p, bool) or not isinstance(p, int | float | np.number) or not p > 0):
        raise InputError(f"p is {shown(p)}; it must be a positive number")
    if p == math.inf:
        raise InputError("p is inf; it must be finite: write chebyshev, the limit of these distances")
    if isinstance(reduce, str) and reduce in _REDUCTION_NAMES:
        rule = f"one of {', '.join(REDUCTIONS)}: write {_REDUCTION_NAMES[reduce]}"
        raise InputError(f"reduce is {shown(reduce)}; it must be {rule}")
    word("reduce", reduce, REDUCTIONS)
    if step == "chebyshev" and empty:
        step = "cityblock"  # the greatest of no differences is 0, as their sum is
    return Pairs(
        step if isinstance(step, str) else _function("step", step, "x, y"),
        reduce,
        None if finish is None else _function("finish", finish),
        None if when is None else _function("when", when, "i, j"),
    )


def _rows(x: Any, name: str) -> View:
    v = truth_arrays.view_of(x, name, NOT_RECORDED)
    if len(v.shape) != 2:
        raise ShapeError(f"{name} has shape {v.shape}; it must have two dimensions, rows and elements of a row")
    return v


def _function(name: str, x: Any, parameters: str = "c") -> Callable[..., Any]:
    """The function ``x``, which must take ``parameters``. InputError: it is no function, or takes other parameters."""
    example = f"lambda {parameters}: …"
    if not isinstance(x, FunctionType):
        or_name = " or the name of a distance" if name == "step" else ""
        raise InputError(f"{name} is {shown(x)}; it must be a Python function{or_name}, such as {example}")
    try:
        inspect.signature(x).bind(*parameters.split(", "))
    except TypeError as error:
        raise InputError(f"{name} is a function whose parameters differ: {error}; it must be {example}") from None
    return x


def _task(pairs: Pairs, form: tuple[Any, ...], test: Any, finished: bool) -> TaskFunction:
    """The task of an output. ``form``: a name in ``forms.OUTPUTS``, then the first arguments of the
    function that ``OUTPUTS`` has for the name."""
    name, *words = form
    return TaskFunction(pairs.function(partial(forms.OUTPUTS[name], *words), test, finished), test or pairs.place)


class _Kept(NamedTuple):
    """A task that an object keeps for later calls. ``test``: the test function with which the task was traced: a copy
    with closure cells of its own, to which a later call copies the contents of the cells of its test."""

    task: TaskFunction
    test: Any


def _written(test: Any) -> Any:
    """A key that is equal for functions with the same code, globals and defaults, whatever their closures contain: a
    lambda in a loop is a new function in each iteration. A function with unhashable defaults is its own key."""
    key = (test.__code__, id(test.__globals__), test.__defaults__, tuple((test.__kwdefaults__ or {}).items()))
    try:
        hash(key)
    except TypeError:
        return test
    return key


def _with_own_cells(test: Any) -> Any:
    """A copy of a function whose closure has new cells with the same contents."""
    if test.__closure__ is None:
        return test
    cells = tuple(CellType() for _ in test.__closure__)
    made = FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, cells)
    made.__kwdefaults__ = test.__kwdefaults__
    _copy_cells(test, made)
    return made


def _copy_cells(test: Any, kept: Any) -> None:
    """Gives the cells of ``kept`` the contents of those of ``test``."""
    for x, own in zip(test.__closure__ or (), kept.__closure__ or (), strict=True):
        try:
            own.cell_contents = x.cell_contents
        except ValueError:  # it has no value yet
            del own.cell_contents


#: the tasks of named distances, which all objects share
_shared_task = lru_cache(maxsize=256)(_task)


class _Method(NamedTuple):
    """One method of ``Pairwise``, for its bytes of results. ``form``: the form of its task; ``elements``: the number of
    its results, from M, N and n; ``unit``: what n counts, empty if the method has no n; ``bytes``: bytes of an element,
    0: those of a result; ``others``: further bytes per element; ``tested``: the method takes a test."""

    form: tuple[Any, ...]
    elements: Callable[[int, int, int], int]
    unit: str = ""
    bytes: int = 0
    others: int = 0
    tested: bool = False


def _of_rows(m: int, n: int, count: int) -> int:
    return m


def _counted(m: int, n: int, count: int) -> int:
    return count


_METHODS = {
    "dense": _Method(("matrix",), lambda m, n, _: m * n),
    **{name: _Method(("reduced", name, 1), _of_rows) for name in ("min", "max", "mean", "logsumexp")},
    **{name: _Method(("reduced", name, 1), _of_rows, bytes=4) for name in ("argmin", "argmax")},
    "topk": _Method(("best", False, 1), lambda m, _, n: m * n, "n", others=4),
    "sum": _Method(("reduced", "+", 1), _of_rows),
    "count": _Method(("reduced", "+", 1), _of_rows, bytes=4, tested=True),
    "select": _Method(("listed",), _counted, "the number of pairs", others=8, tested=True),
    "sum_by": _Method(("grouped", "+"), _counted, "the number of groups"),
    "count_by": _Method(("grouped", "+"), _counted, "the number of groups", bytes=4, tested=True),
}


class Pairwise:
    """The results of all M×N pairs (i, j) of rows of two arrays. Methods compute them: ``dense`` gives all results, the
    others reduce results in the kernel that computes them. Each call computes anew. ``shape``: (M, N). ``print`` shows
    the bytes of the results of each method.

    ``axis`` of a method is the axis of pairs that is reduced: 1 (default): one result for each row of X; 0: one for
    each row of Y. ``out`` is the array of the result. ``test`` is a condition on a result, as ``lambda c: c < eps``.
    """

    def __init__(
        self, x: tuple[Any, View], y: tuple[Any, View] | None, pairs: Pairs, p: float | None, options: dict[str, Any]
    ) -> None:
        self._x, self._view = x
        self._y: Any = None if y is None else y[0]
        view = self._view if y is None else y[1]
        self._pairs, self._options, self._tasks = pairs, options, OrderedDict[Any, _Kept]()
        self._numbers: dict[str, Any] = {} if p is None else {"p": p}
        if pairs.named is not None and pairs.named.takes_size:
            self._numbers["size"] = float(self._view.shape[1])
        self._of_rows: dict[str, Any] | None = None
        self.shape = (self._view.shape[0], view.shape[0])

    # ---- results

    def dense(self, out: Any = None) -> Any:
        """All results, as an array M×N."""
        return self._compute(("matrix",), out=out)

    def min(self, axis: int = 1, out: Any = None) -> Any:
        """The least result of each row; NaN if a result of the row is NaN."""
        return self._extremes("min", axis, out)

    def max(self, axis: int = 1, out: Any = None) -> Any:
        """The greatest result of each row; NaN if a result of the row is NaN."""
        return self._extremes("max", axis, out)

    def argmin(self, axis: int = 1, out: Any = None) -> Any:
        """The index of the least result of each row, the first of equal ones, int32. For the distances euclidean and
        minkowski, the sums are compared, not their roots."""
        return self._reduced("argmin", axis, out, finished=not self._pairs.increases)

    def argmax(self, axis: int = 1, out: Any = None) -> Any:
        """The index of the greatest result of each row, as in ``argmin``."""
        return self._reduced("argmax", axis, out, finished=not self._pairs.increases)

    def topk(self, n: int, largest: bool = False, axis: int = 1) -> TopK:
        """The n least results of each row, the least first, and their indices: arrays M×n, with ``axis=0`` N×n. Among
        equal results, the one with the lower index is first. ``largest``: the greatest results instead; unlike
        ``torch.topk``, the least are the default, because distances need these. NaN is greater than all numbers. ``n``:
        up to 65,536; all n use the same kernels. If a row has fewer pairs than n, its remaining elements are infinity
        (-infinity if ``largest``; the greatest or least integer) with the index -1. For the distances euclidean and
        minkowski, the sums are compared, as in ``argmin``."""
        flag("largest", largest)
        n = integer("n", n, 0, MOST_TOP)
        direct = n > self.shape[axis_of(axis)] or self._finishes_all  # what has no pair has no sum
        best = self._compute(("best", largest, axis_of(axis)), None, direct, n=n)
        values, indices = best.values, best.j if axis == 1 else best.i
        if not direct:
            flat = _elementwise(_finishing(self._pairs), values.reshape(-1), self._numbers)
            values = flat.reshape(values.shape)
        return TopK(values, indices)

    def kmin(self, n: int, axis: int = 1) -> TopK:
        """``topk`` of the least results."""
        return self.topk(n, False, axis)

    def kmax(self, n: int, axis: int = 1) -> TopK:
        """``topk`` of the greatest results."""
        return self.topk(n, True, axis)

    def sum(self, axis: int = 1, out: Any = None) -> Any:
        """The sum of the results of each row."""
        return self._reduced("+", axis, out)

    def mean(self, axis: int = 1, out: Any = None) -> Any:
        """The mean of the results of each row."""
        return self._reduced("mean", axis, out)

    def logsumexp(self, axis: int = 1, out: Any = None) -> Any:
        """The logarithm of the sum of the exponentials of the results of each row."""
        return self._reduced("logsumexp", axis, out)

    def count(self, test: Callable[[Any], Any], axis: int = 1, out: Any = None) -> Any:
        """The number of results of each row for which ``test`` holds, int32."""
        return self._reduced("+", axis, out, _function("test", test))

    def select(
        self,
        test: Callable[[Any], Any],
        *,
        capacity: int | None = None,
        overflow: str = "grow",
        sorted: bool = False,
    ) -> Selection:
        """The results for which ``test`` holds, as ``values``, with their indices ``i`` and ``j``. ``capacity``,
        ``overflow``, ``sorted``: as for a task with lists."""
        selected: Selection = self._compute(
            ("listed",), _function("test", test), capacity=capacity, overflow=overflow, sorted=sorted
        )
        return selected

    def sum_by(
        self,
        gx: Any,
        gy: Any,
        *,
        groups: Any = None,
        deterministic: bool = False,
        keys: str = task_keys.DENSE,
        out: Any = None,
    ) -> Any:
        """The sums of the results of pairs with equal keys, an array G×H. ``gx``: keys of the rows of X, integers from
        0 to G - 1; ``gy``: keys of the rows of Y, from 0 to H - 1. One of them may be None: then each row is a group of
        its own. ``groups``: (G, H); None: the shape of ``out``, or one more than the greatest keys, which are read
        back. ``deterministic``: sums do not depend on timing, which takes M·N elements of memory. ``keys``: "any": keys
        are any integers, and the result is a named tuple of the sums (``values``), and the distinct keys of ``rows``
        and ``columns``, which ascend; ``groups`` and ``out`` must be None."""
        return self._by(None, gx, gy, groups=groups, deterministic=deterministic, keys=keys, out=out)

    def count_by(
        self,
        test: Callable[[Any], Any],
        gx: Any,
        gy: Any,
        *,
        groups: Any = None,
        keys: str = task_keys.DENSE,
        out: Any = None,
    ) -> Any:
        """The numbers of pairs with equal keys for which the test holds, int32. The keys are those of ``sum_by``."""
        return self._by(_function("test", test), gx, gy, groups=groups, keys=keys, out=out)

    # ---- memory

    def memory(self, method: str, n: int = 1) -> Memory:
        """The bytes that a method needs besides X and Y on their device, with the kernel that would be chosen now; for
        ``topk`` about the most that it needs. ``n``: that of ``topk``; the number of pairs of ``select``; the number of
        groups of ``sum_by`` and ``count_by``. InputError: there is no such method."""
        word("method", method, _METHODS)
        form, n = _METHODS[method], integer("n", n, 0, CAPACITY_LIMIT)
        results = self._result_bytes(form, n)
        if form.form[0] == "best":  # lists of pairs, of values and indices, and as many records in order
            pairs = min(math.prod(self.shape), max(LISTED, self.shape[1]))
            return Memory(results, 2 * self._result_bytes(_METHODS["select"], pairs))
        program = self._program(form.form, _any if form.tested else None)
        roles, (rows, columns) = roles_of(program), self.shape
        device, k, extra = drivers.driver_of(self._view).device, self._view.shape[1], 0
        compute = self._options["compute"] or ""
        if self._options["precision"] == task_call.FAST:
            fast = fast_distance(roles)
            if fast is not None:
                roles = roles_of(fast.program)
                extra = (rows + columns) * dtype(roles.program.accumulator).bytes
            compute = compute or fast_compute(roles, (rows, columns, k), device)
        fields: dict[str, Any] = {"compute": compute}
        fields |= {"groups": f"{n},1"} if form.form[0] == "grouped" else {}
        fields |= {"capacity": n} if form.form[0] == "listed" else {}
        problem = Task(rows, columns, k, roles.layout, "", text=Task.text_of(roles), **fields)
        filtered = exact_parts.chosen(problem, device)
        launched = [problem, *(x.problem for x in filtered.stages)] if filtered else [problem]
        plans = [plan_for(x, require(x, device)[0].config, device) for x in launched]
        extra += 4 * sum(filtered.scratch.values()) if filtered else 0
        workspace = max(plan.launch(lower(x)).workspace for plan, x in zip(plans, launched, strict=True))
        return Memory(results, workspace + extra)

    def _result_bytes(self, method: _Method, n: int) -> int:
        size = method.bytes or dtype(Task.result_type(self._program(("matrix",)))).bytes
        return method.elements(*self.shape, n) * (size + method.others)

    def __repr__(self) -> str:
        step, (m, n) = self._pairs.step, self.shape
        name = step if isinstance(step, str) else getattr(step, "__name__", "a function")
        elements = f"{self._view.shape[1]} elements of {self._view.dtype.name}"
        return f"Pairwise({name}, {m}×{n} pairs of rows with {elements}, {self._options['precision']})"

    def __str__(self) -> str:
        lines = [repr(self), "bytes of the results of each method:"]
        for name, method in _METHODS.items():
            size = self._result_bytes(method, 1)
            lines.append(f"  {name:<10}{size:>17,}" + (f" · {method.unit}" if method.unit else ""))
        return "\n".join(lines)

    # ---- calls

    def _compute(
        self, form: tuple[Any, ...], test: Callable[..., Any] | None = None, finished: bool = True, **given: Any
    ) -> Any:
        """Calls the task of an output. ``given``: keys and options of the call."""
        arrays = {"X": self._x} if self._y is None else {"X": self._x, "Y": self._y}
        if finished:
            arrays |= self._numbers_of_rows()
        given = {**arrays, **self._numbers, **self._options, **given}
        if test is None or test.__closure__ is None:
            return self._task(form, test, finished)(**given)
        with call_lock.lock:  # the cells of the kept test have the contents of this one until the call ends
            return self._task(form, test, finished)(**given)

    def _reduced(
        self, op: str, axis: int, out: Any, test: Callable[..., Any] | None = None, finished: bool = True
    ) -> Any:
        return self._compute(("reduced", op, axis_of(axis)), test, finished, out=out)

    def _extremes(self, op: str, axis: int, out: Any) -> Any:
        """The extremes of each row. An increasing last step of a distance, such as a root, is applied to the extremes
        alone."""
        if self._finishes_all or 0 in self.shape:  # what has no pair is the identity of op
            return self._reduced(op, axis, out)
        sums = self._reduced(op, axis, None, finished=False)
        return _elementwise(_finishing(self._pairs), sums, self._numbers, out)

    @property
    def _finishes_all(self) -> bool:
        """True if the last step of the distance (a root) must be computed for each pair; False: for the extremes
        alone."""
        named = self._pairs.named
        return not self._pairs.increases or named is None or named.finish is None or self._pairs.when is not None

    def _numbers_of_rows(self) -> dict[str, Any]:
        """The vectors with one number for each row, such as inverse norms, that named distances read. They are computed
        once."""
        named = self._pairs.named
        if named is None or not named.of_rows:
            return {}
        if self._of_rows is None:
            arrays = {"nx": self._x} if self._y is None else {"nx": self._x, "ny": self._y}
            self._of_rows = {name: _NUMBERS_OF_ROWS[named.of_rows](x) for name, x in arrays.items()}
        return self._of_rows

    def _by(self, test: Callable[..., Any] | None, gx: Any, gy: Any, **options: Any) -> Any:
        given = {name: x for name, x in (("gx", gx), ("gy", gy)) if x is not None}
        if not given:
            raise InputError("gx and gy are None; one of them must be an array of keys")
        for (name, x), n in zip((("gx", gx), ("gy", gy)), self.shape, strict=True):
            if x is not None and (shape := _shape(x, name)) != (n,):
                raise ShapeError(f"{name} has shape {shape}; it must be ({n},), a key for each row")
        return self._compute(("grouped", "+"), test, **given, **options)

    def _task(self, form: tuple[Any, ...], test: Callable[..., Any] | None, finished: bool) -> TaskFunction:
        if self._pairs.shared and test is None:
            return _shared_task(self._pairs, form, None, finished)
        key = (form, None if test is None else _written(test), finished)
        kept = self._tasks.pop(key, None)
        if kept is None:
            own = None if test is None else _with_own_cells(test)
            kept = _Kept(_task(self._pairs, form, own, finished), own)
            while len(self._tasks) >= KEPT:
                self._tasks.popitem(last=False)
        elif test is not None:
            _copy_cells(test, kept.test)
        self._tasks[key] = kept
        return kept.task

    def _program(self, form: tuple[Any, ...], test: Callable[..., Any] | None = None) -> Program:
        """The program of an output."""
        element_type, named = self._view.dtype.name, self._pairs.named
        types: dict[str, str | None] = (
            {"X": element_type} if self._y is None else {"X": element_type, "Y": element_type}
        )
        types |= dict.fromkeys(self._numbers, "float")
        if named is not None and named.of_rows:
            of_rows = _float(element_type) if named.of_rows == "inverse_norm" else "s32"
            types |= dict.fromkeys(("nx",) if self._y is None else ("nx", "ny"), of_rows)
        if form[0] == "grouped":
            types |= {"gx": "s32", "gy": "s32"}
        return self._task(form, test, True).program(types)


def _float(element_type: str) -> str:
    """The type of the norms of rows whose elements have this type."""
    return element_type if element_type == "f64" else "f32"


def _shape(x: Any, name: str) -> tuple[int, ...]:
    """The shape of an array of keys, which may have integers of 64 bits."""
    return tuple(x.shape) if task_keys.is_wide(x) else truth_arrays.view_of(x, name, NOT_RECORDED).shape


def axis_of(axis: Any) -> int:
    """``axis`` as an integer. InputError: it is neither 0 nor 1."""
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or axis not in (0, 1):
        raise InputError(f"axis is {shown(axis)}; it must be 1, for results of each row of X, or 0, of Y")
    return int(axis)


# ---- vectors


def _elementwise(task: TaskFunction, x: Any, numbers: Mapping[str, Any], out: Any = None) -> Any:
    """The values that a task computes from each element of the vector ``x``, its input ``V``. Operands A and B have no
    elements."""
    v = tensor(x, "V")
    element = dtype(_float(v.dtype.name))
    shapes = {"A": (v.shape[0], 0), "B": (0, 1)}
    empty = {name: new_arrays.empty_array(x, shape, element) for name, shape in shapes.items()}
    return task(**empty, V=x, **numbers, out=out)


@lru_cache(maxsize=64)
def _finishing(pairs: Pairs) -> TaskFunction:
    return TaskFunction(pairs.finishing())


_NO_SUM = "reduce (k) { accum += A[i, k] * B[k, j]; }"
_INVERSE_ROOT = TaskFunction(f"where (i, j) {{ {_NO_SUM} C[i] += 1 / sqrt(V[i]); }}")


@cache
def _squares(element_type: str) -> TaskFunction:
    """The task of the sums of squares of the rows of an array."""
    return TaskFunction(f"where (i, j) {{ {_NO_SUM} C[i] += {element_type}(X[i, j]) * {element_type}(X[i, j]); }}")


_COUNT = TaskFunction(f"where (i, j) {{ {_NO_SUM} C[i] += X[i, j] != 0; }}")


def _sums_of_rows(task: TaskFunction, x: Any, element_type: str) -> Any:
    """The sums of the rows of ``x`` by a task, whose operands A and B have no elements."""
    rows, columns = x.shape
    shapes = {"A": (rows, 0), "B": (0, columns)}
    return task(**{name: new_arrays.empty_array(x, shape, dtype(element_type)) for name, shape in shapes.items()}, X=x)


def _inverse_norms_of(x: Any) -> Any:
    element_type = _float(truth_arrays.view_of(x, "X", NOT_RECORDED).dtype.name)
    return _elementwise(_INVERSE_ROOT, _sums_of_rows(_squares(element_type), x, element_type), {})


#: kind of number that a named distance reads for each row -> the function that computes these numbers
_NUMBERS_OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "inverse_norm": _inverse_norms_of,
    "count": lambda x: _sums_of_rows(_COUNT, x, "s32"),
}


def _any(c: Any) -> Any:
    """Some condition on a result: the memory that a method needs does not depend on which one."""
    return c == c
