"""``pairwise`` on tensors, with gradients.

Each method is a task of ``ptxgen.torch.tasks``. Extremes and the best results of rows are computed again from the two
rows of each listed pair, so that their gradients need no array with an element for each pair (i, j).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ptxgen.api import task_call
from ptxgen.api.pairwise import LISTED, TopK, axis_of, pairs_of
from ptxgen.api.task import TracedTask
from ptxgen.arguments import flag, integer, word
from ptxgen.errors import DeviceError, DtypeError, InputError, ShapeError, TaskError
from ptxgen.expr.node import variables
from ptxgen.operations.task.program import EXTENTS, MEAN, MOST_TOP
from ptxgen.operations.task.tracing import pairs as forms
from ptxgen.operations.task.tracing.pairs import Pairs
from ptxgen.torch import tasks
from ptxgen.torch.operator import is_grad_enabled
from ptxgen.torch.tasks import TaskFunction

#: the reductions over K of which listed pairs are computed
LISTED_REDUCTIONS = ("+", "*", "max", "min", MEAN, "argmax", "argmin", "&", "|", "^")


def pairwise(
    X: Tensor,  # noqa: N803 the paper's and the libraries' names
    Y: Tensor | None = None,  # noqa: N803
    step: str | Callable[..., Any] = "sqeuclidean",
    reduce: str = "+",
    finish: Callable[..., Any] | None = None,
    *,
    p: float | None = None,
    when: Callable[..., Any] | None = None,
    precision: str = task_call.EXACT,
) -> Pairwise:
    """The results of all pairs of a row of ``X`` (M×K) and a row of ``Y`` (N×K), two tensors on one device, for methods
    that reduce them. Results of floats have gradients. The arguments are those of ``ptxgen.pairwise``; a function is
    traced once for all calls with the same function object.

    The gradients of ``euclidean`` and ``minkowski`` between equal rows are 0, as those of ``torch.cdist``. ShapeError,
    DtypeError, DeviceError, InputError: an argument breaks a rule. TaskError: a function breaks a rule, when a method
    is called; or an operator has no derivative, in the backward step: the message names the operator.
    """
    _check("X", X)
    if Y is not None:
        _check("Y", Y)
        if X.dtype is not Y.dtype:
            raise DtypeError(f"X is {X.dtype} and Y is {Y.dtype}; they must have one dtype")
        if X.shape[1] != Y.shape[1]:
            raise ShapeError(f"X has {X.shape[1]} columns and Y has {Y.shape[1]}; they must be equal")
        if X.device != Y.device:
            raise DeviceError(f"X is on {X.device} and Y on {Y.device}; they must be on one device")
    known = _tasks(step, reduce, finish, when, p, not X.shape[1])
    fast = word("precision", precision, (task_call.EXACT, task_call.FAST)) == task_call.FAST
    return Pairwise(tasks.as_bytes(X), tasks.as_bytes(Y), known, {} if p is None else {"p": float(p)}, fast)


def _check(name: str, x: Any) -> None:
    """InputError, ShapeError, DtypeError: the argument is no matrix, or of another type than those of tasks."""
    if not isinstance(x, Tensor):
        raise InputError(f"{name} is of type {type(x).__name__}; it must be a torch.Tensor")
    if x.dim() != 2:
        raise ShapeError(f"{name} has shape {tuple(x.shape)}; it must have two dimensions, rows and elements of a row")
    tasks.element_type(name, tasks.as_bytes(x))


class PairsTasks:
    """The tasks of all calls of ``pairwise`` with the same functions. ``takes_size``, ``of_rows``: as in ``NamedStep``;
    ``increases``, ``finishes``: as in ``Pairs``; ``limited``: True if ``when`` excludes pairs; ``divisible``: True if
    parts of the rows can be computed one after the other."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs, self._made = pairs, dict[Any, TaskFunction]()
        self.increases, self.finishes, self.limited = pairs.increases, pairs.finishes, pairs.when is not None
        self.name = pairs.step if isinstance(pairs.step, str) else pairs.step.__name__
        self.takes_size = pairs.named is not None and pairs.named.takes_size
        self.of_rows = "" if pairs.named is None else pairs.named.of_rows
        self.reduce = pairs.reduce if pairs.named is None else pairs.named.reduce
        self.key = str(next(_count))
        _known[self.key] = self

    @cached_property
    def divisible(self) -> bool:
        if self._pairs.when is None:
            return True
        function = replace(self._pairs, step="sqeuclidean", finish=None).function(forms.all_results)
        when = TracedTask(function, self._pairs.place).program({"X": "f32"}).when
        return when is not None and not set(EXTENTS) & set(variables(when))

    def task(self, form: Any, finished: bool) -> TaskFunction:
        """The task of an output. ``form``: as in ``ptxgen.api.pairwise``, or "listed" or "finishing": the functions of
        ``Pairs``."""
        key = form, finished
        if key not in self._made:
            if isinstance(form, str):
                function = self._pairs.listed() if form == "listed" else self._pairs.finishing()
            else:
                name, *words = form
                function = self._pairs.function(partial(forms.OUTPUTS[name], *words), finished=finished)
            self._made[key] = TaskFunction(function, self._pairs.place)
        return self._made[key]


