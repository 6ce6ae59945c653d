"""Kernels that find the n best records of each row. A record is a value and its index in one integer, which orders by
value, then by index.

Kernels convert lists of values and pairs (i, j) to records, grouped by row. Blocks sort runs of ``RUN`` records in
shared memory. Passes then merge ``JOINED`` adjacent runs at a time, and keep the n best records, until each row has one
run. The position of a record in the merged run is the number of records before it, which binary searches count. All
records of a row are different, so results do not depend on the order of the lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ptxgen.codegen.device_text import DeviceText
from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import ceil_div
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import bits_of, dtype

VALUES, LIST_I, LIST_J, COUNT = "values", "list_i", "list_j", "count"
COUNTS, SLOTS, OFFSETS, TOTAL = "row_counts", "row_slots", "row_offsets", "row_total"
SAMPLE_COUNTS = "sample_counts"
FROM, TO = "records", "joined_records"
BEST, BEST_I, BEST_J = "best", "best_i", "best_j"
MOST_RECORDS = 1 << 31  #: a list must have fewer records


class Summary(NamedTuple):
    """The numbers that kernels write to the array ``TOTAL``. ``records``: the number of all records; ``most``: the most
    records of a row; ``short``: the number of rows with fewer than n records although their sample had n."""

    records: int
    most: int
    short: int

    @classmethod
    def of(cls, words: Any) -> Summary:
        """The summary from the four 32-bit words of the array; ``records`` has two words."""
        low, high, most, short = (int(x) for x in words)
        return cls(low | high << 32, most, short)


class Lists(NamedTuple):
    """The lists that a launch orders.

    ``capacity``: elements of the lists, of which the first ``COUNT`` are read; ``rows``: the number of rows; 1 if all
    pairs are one row; ``columns``: the extent of j; ``most``: the most records of a row; ``n``: the number of best
    records that are kept; ``first``, ``width``: the range of ranks of a row that are written; ``missing``,
    ``missing_index``: the value and the index written for ranks without a record; ``slack``: written floats are made
    worse by this fraction of their magnitude; ``sampled``: True if the array ``SAMPLE_COUNTS`` has the numbers of
    records of a sample's rows; ``first_row``: the index of the first row."""

    capacity: int
    rows: int
    columns: int
    most: int
    n: int
    first: int
    width: int
    missing: float
    missing_index: int = -1
    slack: float = 0.0
    sampled: bool = False
    first_row: int = 0


class Sample(NamedTuple):
    """A sample of values, the matrix ``VALUES``. ``places``: the number of sampled pairs of a row; ``first``, ``step``:
    the first of their indices, and the step between indices."""

    lists: Lists
    places: int
    first: int
    step: int


class _Pass(NamedTuple):
    """One pass over runs. ``length``: records of a run; ``runs``: the most runs of a row; ``kept``: records of a run
    that are kept; ``chunks``: blocks per row."""

    lists: Lists
    length: int
    runs: int
    kept: int
    chunks: int


