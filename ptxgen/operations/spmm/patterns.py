"""Pattern texts, which name a generator with parameters, such as ``bernoulli:density=0.1,seed=0``, or a file, such as
``mtx:FILE``, or state the statistics of a matrix.

Every process makes the same matrix from a text. The text of a file has the digest of its pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from ptxgen.arguments import shown
from ptxgen.errors import InputError
from ptxgen.operations.spmm import graph_generators, matrix_generators, pattern_files
from ptxgen.operations.spmm.pattern import Pattern, digest, empty, transposed
from ptxgen.operations.spmm.pattern_statistics import FORM as STATISTICS_FORM
from ptxgen.operations.spmm.pattern_statistics import (
    PatternStatistics,
    read_statistics,
    statistics_of,
    statistics_of_rows,
)
from ptxgen.operations.spmm.random_numbers import Ints

SEED_LIMIT = NONZEROS_LIMIT = 1 << 31
_DIGEST = re.compile(r"(.*),digest=([0-9a-f]{16})")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a generator. ``number_type``: int or float; ``least``, ``most``: its range; ``default``: None: the
    parameter must be given."""

    number_type: type
    least: float
    most: float
    default: float | None = None

    def read(self, text: str, name: str, word: str) -> Any:
        """The value of the parameter ``name`` that ``word`` gives. InputError: it is not a number, or outside the
        range."""
        try:
            value = self.number_type(word)
        except ValueError:
            raise InputError(f"pattern is {shown(text)}; {name} must be of type {self.number_type.__name__}") from None
        if not self.least <= value <= self.most:
            raise InputError(f"pattern is {shown(text)}; {name} must be from {self.least:.10g} to {self.most:.10g}")
        return value


@dataclass(frozen=True)
class Generator:
    """A generator of patterns. ``make(m, k, seed, **parameters)``: returns the pattern; ``expected(m, k,
    **parameters)``: returns the approximate number of nonzeros; ``rule(m, k, **parameters)``: returns the rule that
    extents or parameters break, or ""."""

    parameters: dict[str, Parameter]
    make: Callable[..., Pattern]
    meaning: str
    expected: Callable[..., float]
    rule: Callable[..., str] = lambda m, k, **_: ""


def _square(m: int, k: int, **_: Any) -> str:
    return "" if m == k else f"the matrix must be square, not {m}×{k}"


def _cube(m: int, k: int, points: int) -> str:
    if points not in (7, 27):
        return "points must be 7 or 27"
    return "" if m == k == matrix_generators.cube_side(m) ** 3 else f"M and K must be one cube, not {m} and {k}"


def _quadrants(m: int, k: int, a: float, b: float, c: float, **_: Any) -> str:
    return "" if a + b + c <= 1 else "a + b + c must be at most 1"


def _filled(m: int, k: int, density: float, fill: float, **_: Any) -> str:
    return "" if density <= fill else "density must be at most fill"


def _degrees(m: int, k: int, degree: int, **_: Any) -> float:
    return m * degree


_SHARE = Parameter(float, 0.0, 1.0)
_COUNT = Parameter(int, 0, NONZEROS_LIMIT - 1)
_SIZE = Parameter(int, 1, NONZEROS_LIMIT - 1)
_SEED = Parameter(int, 0, SEED_LIMIT - 1, 0)
#: generators by name
GENERATORS = {
    "bernoulli": Generator(
        {"density": _SHARE},
        matrix_generators.bernoulli,
        "each place has the probability `density`",
        lambda m, k, density: m * k * density,
    ),
    "lognormal": Generator(
        {"density": _SHARE, "sigma": Parameter(float, 0.0, 8.0)},
        matrix_generators.lognormal,
        "the densities of rows are lognormal with the mean `density`",
        lambda m, k, density, sigma: m * k * density,
    ),
    "even": Generator(
        {"nnz": _COUNT},
        matrix_generators.even,
        "`nnz` nonzeros in rows of equal length, whose columns may repeat",
        lambda m, k, nnz: nnz,
    ),
    "banded": Generator(
        {"width": _COUNT},
        matrix_generators.banded,
        "`width` adjacent columns along the diagonal",
        lambda m, k, width: m * min(width, k),
    ),
    "poisson3d": Generator(
        {"points": Parameter(int, 7, 27)},
        matrix_generators.poisson3d,
        "the stencil of 7 or 27 points on a cube of M points",
        lambda m, k, points: m * points,
        _cube,
    ),
    "zipf": Generator(
        {"mean": Parameter(float, 0.0, 2.0**31), "exponent": Parameter(float, 0.0, 8.0), "empty": _SHARE},
        matrix_generators.zipf,
        "row lengths are proportional to rank^-`exponent`, and a share `empty` of the rows is empty",
        lambda m, k, mean, exponent, empty: m * min(mean + 1, k),
    ),
    "blocky": Generator(
        {"density": _SHARE, "rows": _SIZE, "columns": _SIZE, "fill": Parameter(float, 0.0, 1.0, 1.0)},
        matrix_generators.blocky,
        "random blocks of `rows`×`columns`, each place filled with the probability `fill`",
        lambda m, k, density, rows, columns, fill: (m + rows) * (k + columns) * density / max(fill, 1e-9),
        _filled,
    ),
    "rmat": Generator(
        {
            "degree": _COUNT,
            "a": Parameter(float, 0.0, 1.0, 0.57),
            "b": Parameter(float, 0.0, 1.0, 0.19),
            "c": Parameter(float, 0.0, 1.0, 0.19),
            "permute": Parameter(int, 0, 1, 1),
        },
        graph_generators.rmat,
        "an R-MAT graph of `degree` edges a row; `permute=0` keeps its order",
        _degrees,
        _quadrants,
    ),
    "attachment": Generator(
        {"links": _COUNT},
        graph_generators.attachment,
        "a symmetric graph of preferential attachment: each node links to `links` earlier ones",
        lambda m, k, links: 2 * m * links,
        _square,
    ),
    "uniform": Generator(
        {"degree": _COUNT}, graph_generators.random_edges, "`degree` random edges a row on average", _degrees
    ),
    "communities": Generator(
        {"degree": _COUNT, "size": _SIZE, "inside": _SHARE},
        graph_generators.communities,
        "`degree` edges a row on average, a share `inside` of them within communities of `size` nodes",
        _degrees,
    ),
}
GENERATOR_FORM = "; ".join(
    f"{name}:{','.join(f'{x}=…' for x in g.parameters)},seed=…" for name, g in GENERATORS.items()
)
TRANSPOSE = "transpose"
FORM = f"{GENERATOR_FORM}; mtx:FILE; smtx:FILE; {TRANSPOSE}: with one of them; or {STATISTICS_FORM}"


