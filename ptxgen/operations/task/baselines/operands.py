"""The operands of a task on the host, and padded on the device for kernels that compute whole tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from ptxgen.errors import LaunchError
from ptxgen.expr.operators import OPERATORS
from ptxgen.operations.gemm.strided_arrays import A, B, elements, span
from ptxgen.operations.task.baselines.parts import Parts, order_of
from ptxgen.operations.task.checks import array_shape
from ptxgen.operations.task.problem import Task
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.reference import Array
from ptxgen.runtime.driver import Driver

TILE, DEPTH = 128, 16  #: M and N are padded to multiples of TILE, K to multiples of DEPTH


def downloaded(driver: Driver, p: Task, addresses: Mapping[str, int]) -> dict[str, Array]:
    """The arrays of an operand set, by role, with the axes by which the program indexes them."""
    out = {}
    for u in p.roles.uses:
        if u.role in "AB":
            operand = A if u.role == "A" else B
            memory = np.empty(span(p, operand), dtype(u.dtype).numpy)
            driver.download(addresses[u.role], memory)
            x = elements(p, operand, memory)
            x = x if p.layout[operand] == "N" else x.T  # M×K, K×N
            out[u.role] = x if u.axes == (("i", "k"), ("k", "j"))[operand] else x.T
        else:
            x = np.empty(array_shape(p, u.role), dtype(u.dtype).numpy)
            driver.download(addresses[u.role], x)
            out[u.role] = x
    return out


def rows_of(p: Task, arrays: Mapping[str, Array], rows: Array) -> tuple[Task, dict[str, Array]]:
    """The task restricted to the rows ``rows``, and its arrays."""
    axes = {u.role: u.axes for u in p.roles.uses}
    some = {name: np.take(x, rows, axes[name].index("i")) if "i" in axes[name] else x for name, x in arrays.items()}
    return p.with_rows(len(rows)), some


def padded_extents(p: Task) -> tuple[int, int, int]:
    """M, N and K rounded up to whole tiles."""
    return -(-p.m // TILE) * TILE, -(-p.n // TILE) * TILE, -(-p.k // DEPTH) * DEPTH


def padded_arrays(parts: Parts, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays by role, padded to whole tiles: A as K×M, B as K×N, others with their axes in the order of
    ``order_of``. The padding along K changes no result. LaunchError: no padding has this property."""
    p = parts.problem
    m, n, k = padded_extents(p)
    extents = {"i": m, "j": n, "k": k}
    repeated = OPERATORS[parts.algebra.reduce].idempotent
    indexed = any(r.name == "k" for r in parts.reads(parts.reduced))
    if k != p.k and (indexed or not (repeated or parts.algebra.pads_with_zero)):
        raise LaunchError(f"K is {p.k}; it must be a multiple of {DEPTH}, because further steps change the result")
    axes = {u.role: u.axes for u in p.roles.uses}
    out = {}
    for name, x in arrays.items():
        order = order_of(axes[name])
        x = x.transpose([axes[name].index(axis) for axis in order])
        missing = [(0, extents[axis] - size) for axis, size in zip(order, x.shape, strict=True)]
        if "k" in order and repeated and not parts.algebra.pads_with_zero:
            along = order.index("k")
            x = np.pad(x, [w if n == along else (0, 0) for n, w in enumerate(missing)], mode="edge")
            missing[along] = (0, 0)
        out[name] = np.ascontiguousarray(np.pad(x, missing))
    return out


@contextmanager
def on_device(driver: Driver, arrays: Mapping[str, Array], result: int, sets: int) -> Iterator[list[dict[str, int]]]:
    """For each of ``sets`` sets, the addresses by name of copies of the arrays, and of C with ``result`` bytes. The
    memory is freed at the end of the block."""
    held: list[int] = []

    def allocated(size: int) -> int:
        held.append(driver.allocate(max(size, 16)))
        return held[-1]

    try:
        every_set = []
        for _ in range(sets):
            addresses = {name: allocated(x.nbytes) for name, x in arrays.items()}
            for name, x in arrays.items():
                driver.upload(addresses[name], x)
            every_set.append(addresses | {"C": allocated(result)})
        yield every_set
    finally:
        driver.synchronize()
        for address in held:
            driver.release(address)
