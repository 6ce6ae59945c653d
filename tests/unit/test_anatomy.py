"""The comparison with cuBLASLt's kernel: captured kernels, counters of ncu, the table. The GPU and ncu are fakes."""

from __future__ import annotations

import csv
import json
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ptxgen.cli.command import run
from ptxgen.cli.report import plain, problem_fields
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import LaunchError, UnavailableError
from ptxgen.operations.gemm import anatomy
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.problem.suites import cases
from ptxgen.runtime import cuda_graph, profiler
from ptxgen.runtime.cuda_graph import CapturedKernel
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.emulated import EmulatedDriver

CUTLASS = "_ZN7cutlass7Kernel2I41cutlass_80_simt_sgemm_64x128_8x5_nn_align1EEvNT_6ParamsE"
REDUCE = "_ZN8cublasLt19splitKreduce_kernelILi32ELi16EiffffEEvv"
MAIN = CapturedKernel("multiply", (160, 1, 1), (128, 1, 1), 96, 20480, 4)
ADD = CapturedKernel("add", (80, 1, 1), (256, 1, 1), 32, 0, 8)


class FakeDriver:
    """A graph with a memset, a kernel of a module and one of a library."""

    CUgraphNodeType = SimpleNamespace(CU_GRAPH_NODE_TYPE_KERNEL="kernel")
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_NUM_REGS=0, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES=1)

    def __init__(self) -> None:
        self.destroyed = False
        extents = {"gridDimX": 5, "gridDimY": 2, "gridDimZ": 1, "blockDimX": 64, "blockDimY": 1, "blockDimZ": 1}
        self.nodes = {
            "memset": None,
            "own": SimpleNamespace(func=7, kern=0, sharedMemBytes=1024, **extents),
            "library": SimpleNamespace(func=0, kern=8, sharedMemBytes=0, **extents),
        }

    def cuGraphGetNodes(self, graph: Any, most: int) -> Any:  # noqa: N802
        return 0, [*self.nodes, *[0] * (most - 3)], 3

    def cuGraphNodeGetType(self, node: str) -> Any:  # noqa: N802
        return 0, "kernel" if self.nodes[node] else "memset"

    def cuGraphKernelNodeGetParams(self, node: str) -> Any:  # noqa: N802
        return 0, self.nodes[node]

    def cuKernelGetFunction(self, kernel: int) -> Any:  # noqa: N802
        return 0, kernel + 1

    def cuFuncGetAttribute(self, fact: int, function: int) -> Any:  # noqa: N802
        return 0, {7: (40, 512), 9: (50, 256)}[function][fact]

    def cuFuncGetName(self, function: int) -> Any:  # noqa: N802
        return 0, {7: b"first", 9: b"second"}[function]

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: int, threads: int, shared: int) -> Any:  # noqa: N802
        return 0, threads // 8 + (shared > 0)

    def cuGraphDestroy(self, graph: Any) -> Any:  # noqa: N802
        self.destroyed = True
        return (0,)


def test_captured_kernels_have_their_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver()
    monkeypatch.setattr(cuda_graph, "load", lambda: driver)
    monkeypatch.setattr(cuda_graph, "_capture", lambda stream, launch: launch())
    first, second = cuda_graph.captured_kernels(1, lambda: "graph")
    assert first == CapturedKernel("first", (5, 2, 1), (64, 1, 1), 40, 1536, 9)
    assert second == CapturedKernel("second", (5, 2, 1), (64, 1, 1), 50, 256, 8)
    assert (first.blocks, first.threads) == (10, 64)
    assert driver.destroyed


def test_main_kernel_multiplies() -> None:
    assert anatomy.main_kernel([MAIN, ADD]) == anatomy.main_kernel([ADD, MAIN]) == MAIN
    with pytest.raises(LaunchError, match="launches no kernel"):
        anatomy.main_kernel([])


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        (CUTLASS, (64, 128)),
        ("ampere_sgemm_32x128_nn", (32, 128)),
        ("ampere_sgemm_32x32_sliced1x4_nn", (32, 32)),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma", (128, 64)),
        (REDUCE, None),
    ],
)
def test_tiles_are_in_the_names_of_kernels(name: str, tile: tuple[int, int] | None) -> None:
    assert anatomy.tile_in(name) == tile


def test_occupancy_counts_resident_warps() -> None:
    h100 = device("h100")
    assert anatomy.occupancy(MAIN, h100) == pytest.approx(160 * 4 / (h100.sms * 64))
    many = CapturedKernel("many", (10_000, 1, 1), (128, 1, 1), 96, 20480, 4)
    assert anatomy.occupancy(many, h100) == pytest.approx(4 * 4 / 64)


NCU = """==PROF== Connected to process 7
"ID","Process ID","Kernel Name","lts__t_sector_hit_rate.pct","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","%","%"
"0","7","multiply","32.50","1,016.25"
"""


