"""The real ptxas of the nvidia-cuda-nvcc wheel: results, the cache, and errors."""

from __future__ import annotations

import importlib.util
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ptxgen.codegen.source import Source
from ptxgen.errors import AssembleError, InputError, UnavailableError
from ptxgen.runtime import assemble as module
from ptxgen.runtime.assemble import assemble, find_ptxas, version

HEAD = """\
// two kernels of different appetite
.version 8.1
.target sm_90
.address_size 64
"""
COPY = """\
.visible .entry copy(.param .u64 from, .param .u64 to) {
    .reg .u64 %a, %b;
    .reg .b32 %v;
    ld.param.u64 %a, [from];
    ld.param.u64 %b, [to];
    ld.global.b32 %v, [%a];
    st.global.b32 [%b], %v;
    ret;
}
"""


def many_registers(values: int) -> str:
    """A kernel that holds ``values`` values at once."""
    loads = "".join(f"    ld.volatile.global.f32 %f{i}, [%a + {4 * i}];\n" for i in range(values))
    stores = "".join(f"    st.volatile.global.f32 [%a + {4 * i}], %f{values - 1 - i};\n" for i in range(values))
    return (
        ".visible .entry many_registers(.param .u64 p) {\n    .reg .u64 %a;\n"
        f"    .reg .f32 %f<{values}>;\n    ld.param.u64 %a, [p];\n{loads}{stores}    ret;\n}}\n"
    )


