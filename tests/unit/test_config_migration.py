"""Configurations of earlier text forms: those of databases, exported files and models of earlier versions."""

from __future__ import annotations

import json
import lzma
import sqlite3
from pathlib import Path

import pytest

from ptxgen.codegen.config.config import AXIS, Config, axes_of, parse_config
from ptxgen.codegen.config.migration import RENAMED, WORDS, formers, translate
from ptxgen.errors import ConfigError, CorruptError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.tuning.store.database import SCHEMA_VERSION, Database
from ptxgen.tuning.store.tuning_files import read_measurements, read_winners

#: every axis of form 1 but the family, none at its default
OLD_AXES = [
    "ms=4",
    "ns=4",
    "ml=128",
    "nl=96",
    "u=64",
    "ks=2",
    "kl=2",
    "kg=3",
    "stages=4",
    "copy_a=0",
    "copy_b=0",
    "keep_a=1",
    "keep_b=1",
    "vec_a=2",
    "vec_b=4",
    "vec_c=2",
    "wm=8",
    "split=3",
    "stage_c=1",
    "bounds=2",
    "lanes=1",
    "order=2",
    "ahead=0",
    "request=1",
    "hold=1",
    "raster=8",
    "stream=1",
    "resident=2",
    "swap=1",
    "wg=2",
    "pingpong=1",
    "cluster=2",
    "yc=4",
    "kc=3",
    "report=1",
    "persistent=1",
    "chunks=2",
    "buffers=4",
    "reuse=1",
    "evict=3",
    "repack=6",
    "rows=16",
    "pdl=3",
]
#: the same axes at their defaults
OLD_DEFAULTS = [
    "ms=8",
    "ns=8",
    "ml=64",
    "nl=64",
    "u=8",
    "ks=1",
    "kl=1",
    "kg=1",
    "stages=3",
    "copy_a=1",
    "copy_b=1",
    "keep_a=0",
    "keep_b=0",
    "vec_a=1",
    "vec_b=1",
    "vec_c=1",
    "wm=4",
    "split=0",
    "stage_c=0",
    "bounds=1",
    "lanes=0",
    "order=0",
    "ahead=1",
    "request=0",
    "hold=0",
    "raster=1",
    "stream=0",
    "resident=1",
    "swap=0",
    "wg=1",
    "pingpong=0",
    "cluster=1",
    "yc=1",
    "kc=1",
    "report=0",
    "persistent=0",
    "chunks=1",
    "buffers=1",
    "reuse=0",
    "evict=0",
    "repack=0",
    "rows=0",
    "pdl=0",
]
COOPERATIVE = (
    "ms=4 ns=4 ml=128 nl=96 u=64 kl=2 kg=3 stages=4 cp_async_a=0 cp_async_b=0 vec_a=2 vec_b=4 vec_c=2 splitk=last_cta"
    " epilogue_smem=1 bounds=predicate mma_order=row_major fragment_prefetch=0 prefetch_k=1 deferred_sts=1"
    " raster_group=8 store_policy=streaming min_ctas_per_sm=2 pdl=within_launch"
)
#: number of the family in form 1 -> the axes that it used then, and the configuration of today
FAMILIES = {
    0: (
        "ms ns ml nl u ks kl kg stages copy_a copy_b keep_a keep_b vec_a vec_b vec_c wm split stage_c bounds lanes"
        " order ahead request hold raster stream resident pdl",
        f"family=simt {COOPERATIVE} ks=2 kmajor_smem_a=1 kmajor_smem_b=1 lanes_m=8 lane_interleave=1",
    ),
    1: (
        "ms ns ml nl u kl kg stages copy_a copy_b vec_a vec_b vec_c split stage_c bounds order ahead request hold"
        " raster stream resident repack pdl",
        f"family=mma {COOPERATIVE} operand_path_a=realign operand_path_b=pack",
    ),
    2: (
        "ml nl u kg stages vec_c split stage_c raster resident swap wg pingpong cluster yc kc report persistent chunks"
        " buffers reuse evict repack rows pdl",
        "family=wgmma ml=128 nl=96 u=64 kg=3 stages=4 vec_c=2 splitk=last_cta epilogue_smem=1 raster_group=8"
        " min_ctas_per_sm=2 transposed_mma=1 math_warpgroups=2 pingpong=1 cluster_x=2 cluster_y=4 cluster_k=3"
        " dsmem_completion=barrier persistent=1 epilogue_subtiles=2 epilogue_buffers=4 epilogue_aliases_ab=1"
        " l2_evict_first=ab operand_path_a=realign operand_path_b=pack tma_rows=16 pdl=within_launch",
    ),
    3: (
        "ms ns ml nl u kl kg vec_a vec_b vec_c wm split ahead raster stream resident swap rows pdl",
        "family=skinny ms=4 ns=4 ml=128 nl=96 u=64 kl=2 kg=3 vec_a=2 vec_b=4 vec_c=2 lanes_long=8 splitk=last_cta"
        " fragment_prefetch=0 raster_group=8 store_policy=streaming min_ctas_per_sm=2 long_n=1 mma_m16=1"
        " pdl=within_launch",
    ),
    4: (
        "ns ml nl kg vec_a split stream resident pdl",
        "family=depthwise strip_results=4 block_rows=128 block_lanes=96 kg=3 vec_lane=2 splitk=last_cta"
        " store_policy=streaming min_ctas_per_sm=2 pdl=within_launch",
    ),
}

