"""Calls of tasks with any integers as keys: keys are numbered first, and results come with their distinct keys."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ptxgen.api import call_lock, unique_keys
from ptxgen.api.arrays import is_torch
from ptxgen.api.distinct_calls import DistinctKeys
from ptxgen.api.unique_keys import dtype_name
from ptxgen.arguments import shown
from ptxgen.errors import DtypeError, InputError
from ptxgen.expr.node import Node, constant, rewritten, variables, walk
from ptxgen.expr.value_types import PRED
from ptxgen.operations.task.assembling import array_of, roots
from ptxgen.operations.task.joined_keys import exact_source
from ptxgen.operations.task.program import AXES, Aggregate, Distinct, Program, Scatter

#: values of ``keys``: keys from 0 to the number of groups - 1, or any integers
DENSE, ANY = "dense", "any"
WIDE = ("int64", "uint64")  #: dtypes of keys that programs cannot read
_GREATEST, _LEAST = (1 << 31) - 1, -(1 << 31)
_COMPARED = ("==", "!=", "<", "<=")


class Groups(NamedTuple):
    """A result in groups with any integers as keys. ``values``: the result; ``rows``, ``columns``: the distinct keys of
    its rows and of its columns, in ascending order; None: rows (columns) have no key, but an index."""

    values: Any
    rows: Any
    columns: Any


def call(
    run: Callable[..., Any], program: Program, given: Mapping[str, Any], out: Any, groups: Any, options: dict[str, Any]
) -> Any:
    """The results of a program, computed on numbered keys. ``run``: the function that computes the program on arguments
    by name; ``given``: the arguments of the call; ``out``, ``groups``, ``options``: those of the call. InputError,
    DtypeError: an argument breaks a rule."""
    for name, x in (("out", out), ("groups", groups)):
        if x is not None:
            raise InputError(f"{name} is given; with keys 'any' it must be None, because the keys give the groups")
    keyed = [x for x in program.outputs if isinstance(x, Aggregate | Distinct)]
    if not keyed:
        raise InputError("keys is 'any'; it must be 'dense' where no keys select elements of a result")
    names = [name for x in keyed for key in (x.row, x.column) if (name := _array(key))]
    together_all, read = _compared(program, names)
    if wrong := [name for name in names if name in read]:
        raise InputError(
            f"{wrong[0]} is read as a number, and is an array of keys; with keys 'any' it must only be a key, or be"
            " compared with another array of keys after `when`"
        )
    arguments, keys = dict(given), dict[str, Any]()
    with call_lock.lock:
        for together in together_all:
            distinct, numbers = unique_keys.numbered([given[name] for name in together], together)
            arguments |= zip(together, numbers, strict=True)
            keys |= dict.fromkeys(together, distinct)
    extents = {x.name: (_extent(x.row, program, keys, given), _extent(x.column, program, keys, given)) for x in keyed}
    several = len(program.outputs) > 1
    results = run(**arguments, groups=extents if several else extents[keyed[0].name], **options)
    made = {x.name: _with_keys(x, getattr(results, x.name) if several else results, keys) for x in keyed}
    return results._replace(**made) if several else made[keyed[0].name]


def _array(key: Node) -> str:
    """The name of the array of a key; empty: the key is an index."""
    return "" if key.value in AXES else array_of(str(key.value))


def is_wide(x: Any) -> bool:
    """True for an array of 64-bit integers."""
    return dtype_name(x) in WIDE and len(x.shape) > 0


def narrowed(program_of: Callable[[], Program], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call with int32 keys in place of keys of 64 bits. ``program_of``: returns the program for
    these.

    Keys of groups, and places of elements of a matrix, keep their values; those that int32 does not have become its
    greatest or least one, which are out of range. Arrays that ``when`` compares with each other, and nothing else
    reads, are numbered together. DtypeError: other expressions read an array of 64-bit integers.
    """
    wide = [name for name, x in given.items() if is_wide(x)]
    for name in wide:
        if len(given[name].shape) != 1:
            raise _refused(name, given[name])
    program = program_of()
    together, read = _compared(
        program, [x.name for x in program.inputs if x.uses and {len(axes) for axes in x.uses} == {1}]
    )
    sets = {name: names for names in together for name in names}
    keyed = [x for x in program.outputs if isinstance(x, Aggregate | Distinct | Scatter)]
    places = {_array(key) for x in keyed for key in (x.row, x.column)}
    arguments = dict(given)
    for name in wide:
        names = sets.get(name, [name])
        if wrong := [x for x in names if x in read]:
            raise _refused(name, given[name], "" if wrong[0] == name else f"; {wrong[0]} is read as a number")
        if not is_wide(arguments[name]):
            continue  # it was numbered with another array
        if places & set(names):
            arguments[name] = _limited(given[name], name)
        else:
            with call_lock.lock:
                arguments |= zip(names, unique_keys.numbered([given[x] for x in names], names)[1], strict=True)
    return arguments


