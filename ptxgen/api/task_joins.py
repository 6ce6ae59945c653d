"""Calls of natural joins: arrays are permuted to the order of keys, and results back to the order of the indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ptxgen.api.arrays import View, as_numpy, tensor
from ptxgen.operations.task import joins
from ptxgen.operations.task.joins import Join
from ptxgen.operations.task.program import Program
from ptxgen.operations.task.roles import Roles
from ptxgen.problem.dtypes import Dtype, dtype

#: a function that computes a program on arrays into a given array: ``task_call.call`` without numbers
Compute = Callable[[Program, dict[str, View], Any, tuple[int, int] | None], None]
#: a function that allocates an array of the library of the operands
Empty = Callable[[tuple[int, ...], Dtype], Any]


class Order:
    """The order of keys of the rows and columns of a call. ``arrays``: the inputs of the program on permuted arrays, by
    name."""

    arrays: dict[str, View]

    def restored(self, results: Any, axis: str, out: Any) -> None:
        """Stores results along an axis, which are in the order of keys, in ``out`` in the order of the indices."""
        raise NotImplementedError


class HostOrder(Order):
    """The order of keys of host arrays: NumPy sorts and permutes."""

    def __init__(self, join: Join, roles: Roles, arrays: Mapping[str, View]) -> None:
        self._order = {
            axis: np.argsort(as_numpy(arrays[roles.use(role).name]), kind="stable")
            for axis, role in zip("ij", join.keys, strict=True)
        }
        self.arrays = {}
        for x in join.program.inputs:
            if x.name in (joins.ROWS, joins.COLUMNS):
                made = self._order[x.uses[0][0]].astype(np.int32)
            elif x.uses:
                use = roles.use(x.name)
                made = as_numpy(arrays[use.name])
                for n, axis in enumerate(use.axes):
                    made = made if axis == "k" else made.take(self._order[axis], n)
            else:
                continue
            self.arrays[x.name] = tensor(made, x.name)

    def restored(self, results: Any, axis: str, out: Any) -> None:
        as_numpy(tensor(out, "out"))[self._order[axis]] = results


class DeviceOrder(Order):
    """The order of keys of arrays on a GPU: kernels of tasks count positions and permute. ``part``:
    ``NotRecorded.part``."""

    def __init__(
        self,
        join: Join,
        roles: Roles,
        arrays: Mapping[str, View],
        compute: Compute,
        empty: Empty,
        part: Callable[[Any, Any], Any],
    ) -> None:
        self._compute, self._empty, self._part = compute, empty, part
        self._positions: dict[str, View] = {}
        for axis, role in zip("ij", join.keys, strict=True):
            keys = arrays[roles.use(role).name]
            made = empty(keys.shape, dtype("s32"))
            compute(joins.positions(keys.dtype.name), {joins.VALUES: keys}, made, None)
            self._positions[axis] = tensor(made, joins.POSITION)
        self.arrays = {}
        for x in join.program.inputs:
            if x.name in (joins.ROWS, joins.COLUMNS):
                self.arrays[x.name] = self._indices(x.uses[0][0])
            elif x.uses:
                use = roles.use(x.name)
                self.arrays[x.name] = self._permuted(arrays[use.name], use.axes)

    def _indices(self, axis: str) -> View:
        """The indices of an axis in the order of keys."""
        at = self._positions[axis]
        made = self._empty((*at.shape, 1), dtype("s32"))
        self._compute(joins.inverse(), {joins.POSITION: at}, made, (*at.shape, 1))  # type: ignore[arg-type]
        return tensor(self._part(made.reshape(-1), made), axis)

    def _permuted(self, x: View, axes: tuple[str, ...]) -> View:
        """A copy of an array in the order of keys. ``axes``: the task axis, i, j or k, of each axis of the array."""
        shape = x.shape if len(axes) > 1 else (*x.shape, 1)
        made = self._empty(shape, x.dtype)
        names = zip(axes, (joins.POSITION, joins.OTHER), strict=False)
        given = {name: self._positions[axis] for axis, name in names if axis != "k"}
        self._compute(joins.permuting(x.dtype.name, axes), {joins.VALUES: x, **given}, made, shape)  # type: ignore[arg-type]
        return tensor(made if len(axes) > 1 else self._part(made.reshape(-1), made), "an operand")

    def restored(self, results: Any, axis: str, out: Any) -> None:
        x = tensor(results, "results")
        name = joins.ROWS if axis == "i" else joins.COLUMNS
        given = {joins.VALUES: x, joins.POSITION: self.arrays.get(name) or self._indices(axis)}
        column = self._part(out.reshape(-1, 1), out)
        self._compute(joins.permuting(x.dtype.name, ("i",)), given, column, (*x.shape, 1))  # type: ignore[arg-type]