#: axes of one family alone -> the axis of other families that it had in form 2
SHARED = {
    "lanes_long": "lanes_m",
    "strip_results": "ns",
    "block_rows": "ml",
    "block_lanes": "nl",
    "vec_lane": "vec_a",
}

#: axes that no earlier form has
NEWER = {
    "strip_columns",
    "feature_map_bytes",
    "resident_b",
    "stream_k",
    "interleave_phases",
    "row_taps",
    "column_pairs",
    "stream_waves",
}


def old_text(code: int) -> str:
    """A configuration of form 1: a family's axes off their defaults, the others at them."""
    used = FAMILIES[code][0].split()
    pairs = zip(OLD_AXES, OLD_DEFAULTS, strict=True)
    return " ".join([f"family={code}", *(x if x.partition("=")[0] in used else y for x, y in pairs)])


def second_form(code: int) -> str:
    """The same in form 2: today's names, and the axes of all families."""
    axes = {name: value for word in second_defaults().split() for name, _, value in [word.partition("=")]}
    for word in FAMILIES[code][1].split():
        name, _, value = word.partition("=")
        axes[SHARED.get(name, name)] = value
    return " ".join(f"{name}={value}" for name, value in axes.items())


def second_defaults() -> str:
    return (
        "family=simt ms=8 ns=8 ml=64 nl=64 u=8 ks=1 kl=1 kg=1 stages=3 cp_async_a=1 cp_async_b=1 kmajor_smem_a=0"
        " kmajor_smem_b=0 vec_a=1 vec_b=1 vec_c=1 lanes_m=4 splitk=memset_red epilogue_smem=0 bounds=clamp"
        " lane_interleave=0 mma_order=row_serpentine fragment_prefetch=1 prefetch_k=0 deferred_sts=0 raster_group=1"
        " store_policy=default min_ctas_per_sm=1 transposed_mma=0 math_warpgroups=1 pingpong=0 cluster_x=1 cluster_y=1"
        " cluster_k=1 dsmem_completion=tx_bytes persistent=0 epilogue_subtiles=1 epilogue_buffers=1"
        " epilogue_aliases_ab=0 l2_evict_first=none operand_path_a=direct operand_path_b=direct tma_rows=0 long_n=0"
        " mma_m16=0 pdl=off"
    )


OLD = old_text(2)
NEW = parse_config(FAMILIES[2][1])


@pytest.mark.parametrize("code", FAMILIES)
def test_every_axis_of_a_family_is_translated(code):
    new = parse_config(FAMILIES[code][1])
    assert {a.name for a in new.axes if getattr(new, a.name) == a.default} <= NEWER
    for old in (old_text(code), second_form(code), str(new), new.full_text()):
        assert parse_config(translate(old)) == new
        assert translate(translate(old)) == translate(old)
        assert translate(old.replace(" ", ",")) == translate(old)
    assert translate("") == ""


@pytest.mark.parametrize(
    ("code", "a", "b"),
    [(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1), (4, 2, 0), (6, 2, 1), (8, 0, 2), (9, 1, 2), (12, 2, 2)],
)
def test_bits_of_repack_become_two_axes(code, a, b):
    assert parse_config(translate(f"family=2 repack={code}")) == Config(
        family="wgmma", operand_path_a=a, operand_path_b=b
    )


