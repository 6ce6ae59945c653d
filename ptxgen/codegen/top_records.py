"""The n best records of rows: a record is a value and its index, one integer that orders as values do, then as indices.

Lists of values and of pairs (i, j) become records, in one run or in one of each row. Blocks sort runs of ``RUN``
records in shared memory; then passes join ``JOINED`` adjacent runs, and keep the n best of each, until one is left. The
place of a record in the joined run is the number of those before it, which binary searches count. All records of a row
are different, so results do not depend on the order of the lists.
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
MOST_RECORDS = 1 << 31  #: fewer are in a list


class Summary(NamedTuple):
    """The numbers of 32 bits at ``TOTAL``. ``records``: of 64 bits, of all rows; ``most``: of a row; ``short``: rows
    that have less than n records, although their sample had n."""

    records: int
    most: int
    short: int

    @classmethod
    def of(cls, words: Any) -> Summary:
        """The numbers in four words."""
        low, high, most, short = (int(x) for x in words)
        return cls(low | high << 32, most, short)


class Lists(NamedTuple):
    """What a launch orders. ``capacity``: elements of the lists, whose first ``COUNT`` are read; ``rows``: 1, if it is
    of all pairs; ``columns``: the extent of j; ``most``: records of a row, at most; ``n``: of these, the best are
    kept; ``first``, ``width``: the places of a row that are written; ``missing``: the value of places without a record;
    ``missing_index``: their index; ``slack``: floats that are written are so much worse, relative to their magnitude;
    ``sampled``: True if ``SAMPLE_COUNTS`` are the records that the rows of a sample had; ``first_row``: index of the
    first row."""

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
    """A matrix of values ``VALUES``, of ``places`` pairs of each row. ``first``, ``step``: of their indices."""

    lists: Lists
    places: int
    first: int
    step: int


class _Pass(NamedTuple):
    """One pass over runs. ``length``: of a run; ``runs``: of a row, at most; ``kept``: records of a run; ``chunks``:
    blocks of a row."""

    lists: Lists
    length: int
    runs: int
    kept: int
    chunks: int


@dataclass(frozen=True)
class TopRecords(DeviceText):
    """The kernels for values of type ``dtype``. ``axis``: i or j, whose indices are rows, empty: all pairs are one;
    ``greatest``: greater values are before others; ``wide``: records have 128 bits, not 64."""

    dtype: str
    axis: str
    greatest: bool
    wide: bool
    device: Device

    kernel: ClassVar[str] = "kernel/top_records.mako"
    threads: ClassVar[int] = 256
    RUN: ClassVar[int] = 2048
    JOINED: ClassVar[int] = 16

    @staticmethod
    def needs_wide(value_type: str, axis: str, m: int, n: int) -> bool:
        """True if the value and the index of a pair need more than 64 bits together."""
        return value_type == "f64" or (not axis and m * n > 1 << 32)

    @property
    def description(self) -> list[str]:
        """What the kernels compute, for the header of the module."""
        what = "greatest" if self.greatest else "least"
        of = f"each {self.axis}" if self.axis else "all pairs"
        return [f"the {what} values of {of}, {self.dtype}, records of {8 * self.bytes} bits"]

    @property
    def bytes(self) -> int:
        """The size of a record."""
        return 16 if self.wide else 8

    @property
    def value_bytes(self) -> int:
        return dtype(self.dtype).bytes

    @property
    def key_bits(self) -> int:
        """The bits of a value as an integer that orders as values do."""
        return 64 if self.dtype == "f64" else 32

    @property
    def group(self) -> str:
        """How values are ordered: as floats, signed or unsigned integers."""
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
        """The first records of a run, whose n-th best bounds the others."""
        most = self.RUN // 2
        return max(64, 1 << (2 * n - 1).bit_length()) if 4 * n <= most else self.RUN

    def join_runs(self, back: bool = False) -> ParameterList:
        """``back``: the pass writes to the records that the first pass reads."""
        arrays = (TO, FROM) if back else (FROM, TO)
        numbers = Parameters(
            "u32", ("length", "kept", "n", "chunks"), lambda x: (x.length, x.kept, x.lists.n, x.chunks)
        )
        return ParameterList((given("u64", *arrays, COUNTS, OFFSETS), numbers))

    def write_best(self, joined: bool = False) -> ParameterList:
        """``joined``: the last pass has written to ``TO``."""
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
        """The list of the indices that are rows."""
        return LIST_I if self.axis == "i" else LIST_J

    def _bits(self, value: float) -> int:
        """The bits of a value in the register from which it is stored."""
        if self.group != "float":
            return int(value) & 0xFFFFFFFF
        if self.key_bits == 64:
            return int(np.float64(value).view(np.uint64))
        return int(np.float32(value).view(np.uint32))

    # ---- launches

    def scratch(self, x: Lists) -> dict[str, int]:
        """The bytes of each array besides the lists and the results."""
        sizes = {FROM: x.capacity * self.bytes, COUNTS: 4 * x.rows, OFFSETS: 8 * x.rows}
        return sizes | ({SLOTS: 4 * x.capacity, TOTAL: 16} if self.axis else {})

    def joined_bytes(self, x: Lists) -> int:
        """The bytes of the array of joined runs."""
        return x.capacity * self.bytes if x.most > self.RUN else 0

    def steps(self, x: Lists) -> tuple[Step, ...]:
        """The steps that write the best records of lists."""
        return (*self.making(x), *self.ordering(x))

    def making(self, x: Lists) -> Iterator[Step]:
        """The steps that make records; of rows, they also write the ``Summary``."""
        lists = ceil_div(max(x.capacity, 1), self.threads)
        if self.axis:
            for name, size in ((COUNTS, 4 * x.rows), (TOTAL, 16)):
                yield Step("", (size, 1, 1), arguments=(("u64", name),))
            yield self._step("count_rows", lists, self.count_rows, x)
            yield self._step("place_rows", ceil_div(x.rows, self.threads), self.place_rows, x)
        yield self._step("make_records", lists, self.make_records, x)

    def sampling(self, x: Sample) -> Iterator[Step]:
        """The steps that make records of a matrix."""
        yield self._step("make_sample", ceil_div(x.lists.capacity, self.threads), self.make_sample, x)

    def ordering(self, x: Lists) -> Iterator[Step]:
        """The steps that order records, and write the best ones."""
        length, runs = self.RUN, ceil_div(max(x.most, 1), self.RUN)
        yield self._step("sort_runs", x.rows * runs, self.sort_runs, _Pass(x, length, runs, 0, 0))
        joined = False
        while runs > 1:
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
        """Name of a record -> the operand of its access."""
        return {
            name: f"{{%{name}, %{name}_index}}" if self.wide else f"%{name}"
            for name in ("own", "lower", "upper", "compared")
        }

    @property
    def declared(self) -> dict[tuple[str, ...], str]:
        """Names of records -> their registers."""
        return {
            names: ", ".join(f"%{name}, %{name}_index" if self.wide else f"%{name}" for name in names)
            for names in (("own",), ("lower", "upper"), ("own", "compared"))
        }

    @property
    def made_arrays(self) -> str:
        """The registers of the arrays of ``make_records``."""
        return ", ".join(f"%{name}" for name in self.make_records.names[:7])

    @property
    def written_arrays(self) -> list[str]:
        """The arrays of ``write_best``: records, rows, results."""
        return [name for name in self.write_best().names if name.startswith((FROM, "row_", BEST))]

    @property
    def written_registers(self) -> str:
        return ", ".join(f"%{name}" for name in self.written_arrays)

    @property
    def row_index(self) -> str:
        """The index that is a row."""
        return f"%index_{self.axis}"

    @property
    def other_index(self) -> str:
        return "%index_j" if self.axis == "i" else "%index_i"

    @property
    def widen_key(self) -> str:
        """The instruction that makes a key a word of a record."""
        return "mov.b64 %own, %key;" if self.key_bits == 64 else "cvt.u64.u32 %own, %key;"

    @property
    def narrow_key(self) -> str:
        return "mov.b64 %key, %own;" if self.key_bits == 64 else "cvt.u32.u64 %key, %own;"

    @property
    def sample_place(self) -> str:
        """The place of a value in the matrix of a sample."""
        return "mov.b32 %tmp0, %target;" if self.axis == "i" else "mad.lo.u32 %tmp0, %place, %rows, %row;"

    @property
    def records(self) -> str:
        """The slot of what depends on the bits of a record."""
        return f"prepare/{'wide' if self.wide else 'packed'}_records.mako"

    @property
    def slack_registers(self) -> list[str]:
        return [".reg .f32 %slack;", ".reg .f64 %wide_slack;"] if self.group == "float" else []


_FIRST_ROW = Parameters("u32", ("first_row",), lambda x: (x.first_row,))
_CAPACITY = Parameters("u64", ("capacity",), lambda x: (x.capacity,))
