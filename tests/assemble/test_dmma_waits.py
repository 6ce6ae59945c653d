"""K loops of f64 kernels in machine code: no DMMA reads accumulators that the one before it has not written."""

from __future__ import annotations

import struct

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.families.mma.mainloop import MmaMainloop
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.device import device
from ptxgen.runtime.assemble import assemble, find_ptxas, version

H200 = device("h200")
LIST = GroupedGemm(((80, 16, 192), (196, 24, 64)), dtype="f64")
OPTIONS = "vec_a=2 vec_b=2 vec_c=2 stages=4"

#: instructions of sm_90, each of 16 bytes: low bits of the first word
BRA, DMMA = 0x947, 0x23F
ALWAYS = 7  #: the predicate of an unconditional branch


def code_of(cubin: bytes) -> bytes:
    """The instructions of the kernel in a cubin, a 64-bit ELF file."""
    (at,), (count, names) = struct.unpack_from("<Q", cubin, 40), struct.unpack_from("<HH", cubin, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, at + 64 * i) for i in range(count)]
    (code,) = [x for x in sections if cubin[sections[names][4] + x[0] :].startswith(b".text.")]
    return cubin[code[4] : code[4] + code[5]]


def branch_target(number: int, low: int, high: int) -> int:
    """The instruction that a branch goes to."""
    words = (low >> 34 | (high & 0x3FFFF) << 30) << 8 | low >> 16 & 0xFF
    return number + 1 + (words - (1 << 56 if words >> 55 else 0)) // 4


def missing_waits(code: bytes) -> list[int]:
    """The instructions of loops that read the sums of the DMMA before them, and do not wait for its scoreboard.

    Sums of earlier DMMA are not examined: kernels without waits for them gave right results on an H200. The function
    follows two iterations of each loop.
    """
    instructions, out = list(struct.iter_unpack("<QQ", code)), []
    for end, (low, high) in enumerate(instructions):
        start = branch_target(end, low, high)
        if low & 0xFFF != BRA or not 0 <= start <= end:
            continue
        written, scoreboard = -1, 7
        for number in [*range(start, end + 1)] * 2:
            low, high = instructions[number]
            if high >> 52 + scoreboard & 1 or (low & 0xFFF == BRA and low >> 12 & 15 == ALWAYS):
                written = -1
            if low & 0xFFF == DMMA:
                if written in (low >> 24 & 0xFF, low >> 32 & 0xFF, high & 0xFF):
                    out.append(number)
                written, scoreboard = low >> 16 & 0xFF, high >> 46 & 7
    return out


def machine_code(p, config):
    made = assemble(render(plan_for(p, parse_config(f"family=mma {config} {OPTIONS}"), H200)))
    code = code_of(made.cubin)
    assert any(low & 0xFFF == DMMA for low, _ in struct.iter_unpack("<QQ", code))
    return code


@pytest.mark.each_value
@pytest.mark.parametrize("problem", [LIST, Gemm(196, 128, 192, dtype="f64")], ids=["list", "gemm"])
@pytest.mark.parametrize("tile", ["ms=32 ns=8", "ms=16 ns=16", "ms=32 ns=16", "ms=64 ns=8", "ms=16 ns=32"])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_dmma_waits_for_the_sums_of_the_one_before_it(problem, tile, prefetch, tmp_path, monkeypatch):
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    for u in (16, 32):
        assert not missing_waits(machine_code(problem, f"{tile} ml=64 nl=32 u={u} fragment_prefetch={prefetch}"))


@pytest.mark.skipif(
    (ptxas := find_ptxas()) is None or not version(ptxas).startswith("13.0"), reason="other releases may wait"
)
def test_a_loop_over_one_tile_lacks_the_wait(tmp_path, monkeypatch):
    """The fault of ptxas 13.0 that the rules avoid."""
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
    monkeypatch.setattr(MmaMainloop, "has_loop", lambda self, part: True)
    for tile in ("ms=32 ns=8", "ms=16 ns=16"):
        assert missing_waits(machine_code(LIST, f"{tile} ml=64 nl=32 u=32 fragment_prefetch=1"))
