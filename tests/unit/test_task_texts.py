"""Programs of known texts, and the parser's tables, from the disk cache."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lark
import pytest

from ptxgen import file_digests
from ptxgen.errors import TaskError
from ptxgen.families.common import array_cache
from ptxgen.operations.task.language import grammar, parser, texts
from ptxgen.operations.task.language.program_json import from_lists, to_lists
from ptxgen.operations.task.suites import QUERIES, types_of
from tests.architecture.source import ROOT

READ, WRITE, READ_ARRAYS, WRITE_ARRAYS = (
    texts.read,
    texts.write,
    array_cache.read,
    array_cache.write,
)  # as conftest found
TEXT = "where (i, j) { reduce (k) { accum += abs(P[i,k] - R[j,k]); } D[i,j] = accum * s; }"
TYPES = {"P": "f32", "R": "f32", "s": "float"}


def forget() -> None:
    """As in a new process."""
    for cached in (texts._ranks, texts._program, parser._ranks, parser._parsed, grammar._parser, grammar._tree):
        cached.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The folder of programs; those of other tests are not used."""
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(texts, "read", READ)
    monkeypatch.setattr(texts, "write", WRITE)
    forget()
    yield tmp_path / "cache" / "programs"
    forget()


def test_known_texts_are_not_parsed(folder, monkeypatch):
    ranks, program = texts.input_ranks(TEXT), texts.parse(TEXT, TYPES)
    assert program == parser.parse(TEXT, TYPES)
    assert len(list(folder.iterdir())) == 2
    forget()
    monkeypatch.setattr(parser, "_Reader", None)
    assert texts.input_ranks(TEXT) == ranks
    assert list(texts.input_ranks(TEXT)) == ["P", "R", "s"]
    assert texts.parse(TEXT, TYPES) == program
    with pytest.raises(TypeError):
        texts.parse(TEXT, {**TYPES, "s": "f64"})  # of other types


def test_damaged_files_and_other_versions_are_not_used(folder, monkeypatch):
    program = texts.parse(TEXT, TYPES)
    [kept] = folder.iterdir()
    whole = kept.read_bytes()
    for content in (whole[:-1], b"", b"[]", b"[[], 3]", b"[1, 2]", whole.replace(b'"node": 1', b'"node": 99')):
        kept.write_bytes(content)
        forget()
        assert texts.parse(TEXT, TYPES) == program
        assert kept.read_bytes() == whole  # written again
    forget()
    monkeypatch.setattr(file_digests, "of_package", lambda: "another version")
    assert texts.parse(TEXT, TYPES) == program
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("query", sorted(QUERIES))
def test_stored_programs_are_equal(query):
    """Every kind of output, and constants that JSON has no words for."""
    text = QUERIES[query]
    program = parser.parse(text, types_of(text, "f32"))
    assert from_lists(json.loads(json.dumps(to_lists(program)))) == program


def test_stored_constants_are_exact():
    text = "where (i, j) { reduce (k) { accum = max(accum, A[i,k] * B[k,j]); } C[i,j] = accum == -inf ? nan : accum + 0.1; }"
    program = parser.parse(text.replace("0.1", "f32(0.1) * -0.0"), {"A": "f32", "B": "f32"})
    assert from_lists(json.loads(json.dumps(to_lists(program)))) == program


def test_errors_are_not_kept(folder):
    for _ in range(2):
        with pytest.raises(TaskError, match="line 1, column"):
            texts.parse(TEXT.replace("abs", "ab"), TYPES)
        forget()
    assert not folder.exists()


def test_nothing_is_read_from_a_folder_that_others_can_write(folder, monkeypatch):
    texts.parse(TEXT, TYPES)
    folder.chmod(0o777)
    forget()
    seen = []
    monkeypatch.setattr(texts, "from_lists", lambda lists: seen.append(lists) or from_lists(lists))
    texts.parse(TEXT, TYPES)
    assert seen == [None]


def test_tables_of_the_parser_are_shipped(folder, monkeypatch, request):
    """``pytest --update-golden`` makes them anew."""
    if request.config.getoption("--update-golden"):
        grammar.TABLES.write_bytes(lzma.compress(grammar.tables(), preset=9))
    content = json.loads(lzma.decompress(grammar.TABLES.read_bytes()))
    if lark.__version__ == "1.3.1":  # of the tables
        assert content["key"] == grammar.tables_key(), "the grammar changed; if intended: pytest --update-golden"
        monkeypatch.setattr(grammar.Lark, "__init__", None)
    read = grammar.tree(TEXT)
    with pytest.raises(TaskError, match=r"line 1, column 7: .*expected"):
        grammar.tree("where i")
    monkeypatch.undo()
    made = lark.Lark(
        grammar._GRAMMAR, parser="lalr", lexer="basic", propagate_positions=True, maybe_placeholders=True
    ).parse(TEXT)
    assert read == made
    assert [x.meta.column for x in read.iter_subtrees()] == [x.meta.column for x in made.iter_subtrees()]


def test_tables_of_another_parser_generator_are_kept(folder, monkeypatch):
    array_cache.flush()  # the arrays of other tests
    monkeypatch.setattr(array_cache, "read", READ_ARRAYS)
    monkeypatch.setattr(array_cache, "write", WRITE_ARRAYS)
    monkeypatch.setattr(grammar.lark, "__version__", "0")
    made = grammar.tree(TEXT)
    array_cache.flush()
    assert len(list((folder.parent / "arrays").iterdir())) == 1
    forget()
    monkeypatch.setattr(grammar.Lark, "__init__", None)
    assert grammar.tree(TEXT) == made


def test_a_process_that_reads_known_texts_imports_no_parser_generator(tmp_path):
    code = (
        "import sys; from ptxgen.operations.task.problem import Task;"
        f"print(Task(4, 4, 4, text={TEXT!r}).text, 'lark' in sys.modules)"
    )
    environment = os.environ | {"PTXGEN_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    first, second = (
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    )
    assert first.split()[-1] == "True"
    assert second.split() == [*first.split()[:-1], "False"]
