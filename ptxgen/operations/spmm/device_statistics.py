"""Computes on the device the statistics of a pattern, and its faults, from the arrays of a sparse matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given
from ptxgen.codegen.preparation import Preparation
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import Last, Log2, Mask
from ptxgen.operations.spmm.pattern_statistics import (
    BINS,
    COUNTED,
    SAMPLE_ROWS,
    SAMPLES,
    SPREAD,
    VECTOR,
    PatternStatistics,
    sampled_rows,
)
from ptxgen.runtime.driver import Driver
from ptxgen.runtime.prepared_operands import load_once, scratch


@dataclass(frozen=True)
class CsrStatistics(Preparation):
    """The kernels that compute the record of statistics of a sparse matrix. ``index``: the type of row pointers and
    columns, i32 or i64."""

    index: str = "i32"
    kernel: ClassVar[str] = "prepare/csr_statistics.mako"

    threads: ClassVar[int] = 256
    columns_per_thread: ClassVar[int] = 8
    bins: ClassVar[int] = BINS
    rows: ClassVar[int] = SAMPLE_ROWS
    windows: ClassVar[int] = SAMPLE_ROWS // VECTOR
    most_samples: ClassVar[int] = SAMPLES
    positions: ClassVar[int] = COUNTED
    spread: ClassVar[int] = SPREAD
    bitmap: ClassVar[int] = COUNTED // 8  #: bytes of the bitmap of a row window
    #: counters of a block that counts rows, besides three words for each bin: name -> number of words
    ROW_COUNTERS: ClassVar[dict[str, int]] = {"squares": 3, "starts": 1, "longest": 1, "longest_window": 1}
    #: the sums that a block computes over a sample
    SAMPLE_SUMS: ClassVar[tuple[str, ...]] = ("counted", "vectors", "columns", "gaps", "gap_bits", "row_gap_bits")
    #: fields of the record: name -> number of 64-bit integers. ``falls``: M minus the index of the first row that ends
    #: before it begins; ``outside``: the number of nonzeros from the first one whose column is outside the matrix;
    #: ``descents``: the number of columns that are not greater than the column before; ``starts``: the number of these
    #: that begin a row; ``row_gap_bits``: the part of ``gap_bits`` between rows
    RECORD: ClassVar[dict[str, int]] = {
        **dict.fromkeys(("first", "last", "falls", "outside", "longest", "longest_window", "squares"), 1),
        **dict.fromkeys(("descents", "starts", *SAMPLE_SUMS), 1),
        "rows": BINS,
        "nonzeros": BINS,
    }

    #: parameters of the kernels, from (M, K, nonzeros)
    parameters: ClassVar[ParameterList] = ParameterList(
        (
            given("u64", "indptr", "indices", "record"),
            Parameters("u64", ("nnz",), lambda x: x[2:]),
            Parameters("u32", ("M", "K"), lambda x: x[:2]),
        )
    )

    @property
    def description(self) -> list[str]:
        return [f"statistics and faults of the pattern of a sparse matrix in CSR, indices of type {self.index}"]

    @property
    def size(self) -> int:
        """The number of bytes of an index."""
        return 8 if self.index == "i64" else 4

    @property
    def load(self) -> str:
        """The PTX type of loads of an index."""
        return f"s{8 * self.size}"

    @property
    def row_counters(self) -> int:
        """The number of words of the counters of a block that counts rows."""
        return 3 * BINS + sum(self.ROW_COUNTERS.values())

    @property
    def sample_counters(self) -> int:
        """The number of words of the sums of a block that reads a sample."""
        return 2 * len(self.SAMPLE_SUMS)

    def counter(self, name: str) -> int:
        """The offset in bytes of a counter of ``ROW_COUNTERS``."""
        names = list(self.ROW_COUNTERS)
        return 4 * (3 * BINS + sum(self.ROW_COUNTERS[n] for n in names[: names.index(name)]))

    @property
    def offsets(self) -> dict[str, int]:
        """Name of a field -> its offset in the record in bytes."""
        ends = np.cumsum([0, *self.RECORD.values()])
        return {name: 8 * int(n) for name, n in zip(self.RECORD, ends, strict=False)}

    @property
    def bytes(self) -> int:
        """The number of bytes of the record."""
        return 8 * sum(self.RECORD.values())

    def steps(self, m: int, k: int, nnz: int) -> tuple[Step, ...]:
        """The launches for a matrix of this size, after a step that clears the record."""
        each = self.threads * self.columns_per_thread
        blocks = {
            "csr_rows": -(-m // (VECTOR * self.threads)),
            "csr_columns": -(-nnz // each),
            "csr_samples": len(sampled_rows(m)) if nnz else 0,
        }
        arguments = self.parameters.arguments((m, k, nnz))
        clear = Step("", (self.bytes, 1, 1), arguments=(("u64", "record"),))
        return clear, *(Step(name, (n, 1, 1), (self.threads, 1, 1), 0, arguments) for name, n in blocks.items() if n)

    @property
    def row_counter_bytes(self) -> int:
        return 4 * self.row_counters

    @property
    def sample_counter_bytes(self) -> int:
        return 4 * self.sample_counters

    last_thread = Last("threads")

    @property
    def block_columns(self) -> int:
        return self.threads * self.columns_per_thread

    @property
    def bitmaps(self) -> int:
        """The number of bytes of the bitmaps of a sample."""
        return self.windows * self.bitmap

    @property
    def bitmap_words(self) -> int:
        return self.bitmap // 4

    @property
    def bitmap_words_of_all(self) -> int:
        return self.bitmaps // 4

    @property
    def bitmap_offsets(self) -> range:
        return range(0, self.bitmaps, self.bitmap)

    row_mask = Mask("rows")
    log2_rows = Log2("rows")
    position_mask = Mask("positions")
    log2_positions = Log2("positions")

    @property
    def window_rows(self) -> range:
        """The first row of each row window of a sample, and the row after the last window."""
        return range(0, self.rows + VECTOR, VECTOR)

    @property
    def counters(self) -> dict[str, int]:
        """Name of a counter of ``ROW_COUNTERS`` -> its offset in bytes."""
        return {name: self.counter(name) for name in self.ROW_COUNTERS}

    @property
    def square_counters(self) -> range:
        """The offsets in bytes of the three words, of 22 bits each, of the sum of squares."""
        return range(self.counter("squares"), self.counter("squares") + 12, 4)

    @property
    def sample_sums(self) -> list[tuple[str, int, int]]:
        """For each sum of a block, its name and the offsets in bytes of its low and high word."""
        return [(name, 8 * i, 8 * i + 4) for i, name in enumerate(self.SAMPLE_SUMS)]


@dataclass(frozen=True)
class PatternRecord:
    """The result of the kernels for a pattern. ``first``, ``last``: the first and the last row pointer; ``fall``: the
    first row that ends before it begins; ``outside``: the first nonzero whose column is outside the matrix; both are
    None if there is none. ``statistics`` is correct if the pattern has no fault. ``us``: the time in microseconds."""

    first: int
    last: int
    fall: int | None
    outside: int | None
    statistics: PatternStatistics
    us: float


def read_pattern(
    driver: Driver,
    addresses: Mapping[str, int],
    m: int,
    k: int,
    nnz: int,
    index: str = "i32",
) -> PatternRecord:
    """The record of a matrix of M rows, K columns and ``nnz`` nonzeros whose ``indptr`` and ``indices`` are at these
    addresses, computed on the driver's stream."""
    made = CsrStatistics(index)
    kernel = load_once(driver, made)
    start = driver.now_us()
    at = {**addresses, **scratch(driver, {"record": made.bytes})}
    with driver.lock:
        for step in made.steps(m, k, nnz):
            driver.launch(kernel, step, step.pack(at))
        words = np.empty(made.bytes // 8, np.int64)
        driver.download(at["record"], words)
    us = driver.now_us() - start
    ends = np.cumsum(list(made.RECORD.values()))[:-1]
    record: dict[str, Any] = {
        name: part.tolist() for name, part in zip(made.RECORD, np.split(words, ends), strict=True)
    }
    one = {name: values[0] for name, values in record.items() if made.RECORD[name] == 1}
    if m == 0:
        driver.download(addresses["indptr"], ends := np.empty(1, f"i{made.size}"))
        one["first"] = one["last"] = int(ends[0])
    return PatternRecord(
        one["first"],
        one["last"],
        m - one["falls"] if one["falls"] else None,
        nnz - one["outside"] if one["outside"] else None,
        PatternStatistics(
            nnz=nnz,
            longest=one["longest"],
            longest_window=one["longest_window"],
            squares=one["squares"],
            rows=tuple(record["rows"]),
            nonzeros=tuple(record["nonzeros"]),
            counted=one["counted"],
            vectors=one["vectors"],
            columns=one["columns"],
            gaps=one["gaps"],
            gap_bits=one["gap_bits"] - one["row_gap_bits"],
            distinct=one["descents"] == one["starts"],
        ),
        us,
    )
