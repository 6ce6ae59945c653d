"""The file of the fastest measurement of each problem."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from ptxgen.codegen.config.config import Config
from ptxgen.errors import CorruptError, SchemaError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.tuning.store import fastest, tuning_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Environment, Measurement

P, Q = Gemm(300, 200, 100, "TN"), Gemm(64, 64, 64, "NN", "f16")
DEVICES = [name for name in ("h100", "h200") if tuning_files.measurement_files(name)]


def measured(p: Gemm, us: float, outcome: str = "ok", **axes: int) -> Measurement:
    samples = (us,) if outcome == "ok" else ()
    return Measurement(p, Config(**axes), outcome, Environment("h200"), samples, "0" * 16)


def test_export_writes_the_fastest_measurement_of_each_problem(tmp_path: Path) -> None:
    with Database(tmp_path / "t.sqlite") as database:
        for m in (measured(P, 9.0), measured(P, 7.5, ms=4), measured(Q, 3.0, u=16), measured(Q, 0.0, "timeout", ms=4)):
            database.add(m)
        tuning_files.export_text(database, tmp_path / "out", device="h200")
    path = tuning_files.fastest_path("h200", tmp_path / "out")
    rows_read = fastest.read(path)
    assert rows_read == {P.key(): (str(Config(ms=4)), 7.5), Q.key(): (str(Config(u=16)), 3.0)}
    assert list(fastest.comparable(rows_read, Gemm(8, 8, 8, "NN", "f16"))) == [Q.key()]
    again = fastest.Fastest()
    measurements = tuning_files.measurement_files("h200", tmp_path / "out")
    again.add_plain(tuning_files.plain_all(measurements))
    before = path.read_bytes()
    assert again.write(measurements).read_bytes() == before


@pytest.mark.parametrize("name", DEVICES)
def test_the_shipped_file_is_of_the_shipped_measurements(name: str) -> None:
    """If not: ``Fastest.add_plain`` and ``Fastest.write`` make it again; ``db export`` writes both files."""
    with lzma.open(tuning_files.fastest_path(name), "rt") as file:
        head = [next(file).strip() for _ in range(3)]
    assert head[1:] == [
        f"# device: {name}",
        f"# measurements: {fastest.digest_of(tuning_files.measurement_files(name))}",
    ]


def test_damaged_files_are_errors_that_name_the_line(tmp_path: Path) -> None:
    path, title = tmp_path / "fastest.txt.xz", "# ptxgen fastest measurements, format 4\n"
    row = f"{P.key()} | family=simt | "
    for text, message in (
        ("other\n", "line 1"),
        (f"{title}{P.key()} | 3\n", "line 2"),
        (f"{title}{row}-1\n", "line 2"),
    ):
        path.write_bytes(lzma.compress(text.encode()))
        fastest._read.cache_clear()
        with pytest.raises(CorruptError, match=message):
            fastest.read(path)
    path.write_bytes(lzma.compress(title.replace("4", "99").encode()))
    fastest._read.cache_clear()
    with pytest.raises(SchemaError, match="99"):
        fastest.read(path)
    assert fastest.read(tmp_path / "none") == {}
