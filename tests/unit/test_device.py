"""Devices as plain data: looked up by name, described by a driver, occupancy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ptxgen.errors import DeviceError
from ptxgen.problem.device import DEVICES, assumed_for, describe, device


def test_devices_are_looked_up_by_name_and_target():
    assert device("h200") is DEVICES["h200"]
    assert device(" H200 ") is DEVICES["h200"]
    for target in ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"):
        assert device(target).target == target
    for name in ("h300", "", "sm_70", "sm_", "90", None):
        with pytest.raises(DeviceError, match=r"h200.*sm_120"):
            device(name)


@pytest.mark.parametrize(
    ("name", "sm", "described"),
    [
        ("NVIDIA H200", 90, "h200"),
        ("NVIDIA H100 80GB HBM3", 90, "h100"),
        ("NVIDIA A100-SXM4-80GB", 80, "a100"),
        ("NVIDIA A100 80GB PCIe", 80, "a100"),
        ("NVIDIA GeForce RTX 4090", 89, "rtx4090"),
        ("Tesla T4", 75, "t4"),
        ("NVIDIA GeForce RTX 3090 Ti", 86, "rtx3090"),
        ("NVIDIA B200", 100, "b200"),
        ("NVIDIA RTX A1000", 86, "rtxa1000"),
        ("NVIDIA T400 4GB", 75, "t4004gb"),
        ("NVIDIA L40S", 89, "l40s"),
        ("emulated", 90, "emulated"),
    ],
)
def test_device_lookup_needs_the_whole_name(name, sm, described):
    assert describe(name, sm).name == described
    assert describe(name, sm).sm == sm


def test_driver_attributes_override_the_table():
    d = describe("NVIDIA H200", 90, sms=100, clock=1500, shared_block=1234)
    assert (d.sms, d.clock, d.shared_block, d.fma64) == (100, 1500, 1234, 64)
    assert describe("NVIDIA RTX A1000", 86).fma64 == 2  # of its architecture, not of the A100
    with pytest.raises(DeviceError, match="sm_70"):
        describe("Tesla V100", 70)


def test_newer_architectures_get_a_ptx_version_that_supports_them():
    versions = {sm: describe("new", sm).ptx_version for sm in (75, 86, 87, 90, 100, 103, 110, 120, 121)}
    assert versions == {
        75: "8.1",
        86: "8.1",
        87: "8.1",
        90: "8.1",
        100: "8.6",
        103: "8.8",
        110: "9.0",
        120: "8.7",
        121: "8.8",
    }


def test_resident_blocks():
    """Against the occupancy of CUDA's calculator."""
    h, t = device("h200"), device("t4")
    assert h.blocks_per_sm(256, 64, 0) == 4  # 65536 / (64·256)
    assert h.blocks_per_sm(256, 41, 0) == 5  # registers come in eights
    assert h.blocks_per_sm(256, 32, 48 << 10) == 4  # 228 KB / 49 KB
    assert h.blocks_per_sm(64, 16, 0) == 32  # blocks
    assert h.blocks_per_sm(1024, 16, 0) == 2  # threads
    assert h.blocks_per_sm(33, 128, 0) == 8  # two warps each
    assert h.blocks_per_sm(1024, 80, 0) == 0
    assert h.blocks_per_sm(128, 32, 228 << 10) == 0
    assert t.blocks_per_sm(256, 32, 0) == 4  # no byte of shared memory, and none reserved
    assert t.blocks_per_sm(64, 32, 16 << 10) == 4


def test_resident_blocks_of_columns():
    rng = np.random.default_rng(3)
    for d in DEVICES.values():
        threads, registers = rng.integers(1, 1025, 300), rng.integers(1, 256, 300)
        shared = rng.integers(0, d.shared_block + 1, 300)
        one = [int(d.blocks_per_sm(int(a), int(b), int(c))) for a, b, c in zip(threads, registers, shared, strict=True)]
        assert d.blocks_per_sm(threads, registers, shared).tolist() == one


def test_peak_rates():
    def tera_flops(name: str, lanes: str) -> float:
        d = device(name)
        return 2e-6 * float(d.clock * d.sms * getattr(d, lanes))

    assert tera_flops("h200", "fma") == pytest.approx(66.9, rel=0.01)
    assert tera_flops("h200", "fma64") == pytest.approx(33.5, rel=0.01)
    assert tera_flops("a100", "fma") == pytest.approx(19.5, rel=0.01)
    assert tera_flops("t4", "fma16") == pytest.approx(16.3, rel=0.01)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("sm_90a", "h200"),
        ("SM_90", "h200"),
        ("sm_100a", "b200"),
        ("sm_100f", "b200"),
        ("sm_120f", "rtx5090"),
        ("sm_86", "rtx3090"),
    ],
)
def test_a_target_stands_for_one_device(target: str, name: str):
    assert device(target) is DEVICES[name]
    assert assumed_for(target) is DEVICES[name]


@pytest.mark.parametrize("name", ["sm_86a", "sm_90f", "sm_87", "sm_9", "h200a", "sm_90b", "h200"])
def test_other_words_are_no_targets(name: str):
    assert assumed_for(name) is None
    if name not in DEVICES:
        with pytest.raises(DeviceError, match="a target: sm_75"):
            device(name)


def test_a_file_describes_a_device(tmp_path: Path):
    path = tmp_path / "H20.json"
    path.write_text('{"name": "h20", "sm": 90, "sms": 78, "bandwidth": 4000}')
    assert device(str(path)) == replace(device("h200"), name="h20", sms=78, bandwidth=4000)
    path.write_text('{"name": "thor", "sm": 110, "sms": 20, "clock": 1575, "bandwidth": 273}')
    assert device(str(path)) == replace(device("b200"), name="thor", sm=110, sms=20, clock=1575, bandwidth=273)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("\xff", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "must have an object with name and sm, and any of sms, clock"),
        ('{"name": "x"}', "with name and sm"),
        ('{"name": "x", "sm": 90, "cores": 1}', "any of sms, clock"),
        ('{"name": "h100", "sm": 90}', "no name of a listed device"),
        ('{"name": "../x", "sm": 90}', "small letters"),
        ('{"name": 3, "sm": 90}', "name is 3"),
        ('{"name": "x", "sm": 70}', "sm is 70; it must be an integer from 75 on"),
        ('{"name": "x", "sm": 90, "sms": 0}', "sms is 0; it must be an integer from 1 on"),
        ('{"name": "x", "sm": 90, "sms": true}', "sms is True"),
        ('{"name": "x", "sm": 90, "clock": 1.5}', "clock is 1.5"),
        ('{"name": "x", "sm": 90, "clock": 1e400}', "clock is inf"),
        ('{"name": "x", "sm": 90, "shared_sm": 1024}', "shared_block is 232448; it must be at most shared_sm, 1024"),
    ],
)
def test_a_damaged_file_of_a_device_is_an_error(tmp_path: Path, text: str, message: str):
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DeviceError, match=message):
        device(str(path))
    for other in (tmp_path / "none.json", tmp_path):
        with pytest.raises(DeviceError, match=r"must be a file with a JSON object|must be one of"):
            device(str(other))


def test_features_by_architecture():
    for d in DEVICES.values():
        assert d.has_async_copy == (d.sm >= 80)
        assert d.has_vector_red == (d.sm >= 90)
        assert d.shared_block <= d.shared_sm
