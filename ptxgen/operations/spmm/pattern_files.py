"""Reads patterns from files: coordinates in the Matrix Market format (``mtx``), and the format of DLMC (``smtx``)."""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import InputError
from ptxgen.operations.spmm.pattern import Pattern, digest, from_lengths, from_places

FIELDS = {"pattern": 2, "integer": 3, "real": 3}  #: field of the header -> count of numbers in a line
SYMMETRIES = ("general", "symmetric")
NONZEROS_LIMIT = 1 << 31


def load(form: str, path: str) -> tuple[Pattern, str]:
    """The pattern in a file, and its digest. A file that has not changed is not read again. InputError: the file cannot
    be read, or has another format."""
    try:
        state = Path(path).stat()
        return _loaded(form, path, state.st_mtime_ns, state.st_size)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"pattern is {form}:{path}; the file must be readable: {error}") from None


@lru_cache(maxsize=4)
def _loaded(form: str, path: str, changed: int, size: int) -> tuple[Pattern, str]:
    pattern = READERS[form](path)
    return pattern, digest(pattern)


def _numbers(path: str, text: str, count: int, what: str) -> NDArray[np.float64]:
    """The ``count`` numbers in ``text``, which white space separates. InputError: the text has another count, or other
    words."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            numbers = np.fromstring(text, np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            raise InputError(f"file {path} has a word that is no number; {what}") from None
    if len(numbers) != count:
        raise InputError(f"file {path} has {len(numbers)} numbers after its sizes, not {count}; {what}")
    return numbers


def _extents(path: str, words: list[str], rule: str) -> tuple[int, int, int]:
    """The sizes (rows, columns, nonzeros) in the words of the line of sizes. InputError: they are not such numbers."""
    if len(words) != 3 or not all(w.isascii() and w.isdigit() and int(w) < NONZEROS_LIMIT for w in words):
        raise InputError(f"file {path} has the sizes {' '.join(words)[:80]!r}; {rule} less than {NONZEROS_LIMIT}")
    m, k, nnz = map(int, words)
    return m, k, nnz


def _read_mtx(path: str) -> Pattern:
    with open(path, encoding="utf-8") as file:
        header = file.readline().lower().split()
        if (
            header[:3] != ["%%matrixmarket", "matrix", "coordinate"]
            or len(header) != 5
            or header[3] not in FIELDS
            or header[4] not in SYMMETRIES
        ):
            raise InputError(
                f"file {path} begins with {' '.join(header)[:80]!r}; it must begin with %%MatrixMarket matrix"
                f" coordinate, one of {', '.join(FIELDS)}, and one of {', '.join(SYMMETRIES)}"
            )
        line = file.readline()
        while line.startswith("%") or line.isspace():
            line = file.readline()
        m, k, nnz = _extents(path, line.split(), "they must be rows, columns and nonzeros,")
        width = FIELDS[header[3]]
        numbers = _numbers(path, file.read(), nnz * width, f"each nonzero must have {width}").reshape(nnz, width)
    rows, columns = numbers[:, 0].astype(np.int64) - 1, numbers[:, 1].astype(np.int64) - 1
    for name, indices, limit in (("row", rows, m), ("column", columns, k)):
        if len(outside := np.flatnonzero((indices < 0) | (indices >= limit))):
            at = int(outside[0])
            raise InputError(f"file {path} has {name} {indices[at] + 1} in nonzero {at}; it must be from 1 to {limit}")
    places = rows * k + columns
    if header[4] == "symmetric":
        if m != k:
            raise InputError(f"file {path} has {m} rows and {k} columns; a symmetric matrix must have as many")
        mirrored = rows != columns
        places = np.concatenate([places, columns[mirrored] * k + rows[mirrored]])
    return from_places(m, k, places, repeated=True)


def _read_smtx(path: str) -> Pattern:
    with open(path, encoding="utf-8") as file:
        words = [word.strip() for word in file.readline().split(",")]
        m, k, nnz = _extents(path, words, "they must be rows, columns and nonzeros with commas between them,")
        numbers = _numbers(
            path, file.read(), m + 1 + nnz, f"there must be {m + 1} row pointers and {nnz} columns"
        ).astype(np.int64)
    indptr, indices = numbers[: m + 1], numbers[m + 1 :]
    if indptr[0] != 0 or indptr[-1] != nnz or (indptr[1:] < indptr[:-1]).any():
        raise InputError(f"file {path} has row pointers that decrease, or do not begin at 0 or end at {nnz}; they must")
    if len(outside := np.flatnonzero((indices < 0) | (indices >= k))):
        at = int(outside[0])
        raise InputError(f"file {path} has column {indices[at]} in nonzero {at}; it must be from 0 to {k - 1}")
    return from_lengths(k, indptr[1:] - indptr[:-1], indices)


READERS = {"mtx": _read_mtx, "smtx": _read_smtx}
