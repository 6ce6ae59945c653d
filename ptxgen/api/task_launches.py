"""Cached launches of tasks: calls that differ from an earlier one in the contents of tensors and in numbers only.

The first call is recorded: the arrays that it allocates, and its launches with the places of their addresses, which are
in arguments or in allocated arrays. Later calls allocate arrays of the same shapes, and launch. Calls that read keys on
the host, or copy an array, are not cached.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ptxgen.api import launch_function, launches, new_arrays, streams
from ptxgen.api.arrays import View, records_gradient, tensor
from ptxgen.problem.dtypes import Dtype
from ptxgen.runtime.runner import Runner

#: types of arguments that are no tensors: numbers, and None
_NUMBERS = frozenset((float, int, bool, type(None), *(x for x in np.sctypeDict.values() if issubclass(x, np.number))))

#: The arguments of a call on PyTorch tensors: the key in the launch cache; the first tensor; the addresses of the
#: tensors that the call reads, then of those that it writes; how many it writes; the numbers, in the order of the
#: arguments.
Arguments = tuple[tuple[Any, ...], Any, list[int], int, list[Any]]


class Place(NamedTuple):
    """The place of an address that a launch takes. ``array``: the index of its array, among the tensors of
    ``Arguments`` and then the arrays that the call allocates; ``offset``: in bytes from the start of the array."""

    array: int
    offset: int = 0


class Launch(NamedTuple):
    """One recorded launch. ``places``: the places of its addresses; ``numbers``: role -> the name of the argument that
    gives the value, or a constant."""

    launch: Callable[..., None]
    runner: Runner
    places: tuple[Place, ...]
    numbers: Mapping[str, Any]

    def with_values(self, values: Mapping[str, Any]) -> Launch:
        """The same launch with new numbers. ``values``: argument name -> value."""
        given = {role: values[x] if isinstance(x, str) else x for role, x in self.numbers.items()}
        return self._replace(launch=launch_function.make_launch(self.runner, scalars=given))


class Recorded(NamedTuple):
    """What a later call repeats. ``launches``: in their order; ``only``: a function that picks the addresses of the
    only launch; None: there are several launches, or parts of arrays; ``made``: shape and dtype of each array that the
    call allocates; None: that array has no elements; ``results``: indices of the arrays of results, as in ``Place``;
    ``form``: the function that makes the result of them; None: the result is one array; ``inputs``: the number of
    tensors that the call reads; ``scalars``: name -> the index of a number among the arguments; None: the function
    reads it from outside; ``texts``: the names of the latter; ``sizes``: the bytes of the tensors; ``others``: the
    runners besides the first."""

    launches: tuple[Launch, ...]
    only: Callable[[Sequence[int]], tuple[int, ...]] | None
    made: tuple[tuple[tuple[int, ...], Any] | None, ...]
    results: tuple[int, ...]
    form: Callable[..., Any] | None
    inputs: int
    scalars: Mapping[str, int | None]
    texts: tuple[str, ...]
    sizes: tuple[int, ...]
    others: tuple[Runner, ...]


def arguments_of(task: Any, given: Iterable[Any], names: Any, out: Any, options: Any = None) -> Arguments | None:
    """The arguments of a call. ``given``: tensors and numbers; ``names``: their argument names; ``task``, ``options``:
    the task and the options, on which the launches depend, too; ``out``: a tensor, a dictionary of tensors, or None.
    Returns None if an array is no PyTorch tensor, or is one that needs checks not covered by the key."""
    key: list[Any] = [task, names, options]
    at: list[int] = []  # list[int]() would take a tenth of the call
    numbers: list[Any] = []
    first, outs = None, 0
    try:
        for x in given:
            array_class = type(x)
            if array_class in _NUMBERS:
                key.append(array_class)
                numbers.append(x)
                continue
            address = x.data_ptr()  # 0: a tensor without memory, or without elements
            if (not address and x.numel()) or x.is_neg() or (x.requires_grad and records_gradient(x)):
                return None
            key += array_class, x.shape, x.stride(), x.dtype, address & 15, x.get_device()
            if address in at:  # one array has two names
                key.append(at.index(address))
            at.append(address)
            if first is None:
                first = x
        if out is not None:
            key.append(type(out))  # a dictionary may be empty
            for name, x in out.items() if type(out) is dict else (("", out),):
                address = x.data_ptr()
                if not address or x.is_neg() or (x.requires_grad and records_gradient(x)):
                    return None
                key += name, type(x), x.shape, x.stride(), x.dtype, address & 15, x.get_device()
                at.append(address)
                outs += 1
    except (AttributeError, TypeError, RuntimeError):  # RuntimeError: a sparse tensor
        return None
    return (tuple(key), first, at, outs, numbers) if first is not None else None


def launched(arguments: Arguments, ready: Any, out: Any, around: Callable[[], Mapping[str, Any]] = dict) -> Any:
    """The result of a call, by the launches of ``ready``, its entry of the launch cache. ``around``: returns the
    numbers that the task's function reads from outside. None: an array of ``out`` shares memory with another, a number
    does not fit its type, or lists are too short; the call must then be made as a new one."""
    key, first, at, outs, numbers = arguments
    launch, call, runner = ready
    if call.scalars:
        outside = around() if None in call.scalars.values() else {}
        values = {name: outside[name] if n is None else numbers[n] for name, n in call.scalars.items()}
        texts = tuple([repr(x) for x in values.values()])
        if texts != call.texts:
            try:
                changed = tuple(each.with_values(values) if each.numbers else each for each in call.launches)
            except (struct.error, OverflowError):
                return None
            launch, call = changed[0].launch, call._replace(launches=changed, texts=texts)
            launches.store(key, launch, call, runner)
    if outs and _overlaps(at, call.sizes, call.inputs):
        return None
    if call.only is not None:
        if out is None:
            ((shape, torch_dtype),) = call.made
            out = first.new_empty(shape, dtype=torch_dtype)
            at.append(out.data_ptr())
        launch(call.only(at), streams.current_stream(first))
        return out
    made = [None if x is None else first.new_empty(x[0], dtype=x[1]) for x in call.made]
    at += [0 if x is None else x.data_ptr() for x in made]
    stream = streams.current_stream(first)
    for each in call.launches:
        each.launch(tuple([at[n] + offset for n, offset in each.places]), stream)
    written = [] if out is None else [*out.values()] if type(out) is dict else [out]
    arrays = [*written, *made]
    results = [arrays[n - call.inputs] for n in call.results]
    return results[0] if call.form is None else call.form(*results)


def _overlaps(at: Sequence[int], sizes: Sequence[int], inputs: int) -> bool:
    """True if an array that a call writes shares memory with another array. The arrays that it writes follow the
    ``inputs`` arrays that it reads."""
    for n in range(inputs, len(at)):
        start, end = at[n], at[n] + sizes[n]
        for m in range(n):
            if start < at[m] + sizes[m] and at[m] < end:
                return True
    return False


class NotRecorded:
    """The recording of a call whose launches are not cached: it records nothing."""

    def empty_array(self, origin: Any, shape: tuple[int, ...], element: Dtype) -> Any:
        """A new array, as ``new_arrays.empty_array`` makes it; the allocation is recorded."""
        return new_arrays.empty_array(origin, shape, element)

    def part(self, x: Any, of: Any) -> Any:
        """Returns ``x``; records that it is a part of the array ``of``."""
        return x

    def same(self, x: Any, y: Any) -> None:
        """Records that the launches are valid only if ``x`` and ``y`` have one address."""

    def launched(self, launch: Any, runner: Runner, views: Sequence[View], numbers: Mapping[str, Any]) -> None:
        """Records a launch. ``views``: those of the arrays of its problem; ``numbers``: as in ``Launch``."""

    def returns(self, arrays: Sequence[Any], form: Callable[..., Any]) -> None:
        """Records that the call returns ``form(*arrays)``. If ``form`` gives None, a later call must be made as a new
        one."""

    def refuse(self) -> None:
        """Records that the launches of the call cannot be repeated."""

    def store(
        self, result: Any, form: Callable[..., Any] | None, scalars: Mapping[str, tuple[int | None, Any]]
    ) -> None:
        """Caches the launches of the call, unless ``refuse`` was called. ``result``: the array that the call returned,
        or the arrays from which ``form`` makes the result; ``scalars``: name of a number -> (index as in ``Recorded``,
        value)."""


NOT_RECORDED = NotRecorded()


class Recording(NotRecorded):
    """The recording of a call whose launches are cached."""

    def __init__(self, key: Any, inputs: Sequence[Any], outs: Sequence[Any]) -> None:
        """``key``: that of the launch cache; ``inputs``: the tensors that the call reads; ``outs``: those that it
        writes."""
        self._key, self._tensors, self._inputs = key, [*inputs, *outs], len(inputs)
        self._launches, self._refused = list[Launch](), False
        self._returned: tuple[Sequence[Any], Callable[..., Any]] | None = None
        self._made: list[Any] = []
        self._places: dict[int, Place] = {}
        self._kept: list[Any] = []  # an object with the id of one that was freed would have its place
        for n, x in enumerate(self._tensors):
            self._places.setdefault(id(x), Place(n))

    def empty_array(self, origin: Any, shape: tuple[int, ...], element: Dtype) -> Any:
        made = super().empty_array(origin, shape, element)
        self._places[id(made)] = Place(len(self._tensors) + len(self._made))
        self._made.append(made)
        return made

    def part(self, x: Any, of: Any) -> Any:
        if (place := self._places.get(id(of))) is not None and x is not of:
            self._places[id(x)] = Place(place.array, place.offset + x.data_ptr() - of.data_ptr())
            self._kept.append(x)
        return x

    def same(self, x: Any, y: Any) -> None:
        one, other = (self._places.get(id(array)) for array in (x, y))
        if one != other and (one is None or other is None or one.offset or other.offset):
            self._refused = True  # the key tells which arguments have one address, but not which parts of them

    def launched(self, launch: Any, runner: Runner, views: Sequence[View], numbers: Mapping[str, Any]) -> None:
        places = [self._places.get(id(v.origin)) for v in views]
        known = [place for place in places if place is not None]
        if len(known) < len(views) or any(v.address != v.origin.data_ptr() for v in views):  # a copy
            self._refused = True
        self._launches.append(Launch(launch, runner, tuple(known), dict(numbers)))

    def returns(self, arrays: Sequence[Any], form: Callable[..., Any]) -> None:
        self._returned = arrays, form

    def refuse(self) -> None:
        self._refused = True

    def store(
        self, result: Any, form: Callable[..., Any] | None, scalars: Mapping[str, tuple[int | None, Any]]
    ) -> None:
        arrays = (result,) if form is None else tuple(result)
        if self._returned is not None:
            arrays, form = tuple(self._returned[0]), self._returned[1]
        places = [self._places.get(id(x)) for x in arrays]
        if self._refused or not self._launches or not all(place is not None and not place.offset for place in places):
            return
        results, tensors = tuple(place.array for place in places if place is not None), len(self._tensors)
        if min(results) < self._inputs:
            return
        made: list[Any] = [(tuple(x.shape), x.dtype) for x in self._made]
        for n, x in zip(results, arrays, strict=True):
            if n >= tensors:  # a condition is computed as bytes, and returned as a truth value
                made[n - tensors] = (tuple(x.shape), x.dtype)
        made = [None if 0 in x[0] and n + tensors not in results else x for n, x in enumerate(made)]
        first, *others = self._launches
        one = not others and form is None and len(made) == (1 if tensors == self._inputs else 0)
        whole = one and not any(place.offset for place in first.places)
        names = dict.fromkeys(x for each in self._launches for x in each.numbers.values() if isinstance(x, str))
        recorded = Recorded(
            tuple(self._launches),
            itemgetter(*(place.array for place in first.places)) if whole else None,
            tuple(made),
            results,
            form,
            self._inputs,
            {name: scalars[name][0] for name in names},
            tuple(repr(scalars[name][1]) for name in names),
            tuple(map(_size, self._tensors)),
            tuple(each.runner for each in others),
        )
        launches.store(self._key, first.launch, recorded, first.runner)


def recording(arguments: Arguments | None, given: Iterable[Any], out: Any) -> NotRecorded:
    """The recording of a call; one that records nothing if ``arguments`` is None. ``given``, ``out``: as in
    ``arguments_of``."""
    if arguments is None:
        return NOT_RECORDED
    outs = [] if out is None else [*out.values()] if type(out) is dict else [out]
    return Recording(arguments[0], [x for x in given if type(x) not in _NUMBERS], outs)


def _size(x: Any) -> int:
    """The bytes from the first element of a tensor to the end of the last one; strides of PyTorch are never
    negative."""
    v = tensor(new_arrays.as_bytes(x) if new_arrays.is_truth(x) else x, "an array")
    return v.span[1] - v.address
