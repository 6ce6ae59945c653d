"""What a launch on the emulated device makes is freed without the garbage collector."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner

CONFIGS = {
    "simt": "ms=2 ns=2 ml=16 nl=16 u=8 cp_async_a=0 cp_async_b=0 stages=2",
    "mma": "family=mma ms=16 ns=8 ml=32 nl=32 u=32 vec_a=8 vec_b=8",
    "wgmma": "family=wgmma ml=64 nl=64 u=64",
}


def compute(config: str) -> None:
    problem = Gemm(64, 64, 64, "NT", "f16")
    arrays = {name: np.ones((64, 64), np.float16) for name in "ABC"}
    out = Runner.of(EmulatedDriver(), problem, parse_config(config)).compute(arrays)
    assert (out["C"] == 64).all()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_launch_leaves_no_cycles(config: str) -> None:
    compute(config)
    gc.collect()
    enabled, before = gc.isenabled(), len(gc.garbage)
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        compute(config)
        gc.collect()
        left = {type(x).__qualname__ for x in gc.garbage[before:] if type(x).__module__.startswith("ptxgen.emulator")}
    finally:
        gc.set_debug(0)
        del gc.garbage[before:]
        if enabled:
            gc.enable()
    assert not left