def described_forms() -> dict[str, str]:
    """The forms of pattern texts, with the defaults of parameters -> their meaning."""
    out = {}
    for name, g in GENERATORS.items():
        words = (f"{n}={'…' if x.default is None else f'{x.default:g}'}" for n, x in g.parameters.items())
        out[f"{name}:{','.join(words)}"] = g.meaning
    return out | {
        "mtx:FILE": "a Matrix Market file of coordinates: real, integer or pattern, general or symmetric",
        "smtx:FILE": "a file of DLMC: `rows, columns, nonzeros`, then row pointers, then columns",
        f"{TRANSPOSE}:PATTERN": "the transpose of a K×M matrix of one of these patterns",
        "statistics:nnz=…,longest=…,…": "no matrix, but its statistics, for `select`, `explain` and `emit`",
    }


class PatternText:
    """A parsed pattern text. ``check``, ``make`` and ``statistics`` take M and K."""

    def canonical(self) -> str:
        raise NotImplementedError

    def check(self, m: int, k: int) -> None:
        """Raises InputError if the text has no matrix of M rows and K columns."""

    def make(self, m: int, k: int) -> Pattern:
        raise NotImplementedError

    def row_lengths(self, m: int, k: int) -> Ints:
        return _made(m, k, self).lengths

    def statistics(self, m: int, k: int) -> PatternStatistics:
        pattern = _made(m, k, self)
        return statistics_of(k, pattern.indptr, pattern.indices)