def test_counters_are_read_from_the_output_of_ncu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ncu = tmp_path / "ncu"
    ncu.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/words\ncat <<'END'\n{NCU}END\n")
    ncu.chmod(ncu.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(profiler, "find_ncu", lambda: str(ncu))
    assert profiler.profiled(["program", "key"], "multiply") == {"l2_hit_rate": 32.5, "active_warps": 1016.25}
    words = (tmp_path / "words").read_text()
    assert "--kernel-name multiply --launch-count 1 program key" in words
    ncu.write_text("#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM: no permission'\n")
    with pytest.raises(LaunchError, match="ncu failed: ==ERROR== ERR_NVGPUCTRPERM"):
        profiler.profiled(["program"], "multiply")


def test_missing_ncu_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise UnavailableError("ncu is not on PATH")

    monkeypatch.setattr(profiler, "find_ncu", missing)
    [case] = [case for case in cases("isaac", "gemm") if case.name == "DeepBench-F 32"]
    assert anatomy._profile(case.problem, "vendor=1", "multiply") == ({}, "ncu is not on PATH")  # type: ignore[arg-type]


class StandInLibrary:
    """cuBLASLt with three candidates; the last is the fastest."""

    def __init__(self, driver: Any, problem: Any) -> None:
        self.launched: list[int] = []

    def __enter__(self) -> StandInLibrary:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def times(self, sets: Any, timing: Any) -> dict[int, float]:
        return {0: 30.0, 4: 20.0}

    def run(self, index: int, addresses: Any) -> None:
        self.launched.append(index)

    def splits(self, index: int) -> int:
        return index


def test_both_kernels_are_measured_and_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, profiles = EmulatedDriver(device("h100")), []
    vendor = CapturedKernel(CUTLASS, (20, 1, 1), (256, 1, 1), 120, 16384, 2)
    captured = [[vendor, ADD], [MAIN]]  # of cuBLASLt, then of ptxgen

    def kernels_of(launch: Any) -> Any:
        launch()
        return captured.pop(0)

    def profiled(program: Any, kernel: str) -> dict[str, float]:
        profiles.append((program[-2:], kernel))
        return {"l2_hit_rate": 50.0, "active_warps": 10.0}

    monkeypatch.setattr(driver, "kernels_of", kernels_of, raising=False)
    monkeypatch.setattr(anatomy, "CublasLt", StandInLibrary)
    monkeypatch.setattr(profiler, "profiled", profiled)
    p = Gemm(64, 48, 32)
    own, other = anatomy.compared(driver, p, Timing(samples=1))  # type: ignore[arg-type]
    assert own.config is not None
    assert own.tile == (own.config.nl, own.config.ml)
    assert (other.us, other.candidate, other.splits, other.tile) == (20.0, 4, 4, (64, 128))
    assert [name for _, name in profiles] == ["multiply", CUTLASS]
    assert profiles[1][0] == [p.key(), "vendor=4"]
    assert parse_config(profiles[0][0][1]) == own.config
    assert other.as_dict()["main"]["registers"] == 120


def shown() -> dict[str, Any]:
    """A document of the command."""
    [case] = [case for case in cases("isaac", "gemm") if case.name == "DeepBench-F 32"]
    config = parse_config("ms=4 ns=4 ml=32 nl=64 u=16 kl=2 kg=5")
    profile = {"l2_hit_rate": 61.5, "active_warps": 20.25}
    own = anatomy.Anatomy("ptxgen", 12.5, (MAIN,), MAIN, 0.25, profile, "", (64, 32), 5, config)
    vendor = anatomy.Anatomy("cuBLASLt", 25.0, (MAIN, ADD), MAIN, 0.125, {}, "ncu is missing", (64, 128), 7, None, 3)
    rows = [{**kernel.as_dict(), "tflops": case.problem.flops / kernel.us * 1e-6} for kernel in (own, vendor)]
    return plain({"command": "paper anatomy", "device": "h100", **problem_fields(case), "libraries": rows})


def test_table_has_both_kernels_beside_the_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "anatomy.json"
    path.write_text(json.dumps(shown()))
    assert run(["paper", "anatomy", "--from", str(path), "--csv"]) == 0
    rows = {row[0]: row[1:] for row in csv.reader(capsys.readouterr().out.splitlines())}
    assert rows["property"] == ["ptxgen", "cuBLASLt", "ISAAC, P100", "cuBLAS, P100"]
    assert rows["M_L"] == ["64", "64", "64", "128"]
    assert rows["K_G"] == ["5", "7", "", ""]
    assert rows["L2 hit rate, %"] == ["61.5", "", "32.0", "24.0"]
    assert rows["occupancy, %"] == ["25.0", "12.5", "17.0", "10.0"]
    assert rows["grid"][0] == "160×1×1"
    pytest.importorskip("matplotlib")
    assert run(["paper", "anatomy", "--from", str(path), "--picture", str(tmp_path / "a.svg")]) == 0
    text = capsys.readouterr().out
    assert "2560×32×2560, column-major, on h100" in text
    assert "cuBLASLt: ncu is missing" in text


def test_measuring_needs_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    assert run(["paper", "anatomy", "--measure"]) == 3
    assert "needs an NVIDIA GPU" in capsys.readouterr().err
    (tmp_path / "anatomy.json").write_text(json.dumps(shown()))
    assert run(["paper", "anatomy", "--measure", "--from", str(tmp_path / "anatomy.json")]) == 2
    assert "a document is either measured or read" in capsys.readouterr().err
    assert run(["paper", "anatomy", "--device", "t4"]) == 2
    assert "On such a GPU: python -m ptxgen paper anatomy --measure --save anatomy.json" in capsys.readouterr().err