SOURCE = Source(HEAD + COPY + many_registers(64), ("copy", "many_registers"), "sm_90")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PTXGEN_PTXAS", raising=False)
    if find_ptxas() is None:
        pytest.skip("no ptxas; pip install nvidia-cuda-nvcc")
    return tmp_path / "cache" / "cubin"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The targets that ptxas ran for."""
    seen: list[str] = []
    real = module._run

    def run(ptxas: Path, source: Source, target: str) -> module.Assembled:
        seen.append(target)
        return real(ptxas, source, target)

    monkeypatch.setattr(module, "_run", run)
    return seen


def test_registers_are_reported_per_entry() -> None:
    made = assemble(SOURCE)
    assert made.cubin[:4] == b"\x7fELF"
    assert set(made.registers) == set(made.spills) == {"copy", "many_registers"}
    assert made.registers["copy"] < 32 < 64 <= made.registers["many_registers"] <= 255
    assert made.spills == {"copy": 0, "many_registers": 0}


def test_spills_are_reported() -> None:
    made = assemble(Source(HEAD + COPY + many_registers(300), ("copy", "many_registers"), "sm_90"))
    assert made.spills["many_registers"] > 0 == made.spills["copy"]


def test_spills_of_functions_are_not_reported_as_those_of_an_entry() -> None:
    log = (
        "ptxas info    : Compiling entry function 'a' for 'sm_90'\n"
        "ptxas info    : Function properties for a\n"
        "    0 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"
        "ptxas info    : Function properties for helper\n"
        "    0 bytes stack frame, 99 bytes spill stores, 99 bytes spill loads\n"
        "ptxas info    : Used 40 registers, used 1 barriers\n"
    )
    assert module._parse_log(log) == ({"a": 40}, {"a": 8})


def test_second_call_reads_the_cache(runs: list[str], cache: Path) -> None:
    first = assemble(SOURCE)
    assert assemble(SOURCE) == first
    assert runs == ["sm_90"]
    assert len(list(cache.iterdir())) == 2


def test_cache_ignores_comments_and_depends_on_the_target(runs: list[str]) -> None:
    assemble(SOURCE)
    assemble(Source("// another header\n" + SOURCE.text, SOURCE.entries, SOURCE.target))
    assert runs == ["sm_90"]
    assemble(SOURCE, "sm_90a")
    assemble(SOURCE, "sm_100")
    assert runs == ["sm_90", "sm_90a", "sm_100"]


def test_cache_depends_on_the_ptxas_version(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assemble(SOURCE)
    monkeypatch.setattr(module, "version", lambda ptxas: "99.1.2")
    assemble(SOURCE)
    assert len(runs) == 2


@pytest.mark.parametrize("damage", ["cut", "swap", "json", "shape", "half"])
def test_damaged_cache_entry_is_replaced(damage: str, runs: list[str], cache: Path) -> None:
    good = assemble(SOURCE)
    (code,), (facts,) = cache.glob("*.cubin"), cache.glob("*.json")
    if damage == "cut":
        code.write_bytes(good.cubin[:100])
    elif damage == "swap":
        code.write_bytes(good.cubin[:-1] + bytes([good.cubin[-1] ^ 1]))
    elif damage == "json":
        facts.write_text("{")
    elif damage == "shape":
        facts.write_text(json.dumps({**json.loads(facts.read_text()), "registers": [1]}))
    else:
        code.unlink()
    again = assemble(SOURCE)
    assert (again.cubin, again.registers) == (good.cubin, good.registers)
    assert assemble(SOURCE) == again
    assert len(runs) == 2
    assert not [f for f in cache.iterdir() if f.suffix not in (".cubin", ".json")]


def test_read_only_cache_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path / "file"))
    assert assemble(SOURCE).registers


@pytest.mark.parametrize(("mode", "which"), [(0o777, "cubin"), (0o770, "cubin"), (0o1777, "cubin"), (0o777, "cache")])
def test_cache_that_others_can_write_is_not_used(runs: list[str], cache: Path, mode: int, which: str) -> None:
    folder = cache if which == "cubin" else cache.parent
    cache.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.warns(RuntimeWarning, match=rf"{folder} has mode {mode:04o}.*chmod go-w {folder}"):
        first = assemble(SOURCE)
    assert list(cache.iterdir()) == []
    folder.chmod(0o755)
    assert assemble(SOURCE).cubin == assemble(SOURCE).cubin == first.cubin
    (code,) = cache.glob("*.cubin")
    code.write_bytes(b"another user's kernel")
    folder.chmod(mode)
    with pytest.warns(RuntimeWarning):
        assert assemble(SOURCE).cubin == first.cubin
    assert code.read_bytes() == b"another user's kernel"
    assert len(runs) == 3


def test_cache_of_another_user_is_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir(parents=True)
    me = os.geteuid()
    os.chown(cache, 12345, -1) if me == 0 else monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.warns(RuntimeWarning, match=r"cubin belongs to user \d+; it must belong to user \d+ or root"):
        assemble(SOURCE)
    assert list(cache.iterdir()) == []


def test_cache_in_a_temporary_folder_is_used(runs: list[str], cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.parent.chmod(0o1777)
    assert assemble(SOURCE) == assemble(SOURCE)
    assert len(runs) == 1


def test_cache_folder_is_private(cache: Path) -> None:
    before = os.umask(0)
    try:
        assemble(SOURCE)
    finally:
        os.umask(before)
    assert [folder.stat().st_mode & 0o777 for folder in (cache.parent, cache)] == [0o700, 0o700]


def test_error_of_invalid_ptx_contains_the_log() -> None:
    bad = Source(HEAD + COPY.replace("ld.global.b32", "ld.nowhere.b32"), ("copy",), "sm_90")
    with pytest.raises(AssembleError, match=r"sm_90.*line 10.*nowhere") as caught:
        assemble(bad)
    assert "aborted due to errors" in caught.value.log
    assert "/" not in caught.value.log.split(";")[0]


def test_target_too_old_for_the_text() -> None:
    with pytest.raises(AssembleError, match="sm_80"):
        assemble(SOURCE, "sm_80")


def test_threads_share_the_cache() -> None:
    gate = threading.Barrier(8, timeout=60)

    def work(i: int) -> bytes:
        gate.wait()
        return assemble(SOURCE if i % 2 else Source(HEAD + COPY, ("copy",), "sm_90")).cubin

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(work, range(8)))) == 2


def test_environment_variable_names_ptxas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = find_ptxas()
    assert wheel is not None
    other = tmp_path / "ptxas"
    other.write_text(f'#!/bin/sh\nexec "{wheel}" "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("PTXGEN_PTXAS", str(other))
    assert find_ptxas() == other
    assert version(other) == version(wheel)
    assert version(other).count(".") == 2
    monkeypatch.setenv("PTXGEN_PTXAS", str(tmp_path / "absent"))
    with pytest.raises(InputError, match=r"PTXGEN_PTXAS is .*absent"):
        assemble(SOURCE)


def test_path_is_searched_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_wheel_ptxas", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ptxas() is None
    with pytest.raises(UnavailableError, match=r"no ptxas; .*pip install .*nvidia-cuda-nvcc"):
        assemble(SOURCE)
    (tmp_path / "ptxas").write_text("#!/bin/sh\n")
    (tmp_path / "ptxas").chmod(0o755)
    assert find_ptxas() == tmp_path / "ptxas"


def test_ptxas_with_unexpected_output(tmp_path: Path) -> None:
    mute = tmp_path / "ptxas"
    mute.write_text("#!/bin/sh\necho hello\n")
    mute.chmod(0o755)
    with pytest.raises(UnavailableError, match="does not print a release"):
        version(mute)
    mute.chmod(0o644)
    if not os.access(mute, os.X_OK):
        version.cache_clear()
        with pytest.raises(UnavailableError, match="does not run"):
            version(mute)


@pytest.mark.parametrize("layout", ["cu13", "cuda_nvcc"])
def test_both_layouts_of_the_wheel_are_found(layout: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / layout / "bin" / "ptxas"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: Spec)
    assert find_ptxas() == program
