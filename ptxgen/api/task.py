"""``task`` and ``matmul_over``: matmul-like tasks on arrays of NumPy, PyTorch and CuPy."""

from __future__ import annotations

from typing import Any

from ptxgen.api import call_lock, new_arrays, task_call
from ptxgen.api.arrays import View, tensor
from ptxgen.api.gemm import check_same_dtype
from ptxgen.errors import InputError
from ptxgen.operations.task.language.parser import input_ranks, parse
from ptxgen.operations.task.program import Program
from ptxgen.operations.task.semirings import semiring_program


def matmul_over(semiring: str, a: Any, b: Any, out: Any = None) -> Any:
    """The product of ``a`` (M×K) and ``b`` (K×N) over a semiring, an array M×N of the same library as ``a``.

    ``semiring``: plus_times, min_plus, max_plus, min_times, max_times, min_max, max_min, or or_and (of integers, on
    bits). The first word reduces over K, the second combines two elements: min_plus gives the least a[i,k] + b[k,j].
    min and max propagate NaN. Without k the result is the identity of the reduction: infinity for min, minus infinity
    for max, or the greatest and the lowest integer.

    ``a`` and ``b`` have one dtype: a float, or an integer of 8 to 32 bits. Floats of 16 bits are combined in float32.
    The result has their dtype, but int32 where sums or products of integers of 8 or 16 bits are reduced. ``out``: the
    array of the result, or None. ShapeError, DtypeError, InputError: an argument breaks a rule.
    """
    va, vb = tensor(a, "a"), tensor(b, "b")
    check_same_dtype(va, vb)
    program = semiring_program(semiring, va.dtype.name)
    with call_lock.lock:
        result = task_call.call(program, {"A": va, "B": vb}, {}, out, {"A": "a", "B": "b"})
    return new_arrays.result_of(result, a) if out is None else result


class TaskFunction:
    """A task that is called with arrays and numbers, by name or in the order in which the text first names them.

    It returns the result of the output: an array of the library of the first array. Arrays of other types, and numbers
    of other types, make another kernel; other extents and other numbers do not.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.names = tuple(input_ranks(text))

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        given = self._given(arrays, named)
        ranks = input_ranks(self.text)
        views = {name: tensor(given[name], name) for name, rank in ranks.items() if rank}
        numbers = {name: given[name] for name, rank in ranks.items() if not rank}
        kinds = {name: v.dtype.name for name, v in views.items()}
        kinds |= {name: "int" if isinstance(x, int) else "float" for name, x in numbers.items()}
        program = self._program(tuple(sorted(kinds.items())))
        with call_lock.lock:
            result = task_call.call(program, views, numbers, out, {})
        first: View = next(iter(views.values()))
        return new_arrays.result_of(result, first.origin) if out is None else result

    def _given(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name. InputError: there are too many, too few, or unknown ones."""
        if len(arrays) > len(self.names):
            raise InputError(f"the task has {len(self.names)} inputs, {', '.join(self.names)}; {len(arrays)} are given")
        found = dict(zip(self.names, arrays, strict=False))
        for name, x in named.items():
            if name not in self.names or name in found:
                problem = "given twice" if name in found else "no input of the task"
                raise InputError(f"{name} is {problem}; its inputs are {', '.join(self.names)}")
            found[name] = x
        if absent := [name for name in self.names if name not in found]:
            raise InputError(f"{', '.join(absent)} must be given; the inputs of the task are {', '.join(self.names)}")
        return found

    def _program(self, kinds: tuple[tuple[str, str], ...]) -> Program:
        return parse(self.text, dict(kinds))


def task(source: str) -> TaskFunction:
    """A function of arrays and numbers from the text of a task: see the page on tasks.

    TaskError: the text breaks a rule; the message shows the place."""
    return TaskFunction(source)
