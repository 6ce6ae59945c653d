"""Patterns of sparse matrices: random numbers, generators, files, digests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ptxgen.errors import InputError
from ptxgen.operations.spmm import patterns
from ptxgen.operations.spmm.pattern import Pattern, digest
from ptxgen.operations.spmm.patterns import GENERATORS, canonical, pattern
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.random_numbers import permutation, random_bits
from ptxgen.operations.spmm.reference import arrays_of
from ptxgen.problem.registry import parse

#: pattern text -> the digest of the matrix of 64 rows and columns. Measured matrices change with these digits.
DIGESTS = {
    "bernoulli:density=0.1,seed=7": "0b487352435269c1",
    "lognormal:density=0.1,sigma=2": "38824d03796f7b4c",
    "even:nnz=777": "5838b9f84f3dcf9b",
    "banded:width=5": "bfd203522e8301ea",
    "poisson3d:points=7": "0dc5f344b3554108",
    "poisson3d:points=27": "ea12e5b843940e5f",
    "zipf:mean=4,exponent=0.9,empty=0.1": "81b19e3b85b5b1ff",
    "blocky:density=0.1,rows=8,columns=1": "49fb996e1bc91eb4",
    "blocky:density=0.2,rows=3,columns=5,fill=0.5": "9c8e8bafb616a8d2",
    "rmat:degree=8": "e4ebc4236b2f1017",
    "rmat:degree=8,permute=0": "9dc2a97a2eb719d5",
    "attachment:links=4": "4eb36e839acfc091",
    "uniform:degree=4": "5d6324f35f34a775",
    "communities:degree=8,size=16,inside=0.8": "b640ea8572e4b52d",
}
#: generators of matrices of any extents
ANY = [text for text in DIGESTS if not text.startswith(("poisson3d", "attachment"))]


def made(m: int, k: int, text: str) -> Pattern:
    return pattern(m, k, canonical(text))


def dense(p: Pattern) -> np.ndarray:
    out = np.zeros((p.m, p.k), int)
    np.add.at(out, (np.repeat(np.arange(p.m), p.lengths), p.indices), 1)
    return out


def test_random_numbers_are_the_same_in_every_process() -> None:
    assert random_bits(0, 0, np.arange(3)).tolist() == [6235967106033911276, 4964577235801436555, 5009519748041543987]
    assert permutation(0, 0, 6).tolist() == [1, 2, 0, 5, 3, 4]


def test_matrices_are_the_same_in_every_process() -> None:
    assert {text: digest(made(64, 64, text)) for text in DIGESTS} == DIGESTS
    assert {text.partition(":")[0] for text in DIGESTS} == set(GENERATORS)


@pytest.mark.parametrize("text", ANY)
@pytest.mark.parametrize(("m", "k"), [(60, 50), (50, 300), (1, 7), (9, 1), (0, 5), (5, 0)])
def test_patterns_are_valid(text: str, m: int, k: int) -> None:
    p = made(m, k, text)
    assert (p.m, p.k, p.indptr[0], p.indptr[-1]) == (m, k, 0, p.nnz)
    assert (p.indptr.dtype, p.indices.dtype) == (np.int32, np.int32)
    assert (p.lengths >= 0).all()
    assert ((p.indices >= 0) & (p.indices < k)).all()
    assert patterns.row_lengths(m, k, canonical(text)).tolist() == p.lengths.tolist()
    steps = np.diff(np.repeat(np.arange(m), p.lengths) * 1000 + p.indices)
    assert (steps >= (0 if text.startswith("even") else 1)).all()


def test_arrays_of_a_problem_are_its_own() -> None:
    """The matrix of a text is cached. Writing to a problem's arrays does not change it."""
    p = Spmm(9, 8, 7, pattern="banded:width=3")
    arrays = arrays_of(p)
    arrays["indices"][:] = 0
    assert arrays_of(p)["indices"].any()
    with pytest.raises(ValueError, match="read-only"):
        made(9, 7, p.pattern).indices[0] = 0