def test_axes_that_skinny_shared_with_others_become_its_own():
    skinny = Config(family="skinny", long_n=1, mma_m16=1, lanes_long=2)
    assert parse_config(translate("family=3 swap=1 rows=16 wm=2")) == skinny
    assert parse_config(translate("family=skinny long_n=1 mma_m16=1 lanes_m=2 transposed_mma=0 tma_rows=0")) == skinny
    assert parse_config(translate("family=3 swap=0 rows=0")) == Config(family="skinny")
    assert parse_config(translate("family=2 swap=1 rows=16")) == Config(family="wgmma", transposed_mma=1, tma_rows=16)


def test_axes_that_depthwise_shared_with_others_become_its_own(tmp_path: Path):
    text, new = "family=depthwise ns=16 ml=4 nl=32 kg=1 vec_a=2", "family=depthwise strip_results=16 block_rows=4"
    config = parse_config(f"{new} block_lanes=32 kg=1 vec_lane=2")
    assert parse_config(translate(text)) == config
    with pytest.raises(ConfigError, match="config has 'ns'; did you mean 'strip_results'"):
        parse_config(text)
    winners = tmp_path / "winners.txt"
    head = "# ptxgen winners, format 3\n# device: h200\n# clock: hardware\n# winners: 1\n"
    winners.write_text(f"{head}{KEY} | {text} | 5 | {DIGEST} | {{}}\n")
    assert [m.config for m in read_winners(winners)[1]] == [config]


def test_unknown_words_stay():
    for text in ("repack=5", "repack=16", "split=9", "nonsense=3", "family=-1", "ms", "family=2 ms=4"):
        with pytest.raises(ValueError, match="config has"):
            parse_config(translate(text))


def test_migration_tables_name_existing_axes():
    assert {*RENAMED.values(), *WORDS} - set(AXIS) == {"operand_path"}
    assert not set(RENAMED) & set(AXIS)
    assert [former.code for former in formers().values()] == list(range(5))
    for family, former in formers().items():
        own = {a.name for a in axes_of(family)}
        assert {former.renamed.get(name, name) for name in former.axes.split()} <= own
        assert {word.partition("=")[0] for word in former.words.values()} <= own


# ---- stored


