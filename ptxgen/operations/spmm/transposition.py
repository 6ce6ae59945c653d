"""Makes the transpose of a sparse matrix in CSR on the device: its pattern, and the place of each of its values in the
matrix.

The nonzeros of a row of the transpose are in the order of the rows of the matrix, so that sums have the same bits each
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given
from ptxgen.codegen.preparation import Preparation, Scan
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import WARP, ceil_div
from ptxgen.runtime.device_tables import Part, allocate_parts
from ptxgen.runtime.driver import Driver
from ptxgen.runtime.prepared_operands import load_once, scratch

INDEX = 4  #: bytes of a row pointer, of a column and of a place


class Pass(NamedTuple):
    """One pass of the radix sort, by one digit of the column, for a matrix of M rows, K columns and ``nnz`` nonzeros.
    ``chunks``: the number of chunks; ``length``: nonzeros of a chunk; ``shift``: the number of bits below the digit."""

    m: int
    k: int
    nnz: int
    chunks: int
    length: int
    shift: int = 0


_CHUNKS = Parameters("u32", ("nnz", "chunks", "length", "shift"), lambda x: (x.nnz, x.chunks, x.length, x.shift))


@dataclass(frozen=True)
class TransposeCsr(Scan, Preparation):
    """The kernels that make the pattern of the transpose of a sparse matrix with 32-bit indices: row pointers, columns,
    and for each nonzero its place in the matrix. They are a radix sort of the nonzeros by column."""

    kernel: ClassVar[str] = "prepare/transpose_csr.mako"
    description: ClassVar[list[str]] = ["the pattern of the transpose of a sparse matrix in CSR"]
    threads: ClassVar[int] = 256
    bits: ClassVar[int] = 8  #: bits of a digit
    least_length: ClassVar[int] = 1024  #: the least number of nonzeros of a chunk
    most_chunks: ClassVar[int] = 4096
    count: ClassVar[ParameterList] = ParameterList((given("u64", "keys", "counts"), _CHUNKS))
    scan: ClassVar[ParameterList] = ParameterList(
        (given("u64", "counts"), Parameters("u32", ("chunks",), lambda x: (x.chunks,)))
    )
    place: ClassVar[ParameterList] = ParameterList(
        (
            given("u64", "keys", "ids", "keys_to", "ids_to", "counts"),
            _CHUNKS,
            Parameters("u32", ("first_pass",), lambda x: (int(x.shift == 0),)),
        )
    )
    pattern: ClassVar[ParameterList] = ParameterList(
        (
            given("u64", "keys", "ids", "indptr", "indptr_to", "indices_to"),
            Parameters("u32", ("M", "K", "nnz"), lambda x: (x.m, x.k, x.nnz)),
        )
    )

    @property
    def digits(self) -> int:
        """The number of values of a digit."""
        return 1 << self.bits

    @property
    def warps(self) -> int:
        return self.threads // WARP

    @property
    def counter_bytes(self) -> int:
        """The bytes of shared memory of a block."""
        return 4 * self.warps * self.digits

    def passes(self, m: int, k: int, nnz: int) -> list[Pass]:
        """The passes of the sort, by the digits of the columns, the lowest digit first."""
        length = max(self.least_length, ceil_div(ceil_div(nnz, self.most_chunks), WARP) * WARP)
        bits = max((k - 1).bit_length(), 1)
        return [Pass(m, k, nnz, ceil_div(nnz, length), length, shift) for shift in range(0, bits, self.bits)]

    def sort(self, x: Pass, at: Mapping[str, int]) -> list[tuple[Step, Mapping[str, int]]]:
        """The steps of a pass, with the addresses of their arrays."""
        grid, block = (ceil_div(x.chunks, self.warps), 1, 1), (self.threads, 1, 1)
        return [
            (Step("count_digits", grid, block, 0, self.count.arguments(x)), at),
            (Step("scan_digits", (1, 1, 1), (self.scan_threads, 1, 1), 0, self.scan.arguments(x)), at),
            (Step("place_keys", grid, block, 0, self.place.arguments(x)), at),
        ]

    def store(self, x: Pass, at: Mapping[str, int]) -> tuple[Step, Mapping[str, int]]:
        """The step that stores row pointers and columns."""
        blocks = ceil_div(max(x.nnz, x.k + 1), self.threads)
        return Step("transposed_pattern", (blocks, 1, 1), (self.threads, 1, 1), 0, self.pattern.arguments(x)), at

    @property
    def lane_digits(self) -> list[tuple[int, int]]:
        """The counters of a warp that its lanes handle together: pairs (digit of lane 0, offset of its counter in
        bytes)."""
        return [(first, 4 * first) for first in range(0, self.digits, WARP)]

    @property
    def digit_bits(self) -> list[int]:
        return [1 << i for i in range(self.bits)]

    @property
    def warp_counter_bytes(self) -> int:
        return 4 * self.digits


@dataclass(frozen=True)
class SymmetricPlaces(Preparation):
    """The kernel that finds, for each nonzero (i, j) of a matrix with a symmetric pattern and increasing columns in
    each row, the place of (j, i). Its result ``fault`` is the number of nonzeros from the first one without such a
    place; 0: all have one."""

    kernel: ClassVar[str] = "prepare/symmetric_places.mako"
    description: ClassVar[list[str]] = ["places of the values of the transpose of a matrix with a symmetric pattern"]
    threads: ClassVar[int] = 256
    #: parameters of the kernel, from (M, nonzeros)
    parameters: ClassVar[ParameterList] = ParameterList(
        (given("u64", "indptr", "indices", "places", "fault"), Parameters("u32", ("M", "nnz"), tuple))
    )


@dataclass(frozen=True)
class GatherValues(Preparation):
    """The kernel that copies values to another order. ``size``: bytes of a value."""

    size: int

    kernel: ClassVar[str] = "prepare/gather_values.mako"
    threads: ClassVar[int] = 256
    parameters: ClassVar[ParameterList] = ParameterList(
        (given("u64", "values", "places", "values_to"), Parameters("u32", ("nnz",), lambda nnz: (nnz,)))
    )

    @property
    def description(self) -> list[str]:
        return [f"values of {self.size} bytes in another order"]

    @property
    def bits(self) -> int:
        return 8 * self.size


def transpose(driver: Driver, at: Mapping[str, int], m: int, k: int, nnz: int) -> dict[str, Part]:
    """``indptr``, ``indices`` and ``places`` of the transpose of a matrix of M rows and K columns whose 32-bit
    ``indptr`` and ``indices`` are at these addresses. ``places``: the place in the matrix of each nonzero of the
    transpose. The kernels are queued on the driver's stream; later work on this stream sees the complete arrays."""
    made = TransposeCsr()
    kernel = load_once(driver, made)
    arrays = allocate_parts(driver, {"indptr": INDEX * (k + 1), "indices": INDEX * nnz, "places": INDEX * nnz})
    passes = made.passes(m, k, nnz)
    counts = 4 * made.digits * passes[0].chunks
    temporary = scratch(driver, {**dict.fromkeys(("keys0", "keys1", "ids0", "ids1"), INDEX * nnz), "counts": counts})
    steps: list[tuple[Step, Mapping[str, int]]] = []
    keys, ids = at["indices"], arrays["places"].address
    for i, each in enumerate(passes if nnz else ()):
        last = i == len(passes) - 1
        keys_to = temporary[f"keys{i % 2}"]
        ids_to = arrays["places"].address if last else temporary[f"ids{i % 2}"]
        named = {"keys": keys, "ids": ids, "keys_to": keys_to, "ids_to": ids_to, "counts": temporary["counts"]}
        steps += made.sort(each, named)
        keys, ids = keys_to, ids_to
    out = {f"{name}_to": arrays[name].address for name in ("indptr", "indices")}
    steps.append(made.store(passes[0], {"keys": keys, "ids": ids, "indptr": at["indptr"], **out}))
    with driver.lock:
        for step, addresses in steps:
            driver.launch(kernel, step, step.pack(addresses))
    return arrays