def test_each_place_has_the_density_of_the_text() -> None:
    """Counts of places over many seeds: every row, every column, and places one after the other."""
    total, both = np.zeros((20, 30)), 0.0
    for seed in range(400):
        one = dense(made(20, 30, f"bernoulli:density=0.3,seed={seed}"))
        total, both = total + one, both + (one[:, 1:] * one[:, :-1]).mean() / 400
    assert abs(total / 400 - 0.3).max() < 0.1
    assert abs(total.mean(0) / 400 - 0.3).max() < 0.03
    assert abs(total.mean(1) / 400 - 0.3).max() < 0.03
    assert both == pytest.approx(0.09, rel=0.05)
    assert dense(made(20, 30, "bernoulli:density=1")).all()
    assert made(20, 30, "bernoulli:density=0").nnz == 0
    assert made(10, 1 << 30, "bernoulli:density=1e-300").nnz == 0


def test_rows_are_independent_of_the_block_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that need more numbers than were drawn at first are among them."""
    from ptxgen.operations.spmm import matrix_generators

    text = "lognormal:density=0.05,sigma=1,seed=5"
    expected = digest(made(3000, 60, text))
    patterns._made.cache_clear()
    monkeypatch.setattr(matrix_generators, "AT_ONCE", 100)
    assert digest(made(3000, 60, text)) == expected


def test_lengths_of_rows() -> None:
    bernoulli, lognormal = (
        made(400, 500, f"{text},seed=3").lengths / 500
        for text in ("bernoulli:density=0.1", "lognormal:density=0.1,sigma=1")
    )
    assert bernoulli.mean() == pytest.approx(0.1, rel=0.05)
    assert lognormal.mean() == pytest.approx(0.1, rel=0.2)
    assert lognormal.std() > 4 * bernoulli.std()
    zipf = np.sort(made(4096, 1 << 17, "zipf:mean=32,exponent=1,empty=0.25").lengths)[::-1]
    assert (zipf == 0).mean() == pytest.approx(0.25, abs=0.03)
    assert zipf[0] / zipf[15] == pytest.approx(16, rel=0.5)


def test_blocks() -> None:
    vectors = dense(made(64, 100, "blocky:density=0.2,rows=8,columns=1")).reshape(8, 8, 100)
    assert (vectors == vectors[:, :1]).all()
    assert vectors.mean() == pytest.approx(0.2, abs=0.04)
    assert dense(made(61, 97, "blocky:density=1,rows=4,columns=4")).all()
    filled = dense(made(64, 96, "blocky:density=0.1,rows=16,columns=16,fill=0.5,seed=2")).reshape(4, 16, 6, 16)
    of_blocks = filled.mean((1, 3))
    assert ((of_blocks == 0) | (abs(of_blocks - 0.5) < 0.15)).all()
    assert 0 < (of_blocks > 0).mean() < 0.6


def test_stencils() -> None:
    seven, many = (dense(made(64, 64, f"poisson3d:points={points}")) for points in (7, 27))
    place = np.stack(np.unravel_index(np.arange(64), (4, 4, 4)), 1)
    apart = abs(place[:, None] - place)
    np.testing.assert_array_equal(seven, apart.sum(2) <= 1)
    np.testing.assert_array_equal(many, apart.max(2) <= 1)
    assert dense(made(6, 6, "banded:width=3")).tolist() == (abs(np.subtract.outer(range(6), range(6))) < 2).tolist()


def test_transposes() -> None:
    text = "transpose:zipf:mean=4,exponent=1,empty=0.2"
    p = Spmm(50, 8, 70, pattern=text)
    np.testing.assert_array_equal(dense(made(50, 70, text)), dense(made(70, 50, text.partition(":")[2])).T)
    assert p.pattern == canonical(text) == canonical(canonical(text))
    assert p.nnz == Spmm(70, 8, 50, pattern=text.partition(":")[2]).nnz == p.statistics.nnz
    assert canonical(f"transpose:{text}").count("transpose:") == 2
    with pytest.raises(InputError, match="must be followed by a text that makes a matrix"):
        canonical(f"transpose:{p.statistics.text()}")
    with pytest.raises(InputError, match="the matrix must be square, not 7×5"):
        Spmm(5, 8, 7, pattern="transpose:attachment:links=2").nnz  # noqa: B018


def test_graphs() -> None:
    linked = dense(made(500, 500, "attachment:links=4"))
    np.testing.assert_array_equal(linked, linked.T)
    degrees = linked.sum(0)
    assert degrees[:25].mean() > 4 * degrees[250:].mean() > 8
    near = dense(made(512, 512, "communities:degree=16,size=64,inside=0.75"))
    inside = np.kron(np.eye(8), np.ones((64, 64)))
    assert (near * inside).sum() / near.sum() == pytest.approx(0.75, abs=0.06)
    assert made(512, 512, "uniform:degree=8").lengths.mean() == pytest.approx(8, rel=0.05)


def test_rmat_quadrants_have_their_probabilities() -> None:
    """Without permutation the halves of rows and columns show the first level, those of a quadrant the second."""
    for m, k in ((1 << 10, 1 << 10), (1 << 11, 1 << 11), (1000, 600)):
        p = dense(made(m, k, "rmat:degree=4,a=0.5,b=0.3,c=0.15,permute=0,seed=1"))
        for matrix in (p, p[m // 2 :, : k // 2]):
            h, w = (x // 2 for x in matrix.shape)
            shares = [matrix[:h, :w].sum(), matrix[:h, w:].sum(), matrix[h:, :w].sum(), matrix[h:, w:].sum()]
            np.testing.assert_allclose(np.array(shares) / matrix.sum(), [0.5, 0.3, 0.15, 0.05], atol=0.06)
    natural, permuted = (made(4096, 4096, f"rmat:degree=8,permute={x}").lengths for x in (0, 1))
    assert sorted(natural) == sorted(permuted)
    assert natural[:2048].sum() > 1.5 * natural[2048:].sum()
    assert permuted[:2048].sum() < 1.3 * permuted[2048:].sum()


@pytest.mark.parametrize(
    ("m", "k", "text", "message"),
    [
        (5, 7, "attachment:links=2", "the matrix must be square, not 5×7"),
        (9, 9, "poisson3d:points=7", "M and K must be one cube, not 9 and 9"),
        (8, 8, "poisson3d:points=9", "points must be 7 or 27"),
        (8, 8, "rmat:degree=2,a=0.9", r"a \+ b \+ c must be at most 1"),
        (8, 8, "blocky:density=0.5,rows=8,columns=1,fill=0.2", "density must be at most fill"),
        (100_000, 100_000, "bernoulli:density=0.5", "it must have less than 2147483648 nonzeros, not 5e"),
        (100_000, 100_000, "banded:width=999999999", "it must have less than 2147483648 nonzeros, not 1e"),
        (1 << 20, 1 << 20, "rmat:degree=2048", "it must have less than 2147483648 nonzeros, not 2.15e"),
        (8, 8, "uniform:degree=2,seed=-1", "seed must be from 0 to 2147483647"),
        (8, 8, "uniform:degree=2.5", "degree must be of type int"),
        (8, 8, "mtx:a file", "it must be mtx:FILE, without spaces"),
        (8, 8, "smtx:", "it must be smtx:FILE, without spaces"),
        (8, 8, "mtx:/missing.mtx", "pattern is mtx:/missing.mtx; the file must be readable: .*No such file"),
    ],
)
def test_matrices_that_no_generator_makes(m: int, k: int, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Spmm(m, 8, k, pattern=text).nnz  # noqa: B018


def test_large_matrices_have_a_text() -> None:
    """The default pattern has too many nonzeros for their extents."""
    p = Spmm(1 << 16, 64, 1 << 16, pattern="rmat:degree=16")
    assert parse(p.key()) == p


# ---- files

MTX = """%%MatrixMarket matrix coordinate real general
% of a test
3 4 4
3 1 1.5
1 4 -2e3
1 2 1
3 1 0
"""
SMTX = """3, 4, 4
0 2 2 4
3 1 0 0
"""


def written(folder: Path, text: str, name: str = "a.mtx") -> str:
    (folder / name).write_text(text)
    return f"{name.rpartition('.')[2]}:{folder / name}"


def test_matrix_market_files(tmp_path: Path) -> None:
    general = written(tmp_path, MTX)
    p = Spmm(3, 8, 4, pattern=general)
    pattern_read = pattern(3, 4, p.pattern)
    assert (pattern_read.indptr.tolist(), pattern_read.indices.tolist()) == ([0, 2, 2, 4], [1, 3, 0, 0])
    assert p.pattern == f"{general},digest={digest(pattern_read)}"
    assert parse(p.key()) == p
    assert (p.nnz, p.reduction, p.statistics.distinct) == (4, 2, False)
    symmetric = written(
        tmp_path, "%%matrixmarket MATRIX coordinate Pattern symmetric\n\n3 3 3\n1 1\n3 1\n3 2\n", "s.mtx"
    )
    assert dense(made(3, 3, symmetric)).tolist() == [[1, 0, 1], [0, 0, 1], [1, 1, 0]]


def test_files_of_dlmc(tmp_path: Path) -> None:
    text = written(tmp_path, SMTX, "a.smtx")
    pattern_read = made(3, 4, text)
    assert (pattern_read.indptr.tolist(), pattern_read.indices.tolist()) == ([0, 2, 2, 4], [3, 1, 0, 0])
    ordered = replace(pattern_read, indices=np.array([1, 3, 0, 0], np.int32))
    assert digest(pattern_read) != digest(ordered) == digest(made(3, 4, written(tmp_path, MTX)))


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    p = Spmm(3, 8, 4, pattern=written(tmp_path, MTX))
    written(tmp_path, MTX.replace("1 2 1", "1 1 1 "))
    same = Spmm(3, 8, 4, pattern=p.pattern)
    with pytest.raises(InputError, match=r"the file must have this digest, not [0-9a-f]{16}"):
        same.nnz  # noqa: B018
    (tmp_path / "a.mtx").unlink()
    assert parse(p.key()) == p
    with pytest.raises(InputError, match="the file must be readable"):
        same.nnz  # noqa: B018


def test_a_file_has_its_extents(tmp_path: Path) -> None:
    p = Spmm(3, 8, 5, pattern=written(tmp_path, MTX))
    with pytest.raises(InputError, match="the matrix must be 3×4, not 3×5"):
        p.statistics  # noqa: B018


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MTX.replace("real", "complex"), "it must begin with %%MatrixMarket matrix coordinate, one of pattern"),
        (MTX.replace("coordinate", "array"), "it must begin with %%MatrixMarket matrix coordinate"),
        (MTX.replace("general", "hermitian"), "one of general, symmetric"),
        (MTX.replace("general", "symmetric"), "has 3 rows and 4 columns; a symmetric matrix must have as many"),
        (MTX.replace("3 4 4", "3 4"), "has the sizes '3 4'; they must be rows, columns and nonzeros"),
        (MTX.replace("3 4 4", "3 4 5"), "has 12 numbers after its sizes, not 15; each nonzero must have 3"),
        (MTX.replace("1.5", "x"), "has a word that is no number"),
        (MTX.replace("1 4 -2e3", "1 5 -2e3"), "has column 5 in nonzero 1; it must be from 1 to 4"),
        (MTX.replace("3 1 0", "0 1 0"), "has row 0 in nonzero 3; it must be from 1 to 3"),
        ("", "begins with ''"),
    ],
)
def test_wrong_matrix_market_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Spmm(3, 8, 4, pattern=written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMTX.replace(",", ""), "they must be rows, columns and nonzeros with commas between them"),
        (SMTX.replace("0 2 2 4", "0 2 1 4"), "has row pointers that decrease"),
        (SMTX.replace("0 2 2 4", "0 2 2 3"), "do not begin at 0 or end at 4"),
        (SMTX.replace("3 1 0 0", "3 1 0 4"), "has column 4 in nonzero 3; it must be from 0 to 3"),
        (SMTX.replace("3 1 0 0", "3 1 0"), "there must be 4 row pointers and 4 columns"),
    ],
)
def test_wrong_files_of_dlmc_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Spmm(3, 8, 4, pattern=written(tmp_path, text, "a.smtx"))