_count = itertools.count()
#: the tasks by their keys, which are constants in compiled code
_known: WeakValueDictionary[str, PairsTasks] = WeakValueDictionary()


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _tasks(step: Any, reduce: str, finish: Any, when: Any, p: float | None, empty: bool) -> PairsTasks:
    return _tasks_of(replace(pairs_of(step, reduce, finish, when, p, empty), differentiable=True))


_tasks_of = lru_cache(maxsize=256)(PairsTasks)


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _task_key(key: str, form: Any, finished: bool) -> str:
    return _known[key].task(form, finished).key


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _divisible(key: str) -> bool:
    return _known[key].divisible


def _inverse_norms(x: Tensor) -> Tensor:
    return (x if x.dtype is torch.float64 else x.float()).square().sum(1).rsqrt()


def _counts(x: Tensor) -> Tensor:
    return (x != 0).sum(1, dtype=torch.int32)


#: a number that a named distance reads for each row -> the function that computes these numbers
_NUMBERS_OF_ROWS: dict[str, Callable[[Tensor], Tensor]] = {"inverse_norm": _inverse_norms, "count": _counts}


class Pairwise:
    """The results of all pairs (i, j) of rows of two tensors. Methods compute them, each call anew. ``shape``: (M, N).

    ``axis`` of a method is the axis of pairs that is reduced: 1 (default): one result for each row of X; 0: one for
    each row of Y. ``min``, ``max`` and ``topk`` find the indices with one kernel, and then compute the results of these
    pairs alone; their gradients go to these pairs.
    """

    def __init__(self, x: Tensor, y: Tensor | None, known: PairsTasks, numbers: dict[str, float], fast: bool) -> None:
        self._known, self._fast, self._one = known, fast, y is None
        self._rows = (x, x if y is None else y)
        self._numbers = {**numbers, "size": float(x.shape[1])} if known.takes_size else numbers
        self.shape = (self._rows[0].shape[0], self._rows[1].shape[0])

    def dense(self) -> Tensor:
        """All results, a tensor M×N; 0 for pairs that ``when`` excludes."""
        return self._computed(("matrix",), self._whole(True))

    def sum(self, axis: int = 1) -> Tensor:
        """The sum of the results of each row."""
        return self._reduced("+", axis)

    def mean(self, axis: int = 1) -> Tensor:
        """The mean of the results of each row."""
        return self._reduced(MEAN, axis)

    def logsumexp(self, axis: int = 1) -> Tensor:
        """The logarithm of the sum of the exponentials of the results of each row."""
        return self._reduced("logsumexp", axis)

    def argmin(self, axis: int = 1) -> Tensor:
        """The index of the least result of each row, the first of equal ones, int64; -1 where there is no pair."""
        return self._position("argmin", axis)

    def argmax(self, axis: int = 1) -> Tensor:
        """The index of the greatest result of each row, as in ``argmin``."""
        return self._position("argmax", axis)

    def min(self, axis: int = 1) -> Tensor:
        """The least result of each row; NaN if a result of the row is NaN. The gradient goes to the first pair that has
        it."""
        return self._results_at("min", self.argmin(axis)[:, None], axis)[:, 0]

    def max(self, axis: int = 1) -> Tensor:
        """The greatest result of each row, as ``min``."""
        return self._results_at("max", self.argmax(axis)[:, None], axis)[:, 0]

    def topk(self, n: int, largest: bool = False, axis: int = 1) -> TopK:
        """The n least results of each row, the least first, and their indices (int64), as ``topk`` of
        ``ptxgen.pairwise``. ``values`` have gradients."""
        n, axis = integer("n", n, 0, MOST_TOP), axis_of(axis)
        task = _task_key(self._known.key, ("best", flag("largest", largest), axis), not self._known.increases)
        given = self._whole(not self._known.increases, detached=True)
        indices = tasks.best_indices(task, n, {**given, "n": n}, self._fast).long()
        return TopK(self._results_at("max" if largest else "min", indices, axis), indices)

    def kmin(self, n: int, axis: int = 1) -> TopK:
        """``topk`` of the least results."""
        return self.topk(n, False, axis)

    def kmax(self, n: int, axis: int = 1) -> TopK:
        """``topk`` of the greatest results."""
        return self.topk(n, True, axis)

    def __repr__(self) -> str:
        (m, n), x = self.shape, self._rows[0]
        return f"Pairwise({self._known.name}, {m}×{n} pairs of rows with {x.shape[1]} elements of {x.dtype})"

    # ---- calls

    def _of_rows(self, rows: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The vectors with one number for each row that the distance reads, of one or two tensors of rows."""
        name = self._known.of_rows
        return tuple([_NUMBERS_OF_ROWS[name](x) for x in rows]) if name else ()

    def _given(self, rows: tuple[Tensor, ...], of_rows: tuple[Tensor, ...]) -> dict[str, Any]:
        """The arguments of a task. ``rows``: X, and Y if it is another tensor."""
        named = {**dict(zip("XY", rows, strict=False)), **dict(zip(("nx", "ny"), of_rows, strict=False))}
        return {**named, **self._numbers}

    def _whole(self, finished: bool, detached: bool = False) -> dict[str, Any]:
        """The arguments of a task of all pairs. ``detached``: no gradients are recorded."""
        rows = self._rows[:1] if self._one else self._rows
        rows = tuple([x.detach() for x in rows]) if detached else rows
        return self._given(rows, self._of_rows(rows) if finished else ())

    def _computed(self, form: Any, given: dict[str, Any], finished: bool = True) -> Tensor:
        """The result of a task. ``form``, ``finished``: as for ``PairsTasks.task``."""
        return tasks.result(_task_key(self._known.key, form, finished), given, self._fast)

    def _position(self, op: str, axis: int) -> Tensor:
        finished = not self._known.increases
        return self._computed(("reduced", op, axis_of(axis)), self._whole(finished, detached=True), finished).long()

    def _reduced(self, op: str, axis: int) -> Tensor:
        """A reduction of rows. A backward step has an element for each pair, so parts of the rows are computed one
        after the other if gradients are recorded."""
        form, (m, n) = ("reduced", op, axis_of(axis)), self.shape
        records = is_grad_enabled() and any(x.requires_grad for x in self._rows)
        if not records or m * n <= LISTED or not _divisible(self._known.key):
            return self._computed(form, self._whole(True))
        kept = 1 - axis
        count, of_rows, parts = max(1, LISTED // self.shape[axis]), self._of_rows(self._rows), []
        for first in range(0, self.shape[kept], count):
            given = self._given(_cut(self._rows, kept, first, count), _cut(of_rows, kept, first, count))
            number = {("first_i", "first_j")[kept]: first} if self._known.limited else {}
            parts.append(self._computed(form, {**given, **number}))
        return torch.cat(parts)

    # ---- pairs

    def _results_at(self, op: str, indices: Tensor, axis: int) -> Tensor:
        """The results of the pairs of each row and its ``indices``; the identity of ``op`` where an index is -1."""
        if self._known.reduce not in LISTED_REDUCTIONS:
            listed = " ".join(LISTED_REDUCTIONS)
            raise TaskError(
                f"`{self._known.reduce}` is no reduction of listed pairs, as min, max and topk have; it must be one of"
                f" {listed}"
            )
        if 0 in (*self.shape, *indices.shape):
            return self._reduced(op, axis)[:, None].expand(indices.shape)
        own = torch.arange(indices.shape[0], device=indices.device)[:, None].expand(indices.shape).reshape(-1)
        other = indices.clamp(min=0).reshape(-1)
        i, j = (own, other) if axis == 1 else (other, own)
        count, total = max(1, LISTED // max(1, self._rows[0].shape[1])), indices.numel()
        if total <= count:
            values = self._listed(i, j)
        else:
            cuts = [slice(first, first + count) for first in range(0, total, count)]
            values = torch.cat([checkpoint(self._listed, i[x], j[x], use_reentrant=False) for x in cuts])
        values = values.reshape(indices.shape)
        if not self._known.limited and indices.shape[1] <= self.shape[axis]:
            return values
        return torch.where(indices < 0, _identity(op, values.dtype), values)

    def _listed(self, i: Tensor, j: Tensor) -> Tensor:
        """The results of the pairs (i, j)."""
        x, y = (rows.index_select(0, at) for rows, at in zip(self._rows, (i, j), strict=True))
        p = {name: value for name, value in self._numbers.items() if name == "p"}
        empty = [x.new_empty(shape, dtype=torch.float32) for shape in ((x.shape[0], 0), (0, x.shape[1]), (0, 1))]
        reductions = self._computed("listed", {"A": empty[0], "B": empty[1], "P": x, "R": y, **p})
        if not self._known.finishes:
            return reductions
        named = dict(zip(("nx", "ny"), self._of_rows((x, y)), strict=False))
        return self._computed("finishing", {"A": empty[0], "B": empty[2], "V": reductions, **named, **self._numbers})


def _cut(rows: tuple[Tensor, ...], at: int, first: int, count: int) -> tuple[Tensor, ...]:
    """``rows``, with ``count`` rows from ``first`` on in place of those of the tensor at ``at``."""
    return tuple([x[first : first + count] if n == at else x for n, x in enumerate(rows)])


def _identity(op: str, dtype: torch.dtype) -> float:
    """The identity of min or max for values of a type."""
    if dtype.is_floating_point:
        return float("inf") if op == "min" else float("-inf")
    known = torch.iinfo(dtype)
    return int(known.max if op == "min" else known.min)
