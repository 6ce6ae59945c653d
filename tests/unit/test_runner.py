"""One configuration ready to launch: parameters, workspaces, copies of host arrays."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.source import Launch
from ptxgen.errors import ConfigError, InputError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.strided_arrays import padded
from ptxgen.problem.device import device
from ptxgen.problem.reference import operands, reference
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Buffers, Runner, generate
from ptxgen.runtime.workspace import Workspace

SMALL = "ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2"
WHOLE = "family=mma ms=16 ns=8 ml=32 nl=32 u=64 vec_a=16 vec_b=16"
P = Gemm(20, 18, 40, "NT")


class Driver(EmulatedDriver):
    """The emulated device, which records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, int]] = []
        self.held: dict[int, int] = {}

    def allocate(self, size: int) -> int:
        address = super().allocate(size)
        self.held[address] = size
        self.log.append(("allocate", size))
        return address

    def release(self, address: int) -> None:
        del self.held[address]
        self.log.append(("release", address))
        super().release(address)

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        self.log.append(("fill", size))
        super().fill(address, size, byte)

    def synchronize(self) -> None:
        self.log.append(("synchronize", 0))

    def launch(self, kernel, step, parameters, stream=0) -> None:
        self.log.append((step.entry, len(parameters)))
        super().launch(kernel, step, parameters, stream)


def test_workspace_grows_and_is_shared():
    driver = Driver()
    w = Workspace(driver)
    assert w.address(Launch(())) == 0
    assert driver.log == []
    first = w.address(Launch((), 1000))
    assert first
    assert driver.held[first] >= 1000
    assert w.address(Launch((), 100)) == w.address(Launch((), 1 << 16)) == first
    before = len(driver.log)
    bigger = w.address(Launch((), 1 << 17))
    assert [name for name, _ in driver.log[before:]] == ["allocate", "release"]
    assert driver.held == {bigger: 1 << 17}
    w.release()
    assert not driver.held
    assert w.address(Launch((), 8)) in driver.held


def test_zeroed_regions_are_separate_and_zero_at_first():
    driver = Driver()
    w = Workspace(driver)
    sums = w.address(Launch((), 1000))
    driver.upload(sums, np.full(1000, 7, np.uint8))
    before = len(driver.log)
    flags = w.address(Launch((), 1000, zeroed=True))
    assert flags != sums
    assert [name for name, _ in driver.log[before:]] == ["allocate", "fill"]
    assert driver.log[-1] == ("fill", driver.held[flags])
    assert w.address(Launch((), 500, zeroed=True)) == flags


def test_parameters_are_packed_in_advance_except_addresses():
    driver = EmulatedDriver()
    for text in ("", " kg=2", " kg=2 splitk=flag_red", " kg=2 splitk=workspace"):
        runner = Runner.of(driver, P, parse_config(SMALL + text))
        for ready, step in zip(runner.prepare(2.5, -0.5), runner.launch.steps, strict=True):
            values = {"A": 1, "B": 2, "C": 3, "W": 4, "alpha": 2.5, "beta": -0.5}
            assert ready.parameters((1, 2, 3, 4)) == step.pack(values)
            assert ready.step is step


def test_addresses_come_in_the_order_of_names():
    """Names that a step does not take are skipped, and arrays without an address are at 0."""
    driver, p = EmulatedDriver(), replace(P, epilogue="bias_column")
    runner = Runner.of(driver, p, parse_config(SMALL + " kg=2 splitk=workspace"))
    at = {"A": 1, "B": 2, "C": 3, "W": 4, "bias": 5}
    for names in (("A", "B", "C", "bias", "W"), ("B", "A", "C", "W", "bias"), ("W", "C"), ("bias",), ()):
        values = {**{name: at[name] if name in names else 0 for name in at}, "alpha": 1.0, "beta": 0.0}
        for step, parameters in runner.prepare(names=names):
            assert parameters(tuple(at[name] for name in names)) == step.pack(values)