#: the schema of version 2, as the versions before words wrote it
SECOND = """
CREATE TABLE problem (
    id        INTEGER PRIMARY KEY,
    key       TEXT NOT NULL UNIQUE,
    operation TEXT NOT NULL,
    m         INTEGER,
    n         INTEGER,
    k         INTEGER,
    layout    TEXT,
    dtype     TEXT,
    compute   TEXT,
    fields    TEXT NOT NULL
);
CREATE TABLE environment (
    id       INTEGER PRIMARY KEY,
    device   TEXT NOT NULL,
    clock    TEXT NOT NULL,
    driver   TEXT NOT NULL,
    ptxas    TEXT NOT NULL,
    policy   TEXT NOT NULL,
    revision TEXT NOT NULL,
    UNIQUE (device, clock, driver, ptxas, policy, revision)
);
CREATE TABLE measurement (
    id          INTEGER PRIMARY KEY,
    problem     INTEGER NOT NULL REFERENCES problem (id),
    environment INTEGER NOT NULL REFERENCES environment (id),
    config      TEXT NOT NULL,
    outcome     TEXT NOT NULL,
    us          REAL,
    samples     TEXT NOT NULL,
    digest      TEXT NOT NULL,
    registers   INTEGER NOT NULL,
    spills      INTEGER NOT NULL,
    message     TEXT NOT NULL,
    purpose     TEXT NOT NULL,
    created     REAL NOT NULL
);
CREATE INDEX measurement_of_problem ON measurement (problem, environment, digest);
CREATE TABLE winner (
    problem     INTEGER NOT NULL REFERENCES problem (id),
    device      TEXT NOT NULL,
    clock       TEXT NOT NULL,
    measurement INTEGER NOT NULL REFERENCES measurement (id),
    stale       TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (problem, device, clock)
);
CREATE VIEW result AS
    SELECT measurement.id AS id, key, operation, m, n, k, layout, dtype, compute, fields, config, outcome, us,
           samples, digest, registers, spills, message, purpose, created,
           device, clock, driver, ptxas, policy, revision
    FROM measurement
    JOIN problem ON problem.id = measurement.problem
    JOIN environment ON environment.id = measurement.environment;
CREATE TABLE claim (
    problem TEXT NOT NULL,
    config  TEXT NOT NULL,
    device  TEXT NOT NULL,
    clock   TEXT NOT NULL,
    owner   TEXT NOT NULL,
    expires REAL NOT NULL,
    PRIMARY KEY (problem, config, device, clock)
);
PRAGMA application_id = 0x50545847;
PRAGMA user_version = 2;
"""
KEY = Gemm(64, 64, 64).key()
DIGEST = "0123456789abcdef"
POLICY = "graph samples=3 l2_multiple=4"
FAILED = Config(ms=4, lanes_m=2)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database of version 2 with a winner, a failure and a claim."""
    path = tmp_path / "old.sqlite"
    db = sqlite3.connect(path)
    db.executescript(SECOND)
    db.execute("INSERT INTO problem VALUES (1, ?, 'gemm', 64, 64, 64, 'NN', 'f32', 'f32', '{}')", (KEY,))
    db.execute("INSERT INTO environment VALUES (1, 'h200', 'hardware', '', '', 'graph samples=3 ring=4', '')")
    rest = (DIGEST, -1, -1, "", "search", 1000.0)
    row = "INSERT INTO measurement VALUES (?, 1, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    db.execute(row, (1, OLD, "ok", 5.0, "[5.0]", *rest))
    db.execute(row, (2, "family=0 ms=4 wm=2", "timeout", None, "[]", *rest))
    db.execute("INSERT INTO winner VALUES (1, 'h200', 'hardware', 1, '')")
    db.execute("INSERT INTO claim VALUES (?, ?, 'h200', 'hardware', 'somebody', 9e9)", (KEY, OLD))
    db.commit()
    db.close()
    return path


def test_database_of_version_2_is_migrated(old: Path):
    with Database(old) as db:
        assert db.info()["schema"] == SCHEMA_VERSION
        assert db.info()["unreadable"] == 0
        assert [m.config for m in db.measurements()] == [NEW, Config(ms=4, lanes_m=2)]
        best = db.best(Gemm(64, 64, 64), "h200")
        assert best is not None
        assert best.config == NEW
        assert db.claimants() == []
        assert best.environment.policy == POLICY
        assert db.measured(Gemm(64, 64, 64), "h200", "hardware", POLICY).keys() == {NEW.full_text(), FAILED.full_text()}
        assert db._db.execute("SELECT config FROM measurement ORDER BY id").fetchone() == (NEW.full_text(),)
        assert db.set_winner(best, lambda held: held == best)
        assert len(list(db.measurements())) == 2, "the winner was stored again"


def test_database_of_version_2_is_read_without_a_write(old: Path):
    before = old.read_bytes()
    with Database(old, readonly=True) as db:
        assert db.info()["schema"] == 2
        assert db.info()["unreadable"] == 0
        assert [m.config for m in db.measurements()] == [NEW, FAILED]
        assert {m.environment.policy for m in db.measurements()} == {POLICY}
    assert old.read_bytes() == before


def test_files_of_format_1_are_imported(tmp_path: Path):
    winners, raw = tmp_path / "winners.txt", tmp_path / "measurements.jsonl.xz"
    head = "# ptxgen winners, format 1\n# device: h200\n# clock: hardware\n# winners: 1\n"
    winners.write_text(f"{head}{KEY} | {OLD} | 5 | {DIGEST} | {{}}\n")
    assert [m.config for m in read_winners(winners)[1]] == [NEW]
    title = {"ptxgen": "measurements", "format": 1, "device": "h200", "clock": "hardware", "measurements": 1}
    row = {
        "problem": KEY,
        "config": OLD,
        "outcome": "ok",
        "environment": {"device": "h200", "policy": "graph samples=3 ring=4"},
        "samples": [5.0],
        "digest": DIGEST,
    }
    raw.write_bytes(lzma.compress("".join(json.dumps(x) + "\n" for x in (title, row)).encode()))
    assert [(m.config, m.environment.policy) for m in read_measurements(raw)[1]] == [(NEW, POLICY)]
    with Database(tmp_path / "new.sqlite") as db:
        db.merge(read_measurements(raw)[1], read_winners(winners)[1])
        assert [m.config for m in db.winners()] == [NEW]


def test_exported_files_have_the_current_form(tmp_path: Path):
    winners = tmp_path / "winners.txt"
    head = "# ptxgen winners, format 4\n# device: h200\n# clock: hardware\n# winners: 1\n"
    winners.write_text(f"{head}{KEY} | split=2 kg=2 | 5 | {DIGEST} | {{}}\n")
    with pytest.raises(CorruptError, match="did you mean 'splitk'"):
        list(read_winners(winners)[1])
