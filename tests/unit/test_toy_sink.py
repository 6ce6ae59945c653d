"""An algebra and a sink from outside the package work on the kernels of the package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from ptxgen import plugins
from ptxgen.errors import ConfigError
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering import sink
from ptxgen.problem.device import device
from ptxgen.runtime.check import check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.selection import select
from tests.plugins import nearby
from tests.plugins.nearby import Nearby

H200 = device("h200")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    plugins.load()
    nearby.register_it()
    yield
    nearby.unregister_it()


def test_configurations_are_correct() -> None:
    driver = EmulatedDriver()
    for p in (Nearby(16, 24, 33), Nearby(37, 41, 61, "TN"), Nearby(5, 7, 130, "NT", deterministic=True)):
        for chosen in select(p, driver.device, k=1):
            deviation = check(driver, p, chosen.config)
            assert len(deviation) == 4
            assert all(r.ok for r in deviation), (p, chosen.config, deviation)


def test_split_k() -> None:
    driver, p = EmulatedDriver(), Nearby(5, 7, 130)
    [chosen, *_] = [x for x in select(p, driver.device, k=2000) if x.config.kg > 1]
    assert all(r.ok for r in check(driver, p, chosen.config))


def test_families_without_expressions_refuse_it() -> None:
    from ptxgen.operations.gemm.problem import Gemm

    [tensor_cores, *_] = select(Gemm(64, 64, 64, dtype="f16"), H200)
    with pytest.raises(ConfigError):
        plan_for(Nearby(64, 64, 64), replace(tensor_cores.config), H200)


@pytest.mark.parametrize(
    ("name", "planted"), [("resets", ()), ("template", sink.StoreValue.template)], ids=["no reset", "no count"]
)
def test_check_finds_a_fault_of_the_sink(name: str, planted: object, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, p = EmulatedDriver(), Nearby(16, 24, 33)
    config = select(p, driver.device)[0].config
    monkeypatch.setattr(nearby.StoreAndCount, name, planted)
    assert not all(r.ok for r in check(driver, p, config))


def test_check_finds_a_wrong_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, p = EmulatedDriver(), Nearby(16, 24, 33)
    config = select(p, driver.device)[0].config
    lower = nearby.lowered

    def planted(p: Nearby) -> object:
        kernel_problem = lower(p)
        return replace(kernel_problem, algebra=replace(kernel_problem.algebra, identity=float(np.float32(100))))

    nearby.unregister_it()
    monkeypatch.setattr(nearby, "NEARBY", replace(nearby.NEARBY, lowering=planted))
    nearby.register_it()
    assert not all(r.ok for r in check(driver, Nearby(17, 24, 33), config))
