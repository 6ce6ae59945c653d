"""Kernels whose machine code is in the disk cache are loaded without being rendered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxgen import file_digests, plugins
from ptxgen.api import driver_state
from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import AssembleError
from ptxgen.expr import instructions
from ptxgen.expr.node import constant, node
from ptxgen.expr.operators import Operator
from ptxgen.families import plan_factory
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem import epilogue_ops
from ptxgen.runtime import assemble, kept_sources
from ptxgen.runtime.assemble import Assembled, CachedSource
from ptxgen.runtime.emulated import EmulatedDriver, EmulatedKernel
from ptxgen.tuning.choice import winners
from tests.plugins import diagonal

READ, WRITE = kept_sources.read, kept_sources.write  # conftest replaces them
P = Gemm(64, 64, 64)
MODULE = EmulatedDriver().machine.load(".version 8.0\n.target sm_80\n.address_size 64\n")
CONFIG = parse_config("ms=4 ns=4 ml=32 nl=32 u=8")


class Assembling(EmulatedDriver):
    """A driver that assembles, and loads nothing."""

    assembler = "ptxas"

    def load(self, source: Any) -> EmulatedKernel:
        assemble.assemble(source)
        return EmulatedKernel(source, MODULE)


@pytest.fixture
def rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The digests of rendered sources."""
    renders: list[str] = []

    def counted(plan: Any) -> Any:
        source = render(plan)
        renders.append(source.digest)
        return source

    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_sources, "read", READ)
    monkeypatch.setattr(kept_sources, "write", WRITE)
    monkeypatch.setattr(driver_state, "render", counted)
    monkeypatch.setattr(assemble, "find_ptxas", lambda: Path("ptxas"))
    monkeypatch.setattr(assemble, "version", lambda ptxas: "13.0")
    monkeypatch.setattr(assemble, "_run", lambda ptxas, source, target: Assembled(b"code", {}, {}, ""))
    return renders


def loaded(problem: Gemm = P, config: Any = CONFIG, driver: EmulatedDriver | None = None) -> Any:
    """The source of the kernel that a new process loads."""
    state = driver_state.DriverState(driver or Assembling())
    return state.kernel_of(plan_for(problem, config, state.driver.device)).source


def test_a_known_kernel_is_not_rendered(rendered, tmp_path):
    source = loaded()
    again = loaded()
    assert rendered == [source.digest]
    assert again == CachedSource.of(source)
    assert again.text == ""
    loaded(replace(P, m=128))  # renders the same kernel
    assert rendered == [source.digest] * 2
    loaded(config=replace(CONFIG, u=16))
    loaded(Gemm(64, 64, 64, "NT"))
    assert len(set(rendered)) == 3
    assert len(list((tmp_path / "cache" / "sources").iterdir())) == 4


def test_one_process_loads_a_kernel_once(rendered):
    loaded()
    state = driver_state.DriverState(Assembling())
    first = state.kernel_of(plan_for(P, CONFIG, state.driver.device))
    second = state.kernel_of(plan_for(replace(P, m=128), CONFIG, state.driver.device))
    assert first is second
    assert len(rendered) == 2


def test_a_known_digest_needs_no_plan(rendered, monkeypatch):
    device = Assembling().device
    digest = winners.current_digest(P, CONFIG, device)
    winners.current_digest.cache_clear()  # as a new process
    with monkeypatch.context() as patch:
        patch.setattr(plan_factory, "plan_for", None)
        assert winners.current_digest(P, CONFIG, device) == digest
    assert loaded().digest == digest
    assert winners.current_digest(P, replace(CONFIG, u=16), device) != digest


def test_without_machine_code_the_kernel_is_rendered(rendered, tmp_path):
    source = loaded()
    for path in (tmp_path / "cache" / "cubin").iterdir():
        path.unlink()
    with pytest.raises(AssembleError, match="no machine code"):
        assemble.assemble(CachedSource.of(source))
    assert loaded() == source
    assert len(rendered) == 2


def test_damaged_files_other_versions_and_plugins(rendered, tmp_path, monkeypatch):
    loaded()
    [kept] = (tmp_path / "cache" / "sources").iterdir()
    whole = kept.read_bytes()
    for content in (b"", whole[:-2], b"[]", b"{}"):
        kept.write_bytes(content)
        loaded()
        assert kept.read_bytes() == whole
    assert len(rendered) == 5
    monkeypatch.setattr(file_digests, "of_package", lambda: "another version")
    loaded()
    assert len(rendered) == 6
    monkeypatch.setattr(plugins, "_called", {"one"})
    for _ in range(2):
        loaded()
    assert len(rendered) == 8


@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_registered_epilogue_operations_may_have_changed(rendered, factor):
    """A program that registers an operation may register another one of the same name the next time."""
    epilogue_ops.register(epilogue_ops.activation("scaled", lambda x: node("*", x.type, x, constant(factor, x.type))))
    try:
        problem = replace(P, epilogue="scaled")
        assert kept_sources.key(plan_for(problem, CONFIG, Assembling().device)) == ""
        for _ in range(2):
            loaded(problem)
    finally:
        epilogue_ops.unregister("scaled")
    assert len(rendered) == 2
    assert kept_sources.key(plan_for(P, CONFIG, Assembling().device))


def test_registered_operations_and_operators_may_have_changed(rendered):
    plan = plan_for(P, CONFIG, Assembling().device)
    diagonal.register_it()
    try:
        assert kept_sources.key(plan) == ""
    finally:
        diagonal.unregister_it()
    instructions.register(Operator("twice", 1, frozenset(("float",)), lambda x: x + x))
    try:
        assert kept_sources.key(plan) == ""
    finally:
        instructions.unregister("twice")
    assert kept_sources.key(plan)


def test_winners_are_compared_with_the_known_kernel(rendered, monkeypatch):
    """The kernel of a winner that was loaded, or compared before, is not rendered."""
    winners.current_digest.cache_clear()
    source, on = loaded(), Assembling().device
    larger = replace(P, k=128, layout="TN")
    compared = winners.current_digest(larger, CONFIG, on)
    monkeypatch.setattr("ptxgen.codegen.render.render", None)
    winners.current_digest.cache_clear()
    assert winners.current_digest(P, CONFIG, on) == source.digest
    assert winners.current_digest(larger, CONFIG, on) == compared == render(plan_for(larger, CONFIG, on)).digest
    with pytest.raises(TypeError):
        winners.current_digest(replace(P, layout="NT"), CONFIG, on)


def test_drivers_that_read_the_text_render_it(rendered):
    for _ in range(2):
        loaded(driver=EmulatedDriver())
    assert len(rendered) == 2