def test_buffers_with_tensor_maps_are_kept_by_address():
    driver, encoded = EmulatedDriver(device("h200")), []
    tensor_map = driver.tensor_map
    driver.tensor_map = lambda described, address: encoded.append(address) or tensor_map(described, address)
    config = parse_config("family=wgmma ml=64 nl=64 math_warpgroups=1 u=64 stages=2")
    ((step, parameters),) = Runner.of(driver, Gemm(64, 64, 64, "NT", "f16"), config).prepare(names=("B", "A", "C"))
    buffers = [parameters(addresses) for addresses in ((16, 32, 48), (16, 32, 64), (16, 32, 48))]
    assert buffers[0] == buffers[2] != buffers[1]
    assert sorted(encoded) == [16, 16, 32, 32]
    values = {"A": 32, "B": 16, "C": 48, "W": 0, "alpha": 1.0, "beta": 0.0}
    assert buffers[0] == step.pack(values) + step.pack_maps(tensor_map, values)


def test_products_of_host_arrays():
    driver = Driver()
    a, b, c = operands(P, 1, "integers").values()
    for text in ("", " kg=3", " kg=3 splitk=flag_red", " kg=3 splitk=workspace"):
        runner = Runner.of(driver, P, parse_config(SMALL + text))
        out = runner.compute({"A": a, "B": b, "C": c}, 2.0, -1.0)["C"]
        assert np.array_equal(out, reference(P, {"A": a, "B": b, "C": c}, 2.0, -1.0).exact)
        runner.workspace.release()
        assert not driver.held  # nothing is kept
    assert not np.array_equal(out, c)


def test_buffers_are_released_on_an_error():
    driver = Driver()
    with suppress(ZeroDivisionError), Buffers(driver, {"full": np.ones(4), "empty": np.ones(0)}) as held:
        assert len(set(held.addresses.values())) == 2
        raise ZeroDivisionError
    assert not driver.held


def test_call_launches_again_on_the_same_addresses():
    driver = EmulatedDriver()
    a, b, c = operands(P, 1, "integers").values()
    runner = Runner.of(driver, P, parse_config(SMALL + " kg=4 splitk=flag_red"))
    with Buffers(driver, {"A": a, "B": b, "C": c}) as at:
        go = runner.bind(at.addresses, 1.0, 1.0)
        out = np.empty_like(c)
        for n in range(1, 4):  # C = AB + C, three times; each launch leaves the flags zero
            go()
            driver.download(at.addresses["C"], out)
            assert np.array_equal(out, reference(P, {"A": a, "B": b, "C": c}, n, 1.0).exact)


def test_padding_is_filled_and_elements_do_not_change():
    p = replace(P, lda=43, ldb=40, ldc=19)
    a, b, c = operands(p, 1).values()
    wide = padded(p, {"A": a, "B": b, "C": c})
    assert [x.shape for x in wide.values()] == [(20, 43), (18, 40), (20, 19)]
    assert np.array_equal(wide["A"][:, :40], a)
    assert np.isnan(wide["A"][:, 40:]).all()
    assert np.array_equal(wide["B"], b)
    assert np.isnan(wide["C"][:, 18:]).all()


def test_illegal_configuration_gives_no_kernel():
    with pytest.raises(ConfigError, match="simt_tile_m"):
        generate(P, parse_config("lanes_m=32"), EmulatedDriver())


def test_alpha_and_beta_out_of_range_are_refused():
    driver = EmulatedDriver()
    single = Runner.of(driver, P, parse_config(SMALL))
    for arguments, words in (
        ((1e39, 0.0), r"alpha is 1e\+39; it must fit the accumulator type, f32"),
        ((1.0, -1e200), "beta is -1e\\+200"),
    ):
        with pytest.raises(InputError, match=words):
            single.prepare(*arguments)
    for value in (np.inf, -np.inf, np.nan, 3e38, 1e-300):
        assert single.prepare(value, value)
    double = Runner.of(driver, replace(P, dtype="f64", compute="", out="", lda=0, ldb=0, ldc=0), parse_config(SMALL))
    assert double.prepare(1e300, 1e300)
    whole = Runner.of(driver, Gemm(16, 16, 64, "NT", "s8"), parse_config(WHOLE))
    for value in (0.5, np.inf, np.nan):
        with pytest.raises(InputError, match=r"(alpha|beta) is .*; sums of s8 take integers"):
            whole.prepare(value, 0.0)
        with pytest.raises(InputError, match="beta is"):
            whole.prepare(1.0, value)
    with pytest.raises(InputError, match="must fit the accumulator type, s32"):
        whole.prepare(2.0**40, 0.0)
    assert whole.prepare(-3.0, 2.0)
