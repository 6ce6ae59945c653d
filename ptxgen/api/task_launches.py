"""Cached launches of tasks: calls that differ from an earlier one in the contents of tensors and in numbers only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ptxgen.api import launch_function, launches, streams
from ptxgen.api.arrays import View, is_plain_tensor
from ptxgen.operations.task.roles import Roles
from ptxgen.runtime.runner import Runner


class Arguments(NamedTuple):
    """The arguments of a call on PyTorch tensors. ``key``: in the launch cache; ``tensors``: by their names, and
    ``at``: their addresses; ``out``: the address of the result, 0 if it is to be allocated."""

    key: Any
    tensors: Mapping[str, Any]
    at: Mapping[str, int]
    out: int


class Cached(NamedTuple):
    """What a cached launch needs. ``order``: the names of the arrays at its addresses, empty for the result;
    ``scalars``: roles and names of its numbers; ``numbers``: the numbers, as texts; ``shape``, ``kind``: of the result;
    ``sizes``: the bytes of each array; ``size``: those of the result."""

    order: tuple[str, ...]
    scalars: tuple[tuple[str, str], ...]
    numbers: tuple[str, ...]
    shape: tuple[int, ...]
    kind: Any
    sizes: Mapping[str, int]
    size: int


def arguments_of(task: Any, given: Mapping[str, Any], out: Any, options: tuple[Any, ...] = ()) -> Arguments | None:
    """The arguments of a call. ``task``, ``options``: what else determines the launch; ``given``: tensors and numbers.
    None: an array is no PyTorch tensor, or one that needs checks that the key does not cover."""
    key, tensors, at = [task, options], {}, {}
    try:
        for name, x in given.items():
            if x is None or isinstance(x, int | float | np.number):
                key.append((name, type(x)))
                continue
            if not is_plain_tensor(x):
                return None
            tensors[name], at[name] = x, x.data_ptr()
            key.append((name, *_key_of(x)))
        if len(at) > 1 and len({*at.values()}) < len(at):  # one array has two names
            addresses = [*at.values()]
            key.append(tuple(map(addresses.index, addresses)))
        if out is None:
            return Arguments(tuple(key), tensors, at, 0)
        if not is_plain_tensor(out):
            return None
        return Arguments((*key, *_key_of(out)), tensors, at, out.data_ptr())
    except (AttributeError, TypeError, RuntimeError):  # RuntimeError: a sparse tensor
        return None


def _key_of(x: Any) -> tuple[Any, ...]:
    return type(x), x.shape, x.stride(), x.dtype, x.data_ptr() & 15, x.get_device()


def launched(arguments: Arguments | None, scalars: Mapping[str, Any], out: Any) -> Any:
    """The result of a call that has a cached launch; None: it has none, or ``out`` shares memory with an array."""
    ready = launches.cached(arguments.key) if arguments is not None else None
    if arguments is None or ready is None:
        return None
    launch, found, runner = ready
    numbers = tuple(repr(scalars[name]) for _, name in found.scalars)
    if numbers != found.numbers:
        launch = launch_function.make_launch(runner, scalars={role: scalars[name] for role, name in found.scalars})
        launches.store(arguments.key, launch, found._replace(numbers=numbers), runner)
    first = next(iter(arguments.tensors.values()))
    if out is None:
        out = first.new_empty(found.shape, dtype=found.kind)
    elif any(arguments.out < at + found.sizes[n] and at < arguments.out + found.size for n, at in arguments.at.items()):
        return None
    at = {**arguments.at, "": out.data_ptr()}
    launch(tuple(at[name] for name in found.order), streams.current_stream(first))
    return out


def store(
    arguments: Arguments,
    launch: Any,
    runner: Runner,
    roles: Roles,
    views: Mapping[str, View],
    scalars: Mapping[str, Any],
    result: Any,
) -> None:
    """Caches the launch of a call, unless it reads copies of arrays. ``views``: its arrays by role; ``result``: the
    array that it returns."""
    names = {u.role: u.name for u in roles.uses} | {"C": ""}
    if any(names[role] and v.address != arguments.at[names[role]] for role, v in views.items()):
        return
    sizes = {names[role]: v.span[1] - v.address for role, v in views.items()}  # strides of PyTorch are not negative
    at = {x: sizes[name] for name, x in arguments.at.items() if name in sizes}
    sizes |= {name: at[x] for name, x in arguments.at.items() if name not in sizes}  # another name of an array
    cached = Cached(
        tuple(names[role] for role in runner.problem.arrays),
        tuple((role, name) for role, name, _ in roles.scalars),
        tuple(repr(scalars[name]) for _, name, _ in roles.scalars),
        tuple(result.shape),
        result.dtype,
        sizes,
        sizes[""],
    )
    launches.store(arguments.key, launch, cached, runner)