def symmetric_places(driver: Driver, at: Mapping[str, int], m: int, nnz: int) -> tuple[Part, int | None]:
    """The places of the values of the transpose of a matrix with a symmetric pattern, and the first nonzero without a
    place, or None if every nonzero has one."""
    made = SymmetricPlaces()
    kernel = load_once(driver, made)
    places = allocate_parts(driver, {"places": INDEX * nnz})["places"]
    named = {**at, "places": places.address, **scratch(driver, {"fault": INDEX})}
    step = _elementwise(made, "symmetric_places", nnz, (m, nnz))
    with driver.lock:
        driver.launch(kernel, clear := Step("", (INDEX, 1, 1), arguments=(("u64", "fault"),)), clear.pack(named))
        driver.launch(kernel, step, step.pack(named))
        driver.download(named["fault"], word := np.empty(1, np.uint32))
    return places, nnz - int(word[0]) if word[0] else None


def gather_values(driver: Driver, size: int, values: int, places: int, to: int, nnz: int, stream: int = 0) -> None:
    """Queues a kernel that copies values of ``size`` bytes at the address ``values`` to the address ``to``, in the
    order of ``places``."""
    made = GatherValues(size)
    step = _elementwise(made, "gather_values", nnz, nnz)
    parameters = step.pack({"values": values, "places": places, "values_to": to})
    with driver.lock:
        driver.launch(load_once(driver, made), step, parameters, stream)


def _elementwise(made: Any, entry: str, count: int, x: Any) -> Step:
    """A launch of one thread for each of ``count`` elements."""
    blocks = max(ceil_div(count, made.threads), 1)
    return Step(entry, (blocks, 1, 1), (made.threads, 1, 1), 0, made.parameters.arguments(x))
