"""``task`` and ``matmul_over``: matmul-like tasks on arrays of NumPy, PyTorch and CuPy."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from types import FunctionType
from typing import Any

import numpy as np

from ptxgen.api import (
    call_lock,
    launches,
    new_arrays,
    selection,
    task_call,
    task_keys,
    task_launches,
    task_outputs,
    truth_arrays,
)
from ptxgen.api.arrays import View
from ptxgen.api.gemm import check_same_dtype
from ptxgen.api.unique_keys import dtype_name
from ptxgen.arguments import closest, flag, shown, word
from ptxgen.errors import DtypeError, InputError
from ptxgen.operations.task.language.texts import input_ranks, parse
from ptxgen.operations.task.program import ACCUMULATOR, Program
from ptxgen.operations.task.semirings import TRUTH, semiring_program
from ptxgen.operations.task.truth_values import with_truth_values
from ptxgen.problem.dtypes import dtype, from_numpy


def matmul_over(semiring: str, a: Any, b: Any, out: Any = None) -> Any:
    """The product of ``a`` (M×K) and ``b`` (K×N) over a semiring, an array M×N of the same library as ``a``.

    ``semiring``: plus_times, min_plus, max_plus, min_times, max_times, min_max, max_min, or or_and (logical for truth
    values, bitwise for integers). The first word is the reduction over K, the second combines two elements: min_plus
    gives the least a[i,k] + b[k,j]. min and max propagate NaN. If K is 0, the result is the identity of the reduction:
    infinity for min, minus infinity for max, or the greatest and the lowest integer.

    ``a`` and ``b`` have one dtype: a float, an integer of 8 to 32 bits, or bool, which is uint8 except in or_and.
    Floats of 16 bits are combined in float32. The result has the same dtype, but int32 if the semiring adds or
    multiplies integers of 8 or 16 bits. ``out``: the array of the result, or None. ShapeError, DtypeError, InputError:
    an argument breaks a rule.
    """
    cached = task_launches.arguments_of(semiring, (a, b), None, out)
    if cached is not None and (ready := launches.cached(cached[0])) is not None:
        result = task_launches.launched(cached, ready, out)
        if result is not None:
            return result
    recording = task_launches.recording(cached, (a, b), out)
    va, vb = (truth_arrays.view_of(x, name, recording) for x, name in ((a, "a"), (b, "b")))
    check_same_dtype(va, vb)
    truth = semiring == "or_and" and new_arrays.is_truth(a) and new_arrays.is_truth(b)
    program = semiring_program(semiring, TRUTH if truth else va.dtype.name)
    with call_lock.lock:
        options = task_call.Options(recording=recording)
        result = task_call.call(program, {"A": va, "B": vb}, {}, out, {"A": "a", "B": "b"}, options)
        recording.store(result, None, {})
    return new_arrays.result_of(result, a) if out is None else result


class TaskFunction:
    """A task that is called with arrays and numbers, by name or in order. The order is that of the parameters of its
    function, or that in which its text first names them.

    A call returns the result of the task's output, an array of the library of the first array. Other dtypes of arrays
    need another kernel; other extents and other numbers do not. ShapeError, DtypeError, InputError: an argument breaks
    a rule.
    """

    def __init__(self, source: Any, place: FunctionType | None = None) -> None:
        """``source``: a text, a function, or another object with the attributes of ``TextTask``; ``place``: a function,
        whose line is named in errors of functions that have no source line; None: ``source``."""
        if isinstance(source, str):
            self.source: Any = TextTask(source)
        else:
            self.source = source if hasattr(source, "parameters") else TracedTask(source, place)
        self._states = self.source.state if isinstance(self.source, TracedTask) else None
        self.names = self.source.parameters

    def __call__(
        self,
        *arrays: Any,
        out: Any = None,
        groups: tuple[int, int] | Mapping[str, tuple[int, int]] | None = None,
        deterministic: bool = False,
        capacity: int | None = None,
        overflow: str = "grow",
        sorted: bool = False,
        algebra: bool = True,
        compute: str | None = None,
        precision: str = task_call.EXACT,
        keys: str = task_keys.DENSE,
        **named: Any,
    ) -> Any:
        """The result of the task: an array, or a ``Selection`` with the lists of selected results. A task with several
        outputs returns a named tuple; lists of a batch are a tuple, one ``Selection`` per item.

        ``out``: the array of the result, or None; for several outputs, a mapping of arrays by name. ``groups``: (G, H),
        the extents of a result in groups, whose elements are selected by group keys; for several outputs also a mapping
        by name; None: the shape of ``out``, or one more than the greatest keys, which are read back from the arrays
        (not during a CUDA graph capture). Pairs (i, j) with a key out of range are not reduced; for host arrays, their
        number is reported by InputError. ``deterministic``: sums in groups do not depend on timing.

        ``capacity``: the number of elements that lists have room for; None: 1024, or one for each 64 pairs if that is
        more, and more if an earlier call like this one had more results. ``overflow``: what happens if there are more
        results. "grow": the task is computed again with lists for all (not during a CUDA graph capture); "error":
        CapacityError, which has the number of results; "truncate": the lists have as many results as fit. ``sorted``:
        lists are in the order of (i, j); i and j must be among their values.

        ``algebra``: the task may be rewritten by laws that hold for finite numbers; False: it is computed as written.
        ``compute``: tf32: sums of products of float32 are computed on tensor cores, from operands rounded to tf32.
        ``precision``: exact: results are computed as the text says. For lists by a threshold of large float32 sums of
        products, tensor cores may select candidates, each of which is then computed in float32 (only with ``algebra``).
        fast: sums of squares of differences may be computed from sums of squares and products, with errors relative to
        these sums; and if ``compute`` is None, products of float32 may be computed as f32_bf16x6 where that is faster.

        ``keys``: dense: group keys are integers of 8 to 64 bits, from 0 to the number of groups - 1. any: group keys
        are any integers of 8 to 64 bits, which are numbered first (``unique_keys``). A result in groups is then a named
        tuple of the values, the distinct keys of rows, and those of columns.
        """
        if keys != task_keys.DENSE:
            word("keys", keys, (task_keys.DENSE, task_keys.ANY))
            options_of_call = {
                **{"deterministic": deterministic, "capacity": capacity, "overflow": overflow, "sorted": sorted},
                **{"algebra": algebra, "compute": compute, "precision": precision},
            }
            given = self.given(arrays, named)
            return task_keys.call(self, self.program(types_of(given)), given, out, groups, options_of_call)
        key = (
            None if self._states is None else self._states(),
            groups if groups is None else _hashable(groups),
            deterministic,
            capacity,
            overflow,
            sorted,
            algebra,
            compute,
            precision,
        )
        every = (*arrays, *named.values()) if named else arrays
        cached = task_launches.arguments_of(self, every, (len(arrays), *named), out, key)
        if cached is not None and (ready := launches.cached(cached[0])) is not None:
            result = task_launches.launched(cached, ready, out, self.source.numbers)
            if result is not None:
                return result
        given, options = self.given(arrays, named), selection.Options(capacity, overflow, sorted)
        if any(map(task_keys.is_wide, given.values())):
            same: dict[str, Any] = {
                **{"out": out, "groups": groups, "deterministic": deterministic, "capacity": capacity},
                **{"overflow": overflow, "sorted": sorted, "algebra": algebra, "compute": compute},
            }
            arguments = task_keys.narrowed(lambda: self.program(types_of(given)), given)
            return self(**arguments, **same, precision=precision)
        how = (
            flag("algebra", algebra),
            word("compute", "" if compute is None else compute),
            word("precision", precision, (task_call.EXACT, task_call.FAST)),
        )
        numbers = {name: _number(x) for name, x in given.items() if _is_number(x)}
        around = self.source.numbers()
        scalars = {**around, **numbers}
        recording = task_launches.recording(cached, every, out)
        arrays_given = {name: x for name, x in given.items() if name not in numbers and x is not None}
        views = {name: _view(x, name, recording) for name, x in arrays_given.items()}
        if not views:
            raise InputError(f"the inputs are {', '.join(given)}; one of them must be an array")
        types: dict[str, str | None] = {name: None if x is None else "" for name, x in given.items()}
        types |= {name: v.dtype.name for name, v in views.items()} | {n: _number_type(n, x) for n, x in numbers.items()}
        program = self.source.program(types)
        if algebra and (truths := frozenset(name for name, x in arrays_given.items() if new_arrays.is_truth(x))):
            program = with_truth_values(program, truths)
        for x in program.inputs:
            if x.name in scalars:
                _check_number(x.name, scalars[x.name], x.dtype)
            elif x.name in views and not x.uses:
                raise InputError(f"{x.name} is an array with shape {views[x.name].shape}; it must be a number")
        own = task_call.Options(None, flag("deterministic", deterministic), *how, recording)
        with call_lock.lock:
            result = task_outputs.results(program, views, scalars, out, task_outputs.Options(own, groups, options))
            absent = (name for name, x in given.items() if name not in views)  # those that ``cached`` counts as numbers
            indices = {name: n for n, name in enumerate(absent)}
            known = {name: (indices.get(name), x) for name, x in scalars.items()}
            recording.store(result, type(result) if len(program.outputs) > 1 else None, known)
        return result

    def program(self, types: dict[str, str | None]) -> Program:
        """The program for inputs of these types. A number whose type is None becomes ``int`` or ``float``. TaskError:
        the text, or the function, breaks a rule."""
        program: Program = self.source.program(types)
        return program

    def given(
        self, arrays: tuple[Any, ...], named: dict[str, Any], options: Collection[str] | None = None
    ) -> dict[str, Any]:
        """The arguments by name. ``options``: the names of options that may have been meant; None: those of a call.
        InputError: there are too many, too few, or unknown ones."""
        if len(arrays) > len(self.names):
            raise InputError(f"the task has {len(self.names)} inputs, {', '.join(self.names)}; {len(arrays)} are given")
        given = dict(zip(self.names, arrays, strict=False))
        for name, x in named.items():
            if name not in self.names:
                raise unknown_input(name, self.names, OPTIONS if options is None else options)
            if name in given:
                raise InputError(f"{name} is given twice; it must be given by name or in order")
            given[name] = x
        if absent := [name for name in self.names if name not in {*given, *self.source.optional}]:
            near = closest(absent[0], [ACCUMULATOR])
            raise InputError(
                f"{', '.join(absent)} must be given; the inputs of the task are {', '.join(self.names)}"
                + (f": write {near}, if {absent[0]} is no input" if near else "")
            )
        return given


def types_of(given: Mapping[str, Any]) -> dict[str, str | None]:
    """The types of arguments. Keys of 64 bits have the type of the int32 numbers that replace them."""
    types: dict[str, str | None] = {}
    for name, x in given.items():
        if x is None:
            types[name] = None
        elif _is_number(x):
            types[name] = _number_type(name, _number(x))
        else:
            types[name] = "s32" if task_keys.is_wide(x) else _view(x, name, task_launches.NOT_RECORDED).dtype.name
    return types


#: the options of ``TaskFunction.__call__``
OPTIONS = tuple(
    x.name for x in inspect.signature(TaskFunction.__call__).parameters.values() if x.kind is x.KEYWORD_ONLY
)


class TextTask:
    """A task given as a text. ``optional``: the inputs with a default value."""

    optional: tuple[str, ...] = ()

    def __init__(self, text: str) -> None:
        self.text = text
        self.parameters = tuple(input_ranks(text))
        self._programs: dict[tuple[Any, ...], Program] = {}

    def numbers(self) -> dict[str, Any]:
        return {}

    def program(self, types: dict[str, str | None]) -> Program:
        """The program for inputs of these types."""
        key = tuple(sorted(types.items()))
        if key not in self._programs:
            for name, type_name in types.items():
                if type_name is None:
                    raise InputError(f"{name} is None; it must be an array or a number")
            self._programs[key] = parse(self.text, {name: str(type_name) for name, type_name in types.items()})
        return self._programs[key]


class TracedTask:
    """A task given as a Python function. ``optional``: the parameters with a default value."""

    def __init__(self, function: Callable[..., Any], place: FunctionType | None = None) -> None:
        from ptxgen.operations.task.tracing.traced_function import TracedFunction

        self._traced = TracedFunction(function, place)
        self.parameters = self._traced.parameters
        parameters = inspect.signature(function).parameters.values()
        self.optional = tuple(x.name for x in parameters if x.default is not x.empty)

    def numbers(self) -> dict[str, Any]:
        """The numbers that the function reads from outside itself, by name."""
        return self._traced.numbers()

    def state(self) -> Any:
        """The values outside the function that determine its program."""
        return self._traced.state()

    def program(self, types: dict[str, str | None]) -> Program:
        """The program for arguments of these types."""
        return self._traced.program(types)


def unknown_input(name: str, names: Collection[str], others: Collection[str] = ()) -> InputError:
    """The error of an argument that is no input of a task. ``others``: further names that may have been meant."""
    known = {x.lower(): x for x in (*others, *names)}
    near = known.get(closest(name.lower(), known), "")
    rule = f"its inputs are {', '.join(names)}" + (f": write {near}" if near else "")
    return InputError(f"{name} is no input of the task; {rule}")


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | np.number)


def _number(x: Any) -> Any:
    """A number as an argument of a program. NumPy's 64-bit integers, a type that programs do not have, become
    ``int``."""
    return int(x) if isinstance(x, np.integer) and x.dtype.itemsize == 8 else x


def _view(x: Any, name: str, recording: task_launches.NotRecorded) -> View:
    """The view of an array. DtypeError: its elements are complex."""
    if dtype_name(x).startswith("complex"):
        raise DtypeError(f"{name} has dtype {dtype_name(x)}; the elements of a task must be real")
    if isinstance(x, str | bytes | complex):
        raise InputError(f"{name} is {shown(x)}; it must be a real number, or an array")
    return truth_arrays.view_of(x, name, recording)


def _check_number(name: str, x: Any, number_type: str) -> None:
    """InputError: ``x`` is no value of the type that the program has for this number."""
    if dtype(number_type).integer:
        count = 1 << dtype(number_type).bits
        least = 0 if number_type.startswith("u") else -count // 2
        if isinstance(x, float | np.floating):
            raise InputError(f"{name} is {shown(x)}; it must be an integer, a number of {number_type}")
        if not least <= x < least + count:
            rule = f"it must be from {least} to {least + count - 1}, a number of {number_type}"
            raise InputError(f"{name} is {shown(x)}; {rule}")
    elif isinstance(x, int) and abs(x) > int(sys.float_info.max):
        raise InputError(f"{name} is {shown(x)}; it must be a number of {number_type}")


def _hashable(groups: Any) -> Any:
    """The extents of groups in a hashable form, as a part of a key."""
    if isinstance(groups, Mapping):
        return tuple((name, _hashable(x)) for name, x in groups.items())
    return tuple(groups) if isinstance(groups, list) else groups


def _number_type(name: str, x: Any) -> str:
    """The type of a number: its NumPy dtype, or ``int`` or ``float``, which adapt to the type of the other operand."""
    if isinstance(x, np.number):
        return from_numpy(x.dtype, name).name
    return "int" if isinstance(x, int) else "float"


def task(source: str | Callable[..., Any]) -> TaskFunction:
    """Makes a matmul-like task from its text or from a Python function; the result is called with arrays and numbers.

    For each pair (i, j) the task reduces a step over k, and gives the result to an output; the page on tasks has the
    language. ``task`` may decorate a function of arrays: the function is called with expressions in place of arrays,
    once for all calls with equal types.

    TaskError: the text breaks a rule, or the function does (at the first call); the message shows the place.
    """
    return TaskFunction(source)