@dataclass(frozen=True)
class TopRecords(DeviceText):
    """The kernels that order records of values of type ``dtype``. ``axis``: the axis, i or j, whose indices are the
    rows; empty: all pairs are one row; ``greatest``: True if the greatest values are best; ``wide``: True if records
    have 128 bits, False for 64."""

    dtype: str
    axis: str
    greatest: bool
    wide: bool
    device: Device

    kernel: ClassVar[str] = "kernel/top_records.mako"
    threads: ClassVar[int] = 256
    RUN: ClassVar[int] = 2048
    JOINED: ClassVar[int] = 16
    PASSES: ClassVar[int] = 5  #: passes that join up to MOST_RECORDS records: 2048 · 16⁵ is 2³¹

    @staticmethod
    def needs_wide(value_type: str, axis: str, m: int, n: int) -> bool:
        """True if the value and the index of a pair need more than 64 bits together."""
        return value_type == "f64" or (not axis and m * n > 1 << 32)

    @property
    def description(self) -> list[str]:
        """The lines of the module's header that say what the kernels compute."""
        what = "greatest" if self.greatest else "least"
        of = f"each {self.axis}" if self.axis else "all pairs"
        return [f"the {what} values of {of}, {self.dtype}, records of {8 * self.bytes} bits"]

    @property
    def bytes(self) -> int:
        """The size of a record in bytes."""
        return 16 if self.wide else 8

    @property
    def value_bytes(self) -> int:
        return dtype(self.dtype).bytes

    @property
    def key_bits(self) -> int:
        """The number of bits of a value's key, an integer that orders as the values do."""
        return 64 if self.dtype == "f64" else 32

    @property
    def group(self) -> str:
        """The type group by which values are ordered: ``float``, ``signed`` or ``unsigned``."""
        return "float" if not dtype(self.dtype).integer else "signed" if self.dtype[0] == "s" else "unsigned"

    # ---- parameters

    @property
    def count_rows(self) -> ParameterList:
        return ParameterList((given("u64", self.row_list, COUNT, COUNTS, SLOTS), _CAPACITY, _FIRST_ROW))

    @property
    def place_rows(self) -> ParameterList:
        numbers = Parameters("u32", ("rows", "n"), lambda x: (x.rows, x.n if x.sampled else 0))
        sample = Parameters("u64", (SAMPLE_COUNTS,), lambda x: (SAMPLE_COUNTS if x.sampled else COUNTS,))
        return ParameterList((given("u64", COUNTS, OFFSETS, TOTAL), sample, numbers))

    @property
    def make_records(self) -> ParameterList:
        rows = (OFFSETS, SLOTS) if self.axis else (OFFSETS, COUNTS)
        columns = _FIRST_ROW if self.axis else Parameters("u32", ("columns",), lambda x: (x.columns,))
        return ParameterList((given("u64", VALUES, LIST_I, LIST_J, COUNT, FROM, *rows), _CAPACITY, columns))

    @property
    def make_sample(self) -> ParameterList:
        numbers = Parameters(
            "u32",
            ("rows", "places", "first_index", "step"),
            lambda x: (x.lists.rows, x.places, x.first, x.step),
        )
        return ParameterList((given("u64", VALUES, FROM, OFFSETS, COUNTS), numbers))

    @property
    def sort_runs(self) -> ParameterList:
        numbers = Parameters("u32", ("runs", "n", "part"), lambda x: (x.runs, x.lists.n, self.part(x.lists.n)))
        return ParameterList((given("u64", FROM, COUNTS, OFFSETS), numbers))

    def part(self, n: int) -> int:
        """The number of records at the start of a run that a block sorts first. The n-th best of these is a bound:
        other records of the run that are behind it are dropped."""
        most = self.RUN // 2
        return max(64, 1 << (2 * n - 1).bit_length()) if 4 * n <= most else self.RUN

    def join_runs(self, back: bool = False) -> ParameterList:
        """The parameters of the kernel that merges runs. ``back``: True if the pass reads ``TO`` and writes
        ``FROM``."""
        arrays = (TO, FROM) if back else (FROM, TO)
        numbers = Parameters(
            "u32", ("length", "kept", "n", "chunks"), lambda x: (x.length, x.kept, x.lists.n, x.chunks)
        )
        return ParameterList((given("u64", *arrays, COUNTS, OFFSETS), numbers))

    def write_best(self, joined: bool = False) -> ParameterList:
        """The parameters of the kernel that writes the best records. ``joined``: True if the last pass wrote to
        ``TO``."""
        indices = (BEST_J if self.axis == "i" else BEST_I,) if self.axis else (BEST_I, BEST_J)
        numbers = Parameters(
            "u32",
            ("rows", "columns", "first", "width", "missing_index"),
            lambda x: (x.rows, x.columns, x.first, x.width, x.missing_index & 0xFFFFFFFF),
        )
        missing = Parameters(f"u{self.key_bits}", ("missing",), lambda x: (self._bits(x.missing),))
        arrays = given("u64", TO if joined else FROM, COUNTS, OFFSETS, BEST, *indices)
        slack = Parameters("f32", ("slack",) if self.group == "float" else (), lambda x: (x.slack,))
        return ParameterList((arrays, numbers, missing, slack))

    @property
    def row_list(self) -> str:
        """The name of the list with the indices that are rows."""
        return LIST_I if self.axis == "i" else LIST_J

    def _bits(self, value: float) -> int:
        """The bits of ``value`` in the register from which it is stored."""
        if self.group != "float":
            return int(value) & 0xFFFFFFFF
        if self.key_bits == 64:
            return int(np.float64(value).view(np.uint64))
        return int(np.float32(value).view(np.uint32))

    # ---- launches

    def scratch(self, x: Lists) -> dict[str, int]:
        """The scratch arrays, besides the lists and the results, with their bytes."""
        sizes = {FROM: x.capacity * self.bytes, COUNTS: 4 * x.rows, OFFSETS: 8 * x.rows}
        return sizes | ({SLOTS: 4 * x.capacity, TOTAL: 16} if self.axis else {})

    def joined_bytes(self, x: Lists) -> int:
        """The bytes of the array of merged runs."""
        return x.capacity * self.bytes if x.most > self.RUN else 0

    def steps(self, x: Lists) -> tuple[Step, ...]:
        """The steps that find and write the best records of the lists ``x``."""
        return (*self.making(x), *self.ordering(x))

    def making(self, x: Lists) -> Iterator[Step]:
        """The steps that convert lists to records. If there is an axis, they also write the ``Summary``."""
        lists = ceil_div(max(x.capacity, 1), self.threads)
        if self.axis:
            for name, size in ((COUNTS, 4 * x.rows), (TOTAL, 16)):
                yield Step("", (size, 1, 1), arguments=(("u64", name),))
            yield self._step("count_rows", lists, self.count_rows, x)
            yield self._step("place_rows", ceil_div(x.rows, self.threads), self.place_rows, x)
        yield self._step("make_records", lists, self.make_records, x)

    def sampling(self, x: Sample) -> Iterator[Step]:
        """The steps that convert a sample's matrix to records."""
        yield self._step("make_sample", ceil_div(x.lists.capacity, self.threads), self.make_sample, x)

    def ordering(self, x: Lists) -> Iterator[Step]:
        """The steps that order the records and write the best."""
        length, runs = self.RUN, ceil_div(max(x.most, 1), self.RUN)
        yield self._step("sort_runs", x.rows * runs, self.sort_runs, _Pass(x, length, runs, 0, 0))
        joined = False
        for _ in range(self.PASSES):
            if not runs > 1:
                break
            kept = min(length, x.n)
            each = _Pass(x, length, runs, kept, ceil_div(runs * kept, self.threads))
            yield self._step("join_runs", x.rows * each.chunks, self.join_runs(joined), each)
            length, runs, joined = length * self.JOINED, ceil_div(runs, self.JOINED), not joined
        yield self._step("write_best", ceil_div(x.rows * x.width, self.threads), self.write_best(joined), x)

    def _step(self, entry: str, blocks: int, parameters: ParameterList, x: Any) -> Step:
        return Step(entry, (blocks, 1, 1), (self.threads, 1, 1), 0, tuple(parameters.arguments(x)))

    @property
    def record_type(self) -> str:
        return "v2.u64" if self.wide else "u64"

    @property
    def key_type(self) -> str:
        return f"b{self.key_bits}"

    @property
    def sign_shift(self) -> int:
        return self.key_bits - 1

    @property
    def sign_bit(self) -> str:
        return hex(1 << self.sign_shift)

    @property
    def all_bits(self) -> str:
        return hex((1 << self.key_bits) - 1)

    @property
    def zero(self) -> str:
        return bits_of(0.0, dtype(f"f{self.key_bits}"))

    @property
    def infinity(self) -> str:
        return "0d7ff0000000000000" if self.key_bits == 64 else "0f7f800000"

    @property
    def value_bits(self) -> int:
        return 8 * self.value_bytes

    @property
    def run_bytes(self) -> int:
        return self.RUN * self.bytes

    @property
    def operands(self) -> dict[str, str]:
        """Name of a record -> the operand of an access to it."""
        return {
            name: f"{{%{name}, %{name}_index}}" if self.wide else f"%{name}"
            for name in ("own", "lower", "upper", "compared")
        }

    @property
    def declared(self) -> dict[tuple[str, ...], str]:
        """Names of records -> the declaration of their registers."""
        return {
            names: ", ".join(f"%{name}, %{name}_index" if self.wide else f"%{name}" for name in names)
            for names in (("own",), ("lower", "upper"), ("own", "compared"))
        }

    @property
    def made_arrays(self) -> str:
        """The registers of the array addresses of ``make_records``, separated by commas."""
        return ", ".join(f"%{name}" for name in self.make_records.names[:7])

    @property
    def written_arrays(self) -> list[str]:
        """The array parameters of ``write_best``: records, row arrays, results."""
        return [name for name in self.write_best().names if name.startswith((FROM, "row_", BEST))]

    @property
    def written_registers(self) -> str:
        return ", ".join(f"%{name}" for name in self.written_arrays)

    @property
    def row_index(self) -> str:
        """The register of the index that is the row."""
        return f"%index_{self.axis}"

    @property
    def other_index(self) -> str:
        return "%index_j" if self.axis == "i" else "%index_i"

    @property
    def widen_key(self) -> str:
        """The instruction that widens a key to a word of a record."""
        return "mov.b64 %own, %key;" if self.key_bits == 64 else "cvt.u64.u32 %own, %key;"

    @property
    def narrow_key(self) -> str:
        return "mov.b64 %key, %own;" if self.key_bits == 64 else "cvt.u32.u64 %key, %own;"

    @property
    def sample_place(self) -> str:
        """The instruction that sets %tmp0 to the index of a value in the sample's matrix."""
        return "mov.b32 %tmp0, %target;" if self.axis == "i" else "mad.lo.u32 %tmp0, %place, %rows, %row;"

    @property
    def records(self) -> str:
        """The slot with the code that depends on the width of records."""
        return f"prepare/{'wide' if self.wide else 'packed'}_records.mako"

    @property
    def slack_registers(self) -> list[str]:
        return [".reg .f32 %slack;", ".reg .f64 %wide_slack;"] if self.group == "float" else []


_FIRST_ROW = Parameters("u32", ("first_row",), lambda x: (x.first_row,))
_CAPACITY = Parameters("u64", ("capacity",), lambda x: (x.capacity,))
