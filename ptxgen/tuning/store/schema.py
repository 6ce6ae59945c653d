"""The SQL schema of the tuning database."""

from __future__ import annotations

#: SQLite's application_id in files of ptxgen ("PTXG")
APPLICATION = 0x50545847

SCHEMA_VERSION = 7  #: PRAGMA user_version

#: statements end with ";\n", and no comment contains a semicolon; their text is compared with that in files
SCHEMA = """
-- The problems. `key` is the text form of the problem. Columns hold the fields that most queries need, `fields` has
-- all of them as JSON, for json_extract(). `m`, `n` and `k` of a convolution are those of its implicit GEMM.
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

-- The device, programs and timing policy of measurements. `clock` is `hardware`, or `model` on the emulated device.
-- `revision` is the commit of ptxgen.
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

-- One row per measurement, including failures. `config` has the family and its axes as `name=value`. `us` is the
-- median of `samples` (a JSON list, microseconds per launch), NULL unless `outcome` is `ok`. `digest` is of the
-- kernel's source. `registers` per thread and `spills` in bytes are -1 if ptxas did not run. `created` is in
-- seconds since 1970. `operands` is the digest of the operands that the problem's text names, as the pattern of a
-- sparse matrix, empty: none.
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
, operands TEXT NOT NULL DEFAULT '');
CREATE INDEX measurement_of_problem ON measurement (problem, environment, digest);

-- The winner of each problem. `stale` is empty, or the reason why the winner is not used.
CREATE TABLE winner (
    problem     INTEGER NOT NULL REFERENCES problem (id),
    device      TEXT NOT NULL,
    clock       TEXT NOT NULL,
    measurement INTEGER NOT NULL REFERENCES measurement (id),
    stale       TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (problem, device, clock)
);

-- A configuration that a tuner is about to measure. `owner` names the tuner, `expires` is in seconds since 1970.
CREATE TABLE claim (
    problem TEXT NOT NULL,
    config  TEXT NOT NULL,
    device  TEXT NOT NULL,
    clock   TEXT NOT NULL,
    owner   TEXT NOT NULL,
    expires REAL NOT NULL,
    PRIMARY KEY (problem, config, device, clock)
);

-- All columns of a measurement, for queries by hand.
CREATE VIEW result AS
    SELECT measurement.id AS id, key, operation, m, n, k, layout, dtype, compute, fields, config, outcome, us,
           samples, digest, registers, spills, message, purpose, created, operands,
           device, clock, driver, ptxas, policy, revision
    FROM measurement
    JOIN problem ON problem.id = measurement.problem
    JOIN environment ON environment.id = measurement.environment;
"""
