"""scripts/compare-sass: names do not count in machine code, everything else does."""

from __future__ import annotations

import json

import pytest

from tests.scripts import script as load

script = load("compare-sass")


@pytest.fixture(scope="module")
def assembled(tmp_path_factory):
    """Assembles a PTX text as the script does."""
    assembler = script.Assembler(tmp_path_factory.mktemp("sass"))

    def run(text, entries=("twice", "other")):
        return assembler.run(script.Emitted(text, "", "sm_90a", entries, {}))

    return run


TEXT = """.version 8.1
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry twice(.param .u64 x, .param .u32 n)
.maxntid 128, 1, 1
{
    .reg .b64 %x;  .reg .b32 %n, %s;  .reg .f64 %v, %w;
    ld.param.u64 %x, [x];  ld.param.u32 %n, [n];
    mov.u32 %s, smem;
    st.shared.u32 [%s+4], %n;
    ld.global.f64 %v, [%x];
    cvt.rn.f64.u32 %w, %n;
    div.rn.f64 %v, %v, %w;
    st.global.f64 [%x], %v;
    ret;
}
.visible .entry other(.param .u64 x) { ret; }
"""


def test_entry_and_register_names_do_not_count(assembled):
    renamed = (
        TEXT.replace("twice", "halved").replace("other", "another").replace("%v", "%value").replace("%n", "%count")
    )
    before = assembled(TEXT)
    assert assembled(renamed, ("halved", "another")) == before
    assert len(before["code"]) == 2
    assert before["registers"][0] > before["registers"][1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[%s+4]", "[%s+8]"),
        (".param .u64 x, .param .u32 n", ".param .u32 n, .param .u64 x"),
        (".param .u32 n)", ".param .u32 n, .param .u32 unused)"),
        (".maxntid 128", ".maxntid 256"),
        ("div.rn.f64 %v, %v, %w", "div.rn.f64 %v, %w, %v"),
    ],
)
def test_code_and_launch_changes_count(assembled, old, new):
    assert old in TEXT
    first, second = assembled(TEXT)["code"], assembled(TEXT.replace(old, new))["code"]
    assert first[0] != second[0]
    assert first[1] == second[1]


def test_text_that_ptxas_rejects_becomes_an_error_row(assembled):
    assert "ptxas" in assembled(TEXT.replace("div.rn", "div.no"))["error"]


def test_records_of_one_checkout_are_equal(tmp_path, capsys):
    first, second = tmp_path / "first.jsonl.xz", tmp_path / "second.jsonl"
    common = ["--cache", str(tmp_path / "cache")]
    assert script.main(["record", "--out", str(first), "--random", "12", "--no-shipped", *common]) == 0
    assert script.main(["record", "--out", str(second), "--cases", str(first), *common]) == 0
    assert script.main(["compare", str(first), str(second)]) == 0
    assert "12 cases in both" in capsys.readouterr().out
    rows = [json.loads(line) for line in second.read_text().splitlines()[1:]]
    assert all(row["code"] and row["launch"]["steps"] for row in rows)
    assert any(row["case"].startswith("conv") for row in rows)


def rows(tmp_path, name, **changes):
    row = {
        "case": "gemm 1,1,1 NN f32 | ms=8 kg=1 | h200",
        "origin": "seed",
        "ptx": "0",
        "code": ["1"],
        "registers": [8],
        "spills": [0],
        "launch": {"steps": []},
        **changes,
    }
    path = tmp_path / name
    path.write_text("\n".join(json.dumps(r) for r in ({"commit": "c", "ptxas": "13"}, row)) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({}, 0, "equal: 1 (1 of the same text"),
        ({"ptx": "1"}, 0, "equal: 1 (0 of the same text, 1 of another text)"),
        ({"code": ["2"]}, 1, "differ in code: 1"),
        ({"registers": [9]}, 1, "registers [8] -> [9]"),
        ({"launch": {"steps": [1]}}, 1, "differ in launch: 1"),
        ({"error": "ConfigError: ms is 8"}, 1, "error None -> ConfigError"),
        ({"case": "gemm 1,1,1 NN f32 | ms=8 splitk=flag_red | h200"}, 1, "only in one: 1 old, 1 new"),
    ],
)
def test_compare_reports_each_difference(tmp_path, capsys, changes, status, message):
    old, new = rows(tmp_path, "old", **{}), rows(tmp_path, "new", **changes)
    assert script.main(["compare", old, new]) == status
    assert message in capsys.readouterr().out


def test_rename_replaces_words_of_the_first_record(tmp_path, capsys):
    names = tmp_path / "names"
    names.write_text("kg slices\nms thread_m\n")
    old, new = (
        rows(tmp_path, "old"),
        rows(tmp_path, "new", case="gemm 1,1,1 NN f32 | thread_m=8 slices=1 | h200"),
    )
    assert script.main(["compare", old, new, "--rename", str(names)]) == 0
    assert script.main(["compare", old, new]) == 1
    capsys.readouterr()