@dataclass(frozen=True)
class GeneratorText(PatternText):
    """The text of a generator: its name and the values of its parameters, in order."""

    name: str
    values: tuple[tuple[str, Any], ...]

    @property
    def generator(self) -> Generator:
        return GENERATORS[self.name]

    def canonical(self) -> str:
        words = (f"{n}={v:.10g}" if isinstance(v, float) else f"{n}={v}" for n, v in self.values)
        return f"{self.name}:{','.join(words)}"

    def check(self, m: int, k: int) -> None:
        if rule := self.generator.rule(m, k, **self.parameters):
            raise InputError(f"pattern is {self.canonical()}; {rule}")

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters without the seed, by name."""
        return {n: v for n, v in self.values if n != "seed"}

    def make(self, m: int, k: int) -> Pattern:
        """The pattern. InputError: 2³¹ nonzeros or more are expected."""
        if (expected := self.generator.expected(m, k, **self.parameters)) >= NONZEROS_LIMIT:
            raise InputError(
                f"pattern is {self.canonical()}; it must have less than {NONZEROS_LIMIT} nonzeros, not {expected:.3g}"
            )
        return self.generator.make(m, k, **dict(self.values)) if m and k else empty(m, k)

    def row_lengths(self, m: int, k: int) -> Ints:
        """The lengths of the rows. The matrix is not made if the lengths are known without it."""
        if self.name == "even" and k:
            return matrix_generators.even_lengths(m, dict(self.values)["nnz"])
        return super().row_lengths(m, k)

    def statistics(self, m: int, k: int) -> PatternStatistics:
        """The statistics of the pattern. For ``even`` they are computed without making the matrix, and state that
        columns repeat."""
        if self.name != "even" or not k:
            return super().statistics(m, k)
        lengths, columns = self.row_lengths(m, k), partial(matrix_generators.even_columns, m, k, **dict(self.values))
        return statistics_of_rows(k, lengths, lambda a, b: columns(first=a, last=b), bool(lengths.max(initial=0) <= 1))


@dataclass(frozen=True)
class FileText(PatternText):
    """The text of a file. ``form``: mtx or smtx; ``digest``: the digest of its pattern."""

    form: str
    path: str
    digest: str

    def canonical(self) -> str:
        return f"{self.form}:{self.path},digest={self.digest}"

    def make(self, m: int, k: int) -> Pattern:
        pattern, known = pattern_files.load(self.form, self.path)
        if known != self.digest:
            raise InputError(f"pattern is {self.canonical()}; the file must have this digest, not {known}")
        if (pattern.m, pattern.k) != (m, k):
            raise InputError(f"pattern is {self.canonical()}; the matrix must be {pattern.m}×{pattern.k}, not {m}×{k}")
        return pattern


@dataclass(frozen=True)
class TransposeText(PatternText):
    """The text of a transpose. ``of``: the text of the K×M matrix."""

    of: PatternText

    def canonical(self) -> str:
        return f"{TRANSPOSE}:{self.of.canonical()}"

    def check(self, m: int, k: int) -> None:
        self.of.check(k, m)

    def make(self, m: int, k: int) -> Pattern:
        return transposed(_made(k, m, self.of))


@dataclass(frozen=True)
class StatisticsText(PatternText):
    """A text that states the statistics of a matrix instead of naming one."""

    stated: PatternStatistics

    def canonical(self) -> str:
        return self.stated.text()

    def make(self, m: int, k: int) -> Pattern:
        raise InputError(
            f"pattern is {self.canonical()}; it must be one of {GENERATOR_FORM}; mtx:FILE; smtx:FILE to make a matrix:"
            " statistics do not"
        )

    def statistics(self, m: int, k: int) -> PatternStatistics:
        return self.stated


def read(text: str) -> PatternText:
    """The parsed pattern text. InputError: ``text`` names no pattern."""
    name, _, rest = text.partition(":")
    if name == TRANSPOSE:
        of = read(rest)
        if isinstance(of, StatisticsText):
            raise InputError(f"pattern is {shown(text)}; {TRANSPOSE}: must be followed by a text that makes a matrix")
        return TransposeText(of)
    return _read_file(name, rest) if name in pattern_files.READERS else _read(text)


@lru_cache(maxsize=256)
def _read(text: str) -> PatternText:
    name, _, rest = text.partition(":")
    if name == "statistics":
        return StatisticsText(read_statistics(text))
    given = dict(item.partition("=")[::2] for item in rest.split(",") if item)
    known = {**GENERATORS[name].parameters, "seed": _SEED} if name in GENERATORS else {}
    values = {n: x.default for n, x in known.items() if x.default is not None}
    values |= {n: x.read(text, n, given.pop(n)) for n, x in known.items() if n in given}
    if given or not known or set(values) != set(known):
        raise InputError(f"pattern is {shown(text)}; it must be one of {FORM}")
    return GeneratorText(name, tuple((n, values[n]) for n in known))


def _read_file(form: str, rest: str) -> FileText:
    """The parsed text of a file. The file is read if the text has no digest."""
    if stated := _DIGEST.fullmatch(rest):
        path, known = stated.groups()
    else:
        path, known = rest, ""
    if not path or len(path.split()) != 1 or path != path.strip():
        raise InputError(f"pattern is {shown(f'{form}:{rest}')}; it must be {form}:FILE, without spaces")
    return FileText(form, path, known or pattern_files.load(form, path)[1])


def canonical(text: str) -> str:
    """The canonical form of a pattern text: with all parameters, in order."""
    return read(text).canonical()


def check(m: int, k: int, text: str) -> None:
    """Raises InputError if the text has no matrix of ``m`` rows and ``k`` columns."""
    read(text).check(m, k)


@lru_cache(maxsize=8)
def _made(m: int, k: int, text: PatternText) -> Pattern:
    """The pattern of a text, cached; its arrays are read-only."""
    text.check(m, k)
    pattern = text.make(m, k)
    pattern.indptr.flags.writeable = pattern.indices.flags.writeable = False
    return pattern


def pattern(m: int, k: int, text: str) -> Pattern:
    """The pattern that a text names, with ``m`` rows and ``k`` columns. InputError: the text names none, or only states
    statistics."""
    return _made(m, k, read(text))


@lru_cache(maxsize=64)
def row_lengths(m: int, k: int, text: str) -> Ints:
    """The row lengths of the pattern that a text names. Columns are not made if they are not needed."""
    return read(text).row_lengths(m, k)


@lru_cache(maxsize=256)
def statistics(m: int, k: int, text: str) -> PatternStatistics:
    """The statistics of the pattern that a text names or states."""
    return read(text).statistics(m, k)


@lru_cache(maxsize=256)
def pattern_digest(m: int, k: int, text: str) -> str:
    """The digest of the pattern that a text names; empty if the text only states statistics."""
    return "" if stated_statistics(text) else digest(pattern(m, k, text))


def stated_statistics(text: str) -> PatternStatistics | None:
    """The statistics that a text states; None: the text names a matrix."""
    stated = read(text)
    return stated.stated if isinstance(stated, StatisticsText) else None