def _refused(name: str, x: Any, reason: str = "") -> DtypeError:
    return DtypeError(
        f"{name} has dtype {dtype_name(x)}; it must be an integer of at most 32 bits, unless it is only a key of groups"
        f" or is compared with another array after `when`{reason}"
    )


def _limited(x: Any, name: str) -> Any:
    """An int32 array with the values of ``x``, an array of 64-bit integers; values that int32 does not have become its
    greatest or its least one."""
    unsigned = dtype_name(x).startswith("u")
    try:
        if is_torch(x):
            torch = importlib.import_module("torch")
            return (x.view(torch.int64) if unsigned else x).clamp(_LEAST, _GREATEST).to(torch.int32)
        return x.clip(0 if unsigned else _LEAST, _GREATEST).astype(np.int32)
    except (AttributeError, RuntimeError, TypeError):
        raise DtypeError(f"{name} has dtype {dtype_name(x)}; its library cannot convert it to int32") from None


def _compared(program: Program, names: Sequence[str]) -> tuple[list[list[str]], set[str]]:
    """The arrays of keys ``names`` in sets: those that ``when`` compares are in one set. And the arrays that are read
    elsewhere than as keys of outputs and in such comparisons."""
    together = {name: {name} for name in names}

    def without(x: Node) -> Node:
        if x.op not in _COMPARED:
            return x
        sides = [exact_source(y) for y in x.arguments]
        arrays = [array_of(str(y.value)) if y.op == "variable" else "" for y in sides]
        if not all(name in names for name in arrays):
            return x
        both = together[arrays[0]] | together[arrays[1]]
        together.update(dict.fromkeys(both, both))
        return constant(True, PRED)

    rest = [] if program.when is None else [rewritten(program.when, without)]
    keys = {y for x in program.outputs if isinstance(x, Aggregate | Distinct | Scatter) for y in (x.row, x.column)}
    others = [x for x in roots(program) if x not in keys and x is not program.when]
    read = {array_of(name) for x in (*rest, *others) for name in variables(*walk(x))}
    return [sorted(x) for x in {id(x): x for x in together.values()}.values()], read


def _extent(key: Node, program: Program, keys: Mapping[str, Any], given: Mapping[str, Any]) -> int:
    """The number of rows, or columns, of a result with this key."""
    if name := _array(key):
        return int(keys[name].shape[0])
    for x in program.inputs:
        for axes in x.uses:
            if key.value in axes:
                return int(given[x.name].shape[axes.index(key.value) - len(axes)])
    raise InputError(f"groups is {shown(None)}; no array has the axis {key.value}")


def _with_keys(output: Aggregate | Distinct, results: Any, keys: Mapping[str, Any]) -> Any:
    """A result with the distinct keys of its rows and columns; for a batch, a tuple with one such result per item."""
    of_rows, of_columns = (keys.get(_array(key)) for key in (output.row, output.column))
    if isinstance(output, Aggregate):
        return Groups(results, of_rows, of_columns)
    if not isinstance(results, DistinctKeys):
        return tuple(_with_keys(output, x, keys) for x in results)
    return DistinctKeys(_taken(of_rows, results.rows), _taken(of_columns, results.columns))


def _taken(keys: Any, numbers: Any) -> Any:
    """The keys at these positions among the distinct ``keys``; if ``keys`` is None, the positions are indices, and are
    returned."""
    if keys is None:
        return numbers
    return keys.index_select(0, numbers) if is_torch(keys) else keys.take(numbers)
