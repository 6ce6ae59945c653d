"""Statistics of the pattern of a sparse matrix, by which a kernel is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import InputError

Ints = NDArray[np.int64]

BINS = 33  #: the number of bins of row lengths: 0, 1, 2, 3–4, 5–8, 9–16, …
VECTOR = 8  #: rows of a row window, and of an 8×1 vector
SAMPLE_ROWS = 64  #: rows of a sample
SAMPLES = 256  #: the most samples of a matrix
COUNTED = 1 << 15  #: the most columns of a sample among which distinct ones are counted
SHARES = 64  #: ``rounded`` rounds fractions to multiples of 1 / SHARES
BITS = 3  #: ``rounded`` keeps so many leading bits of counts
SPREAD = 2654435769  #: 2³² divided by the golden ratio; its multiples vary the distances of samples


@dataclass(frozen=True)
class PatternStatistics:
    """Statistics of a pattern: integers, computed in a pass over the row pointers and a pass over samples of the
    columns.

    ``nnz``: the number of nonzeros; ``longest``: the nonzeros of the longest row; ``longest_window``: the nonzeros of
    the largest row window (8 rows); ``squares``: Σ length² of the rows; ``rows``, ``nonzeros``: for each bin of
    ``length_bins``, the number of rows and the number of their nonzeros.

    In the samples of ``sampled_rows``: ``counted``: the nonzeros in the columns that ``column_step`` selects;
    ``vectors``: the distinct 8×1 vectors of these; ``columns``: the sum over samples of the number of their distinct
    columns; ``gaps``: the pairs of adjacent nonzeros of a row, in all columns; ``gap_bits``: the sum over these pairs
    of the bit length of the difference of their columns.

    ``distinct``: True if the columns of every row strictly increase.
    """

    nnz: int
    longest: int
    longest_window: int
    squares: int
    rows: tuple[int, ...]
    nonzeros: tuple[int, ...]
    counted: int
    vectors: int
    columns: int
    gaps: int
    gap_bits: int
    distinct: bool

    @property
    def m(self) -> int:
        """The number of rows."""
        return sum(self.rows)

    @property
    def mean(self) -> float:
        """The mean row length."""
        return self.nnz / max(self.m, 1)

    @property
    def variation(self) -> float:
        """The standard deviation of row lengths divided by their mean."""
        return max(self.squares * self.m / max(self.nnz, 1) ** 2 - 1, 0.0) ** 0.5 if self.nnz else 0.0

    @property
    def empty(self) -> float:
        """The fraction of rows that are empty."""
        return self.rows[0] / max(self.m, 1)

    @property
    def longest_share(self) -> float:
        """The fraction of the nonzeros that are in the longest 1 % of the rows."""
        left, nonzeros_of_longest = max(self.m // 100, 1), 0.0
        for rows, nonzeros in zip(reversed(self.rows), reversed(self.nonzeros), strict=True):
            nonzeros_of_longest += nonzeros * min(left / max(rows, 1), 1)
            left = max(left - rows, 0)
        return nonzeros_of_longest / max(self.nnz, 1)

    @property
    def vector_nonzeros(self) -> float:
        """The mean number of nonzeros of an 8×1 vector that has any: from 1 to 8; 0 without nonzeros."""
        return self.counted / max(self.vectors, 1)

    @property
    def column_share(self) -> float:
        """The number of distinct columns of 64 rows, divided by the number of their nonzeros."""
        return self.columns / max(self.counted, 1)

    @property
    def mean_gap_bits(self) -> float:
        """The mean bit length of the difference of the columns of adjacent nonzeros of a row: 1 if all are neighbours
        in A."""
        return self.gap_bits / max(self.gaps, 1)

    def quantile(self, share: float) -> float:
        """The row length that a fraction ``share`` of the rows does not exceed, estimated from the bins."""
        at = share * self.m
        for i, (rows, nonzeros) in enumerate(zip(self.rows, self.nonzeros, strict=True)):
            if rows and at <= rows:
                mean, (low, high) = nonzeros / rows, bin_range(i)
                width = max(min(mean - low, min(high, self.longest) - mean), 0)
                return float(mean + (2 * at / rows - 1) * width)
            at -= rows
        return float(self.longest)

    def text(self) -> str:
        """The pattern text of the statistics: ``statistics:nnz=…,…``."""
        values = asdict(self) | {"rows": _joined(self.rows), "nonzeros": _joined(self.nonzeros)}
        return f"statistics:{','.join(f'{name}={_written(value)}' for name, value in values.items())}"

    def rounded(self) -> PatternStatistics:
        """The statistics rounded, so that similar matrices share them: counts keep 3 bits, fractions become multiples
        of 1/64."""
        nnz, m = _leading(self.nnz), self.m
        variation = round(self.variation * 8) / 8
        return replace(
            self,
            nnz=nnz,
            longest=_leading(self.longest),
            longest_window=_leading(self.longest_window),
            squares=int(nnz**2 * (1 + variation**2) / max(m, 1)),
            rows=tuple(m * _share(n, m) // SHARES for n in self.rows),
            nonzeros=tuple(nnz * _share(n, self.nnz) // SHARES for n in self.nonzeros),
            counted=SHARES * bool(self.counted),
            vectors=_share(self.vectors, self.counted),
            columns=_share(self.columns, self.counted),
            gaps=BITS * bool(self.gaps),
            gap_bits=round(BITS * self.mean_gap_bits),
        )


FIELDS = tuple(f.name for f in fields(PatternStatistics))
FORM = f"statistics:{','.join(f'{name}=…' for name in FIELDS)}"


def _joined(counts: tuple[int, ...]) -> str:
    """The text of counts, separated by slashes, without zeros at the end."""
    used = max((i + 1 for i, n in enumerate(counts) if n), default=1)
    return "/".join(map(str, counts[:used]))


def _written(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _leading(n: int) -> int:
    dropped = max(n.bit_length() - BITS, 0)
    return n >> dropped << dropped


def _share(n: int, of: int) -> int:
    return round(SHARES * n / of) if of else 0


def read_statistics(text: str) -> PatternStatistics:
    """The statistics that a text of ``PatternStatistics.text`` states. InputError: the text has another form."""
    given = dict(item.partition("=")[::2] for item in text.partition(":")[2].split(",") if item)
    if tuple(sorted(given)) != tuple(sorted(FIELDS)):
        raise InputError(f"pattern is {text!r}; it must be {FORM}")
    values: dict[str, Any] = {}
    for name in FIELDS:
        words = given[name].split("/")
        many = name in ("rows", "nonzeros")
        if not all(w.isascii() and w.isdigit() and len(w) < 20 for w in words) or len(words) > (BINS if many else 1):
            rule = f"at most {BINS} integers with / between them" if many else "an integer of at most 19 digits"
            raise InputError(f"pattern has {name}={given[name]}; it must be {rule}")
        counts = tuple(map(int, words))
        values[name] = counts + (0,) * (BINS - len(counts)) if many else counts[0]
    if values["distinct"] > 1:
        raise InputError(f"pattern has distinct={values['distinct']}; it must be 0 or 1")
    return PatternStatistics(**{**values, "distinct": bool(values["distinct"])})


def bit_lengths(x: Any) -> Ints:
    """The bit lengths of integers from 0 to 2⁵³."""
    return np.frexp(np.asarray(x, np.float64))[1].astype(np.int64)


def length_bins(lengths: Ints) -> Ints:
    """The bin of each row length n: 0 if n is 0, else 1 plus the bit length of n - 1."""
    return np.where(lengths > 0, bit_lengths(np.maximum(lengths - 1, 0)) + 1, 0)


def bin_range(i: int) -> tuple[int, int]:
    """The least and the greatest row length of a bin."""
    return ((1 << i - 2) + 1 if i > 1 else i), (1 << i - 1 if i else 0)


def sampled_rows(m: int) -> list[int]:
    """The first row of each sample of up to 64 rows. The samples cover the matrix, or are 256 at about equal
    distances."""
    samples = -(-m // SAMPLE_ROWS)
    if samples <= SAMPLES:
        return [SAMPLE_ROWS * i for i in range(samples)]
    shift = [(i * SPREAD & 0xFFFFFFFF) >> 24 for i in range(SAMPLES)]  # distances vary: patterns may be periodic
    return [SAMPLE_ROWS * ((i * samples >> 8) + (x * (samples >> 8) >> 8)) for i, x in enumerate(shift)]


def column_step(k: int) -> int:
    """The step by which samples select columns: sample i counts distinct columns among those that are i modulo this
    step."""
    return max(-(-k // COUNTED), 1)


def statistics_of_rows(k: int, lengths: Ints, columns: Callable[[int, int], Ints], distinct: bool) -> PatternStatistics:
    """The statistics of rows of these lengths. ``columns(first, last)``: returns the columns of the rows ``first`` to
    ``last`` - 1, one row after the other; ``distinct``: as in ``PatternStatistics``."""
    m = len(lengths)
    bins = length_bins(lengths)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    windows = starts[np.minimum(np.arange(0, m, VECTOR) + VECTOR, m)] - starts[np.arange(0, m, VECTOR)]
    counted = vectors = distinct_columns = gaps = gap_bits = 0
    step = column_step(k)
    for i, first in enumerate(sampled_rows(m)):
        last = min(first + SAMPLE_ROWS, m)
        sampled = columns(first, last).astype(np.int64)
        rows = np.repeat(np.arange(last - first), lengths[first:last])
        inside = rows[1:] == rows[:-1]
        gaps += int(inside.sum())
        gap_bits += int(bit_lengths(np.abs(np.diff(sampled))[inside]).sum())
        if step > 1:
            chosen = sampled % step == i % step
            sampled, rows = sampled[chosen], rows[chosen]
        counted += len(sampled)
        vectors += _distinct(rows // VECTOR * k + sampled)
        distinct_columns += _distinct(sampled)
    return PatternStatistics(
        nnz=int(lengths.sum()),
        longest=int(lengths.max(initial=0)),
        longest_window=int(windows.max(initial=0)),
        squares=int((lengths * lengths).sum()),
        rows=tuple(np.bincount(bins, minlength=BINS).tolist()),
        nonzeros=tuple(int(n) for n in np.bincount(bins, lengths, BINS)),
        counted=counted,
        vectors=vectors,
        columns=distinct_columns,
        gaps=gaps,
        gap_bits=gap_bits,
        distinct=distinct,
    )


def _distinct(x: Ints) -> int:
    """The number of distinct integers. ``numpy.unique`` takes ten times as long."""
    x = np.sort(x)
    return int((x[1:] != x[:-1]).sum()) + bool(len(x))


def strictly_increases(indptr: NDArray[Any], indices: NDArray[Any]) -> bool:
    """True if the columns of every row strictly increase."""
    begins = np.zeros(len(indices) + 1, bool)
    begins[indptr[:-1]] = True
    return bool(begins[1:-1][indices[1:] <= indices[:-1]].all())


def statistics_of(k: int, indptr: NDArray[Any], indices: NDArray[Any]) -> PatternStatistics:
    """The statistics of a matrix of ``k`` columns in CSR."""
    starts = indptr.astype(np.int64)
    return statistics_of_rows(
        k,
        starts[1:] - starts[:-1],
        lambda first, last: indices[indptr[first] : indptr[last]],
        strictly_increases(indptr, indices),
    )
