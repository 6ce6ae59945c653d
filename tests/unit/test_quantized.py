"""Problems with quantized weights: text form, errors, and the choice of configurations."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxgen.cli import command
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.families.registry import FAMILIES
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.grouped.checks import random_group
from ptxgen.operations.grouped.reference import product as grouped_product
from ptxgen.operations.quantized.operation import QUANTIZED_GEMM
from ptxgen.operations.quantized.problem import QuantizedGemm
from ptxgen.operations.quantized.pytorch import TorchDequantized
from ptxgen.operations.quantized.reference import product, quantized_arrays
from ptxgen.operations.quantized_jagged.operation import QUANTIZED_JAGGED
from ptxgen.operations.quantized_jagged.problem import QuantizedJagged
from ptxgen.operations.quantized_jagged.pytorch import TorchDequantizedJagged
from ptxgen.problem.device import device
from ptxgen.problem.reference import operands
from ptxgen.problem.registry import from_dict, parse
from ptxgen.problem.suites import cases
from ptxgen.tuning.search.sampler import Categorical
from ptxgen.tuning.selection import select

H200 = device("h200")


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (QuantizedGemm(3, 40, 251), "quantized_gemm 3,40,251 NT f16"),
        (QuantizedGemm(3, 40, 256, weights="s4"), "quantized_gemm 3,40,256 NT f16 weights=s4"),
        (
            QuantizedGemm(3, 40, 256, dtype="bf16", weights="u4", group=64, zeros=True, scales="f32", ldb=130),
            "quantized_gemm 3,40,256 NT bf16 ldb=130 weights=u4 group=64 zeros=1 scales=f32",
        ),
        (QuantizedGemm(3, 40, 128, weights="u8", group=128), "quantized_gemm 3,40,128 NT f16 weights=u8"),
        (QuantizedGemm(3, 40, 128, precision="fast"), "quantized_gemm 3,40,128 NT f16"),
        (
            QuantizedGemm(3, 40, 128, weights="u8", group=64, precision="fast"),
            "quantized_gemm 3,40,128 NT f16 weights=u8 group=64 precision=fast",
        ),
        (
            QuantizedJagged(((3, 40, 128), (0, 40, 128)), weights="u8", group=128, ld="128:144:40"),
            "quantized_jagged 3,40,128+0,40,128 NT f16 ld=128:144:40 weights=u8",
        ),
        (
            QuantizedJagged(((3, 40, 128),) * 2, ld="128:64:40", weights="s4"),
            "quantized_jagged 2x3,40,128 NT f16 weights=s4",
        ),
        (
            QuantizedJagged(((3, 40, 128),) * 2, ld="128:64:40", weights="s4", group=32, precision="fast"),
            "quantized_jagged 2x3,40,128 NT f16 weights=s4 group=32 precision=fast",
        ),
    ],
)
def test_text_form(p: QuantizedGemm | QuantizedJagged, text: str) -> None:
    assert p.key() == text
    assert parse(text) == p == from_dict(p.as_dict())


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"k": 100, "group": 32}, ShapeError, "group is 32; it must divide K, 100"),
        ({"group": 48}, ShapeError, "group is 48; it must be 32, 64, 128, or 0, the whole K"),
        ({"k": 251, "weights": "s4"}, ShapeError, "k is 251; with weights of 4 bits, two in a byte, it must be even"),
        ({"weights": "s4", "zeros": True}, InputError, "weights of format s4 have no zero points"),
        ({"weights": "s3"}, DtypeError, "weights is 's3'; it must be one of s8, u8, s4, u4"),
        ({"dtype": "f32"}, DtypeError, "with quantized weights A must be f16 or bf16, summed in f32"),
        ({"compute": "f16"}, DtypeError, "compute is f16; with quantized weights"),
        ({"scales": "f64"}, DtypeError, "scales is 'f64'; it must be one of f16, bf16, f32"),
        ({"precision": "fast", "scales": "bf16"}, DtypeError, "precision is fast and scales is bf16; scales must then"),
        ({"precision": "fast", "scales": "f32"}, DtypeError, "precision is fast and scales is f32; scales must then"),
        ({"precision": "quick"}, InputError, "precision is 'quick'; it must be one of exact, fast"),
        ({"layout": "NN"}, ShapeError, "layout is NN and batch is 1; with quantized weights they must be NT and 1"),
        ({"batch": 2}, ShapeError, "layout is NT and batch is 2"),
        ({"ldb": 255}, ShapeError, "ldb is 255; it must be from 256, a row's length"),
    ],
)
def test_errors_name_the_argument_and_the_rule(fields: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        QuantizedGemm(**{"m": 3, "n": 40, "k": 256, **fields})


def test_bytes_are_those_of_activations_weights_scales_zero_points_and_results() -> None:
    p = QuantizedGemm(4, 40, 256, weights="u4", group=64, zeros=True, scales="f32")
    assert p.bytes == lower(p).moved == 2 * 4 * 256 + 40 * 128 + 40 * 4 * (4 + 1) + 2 * 4 * 40
    experts = QuantizedJagged(((4, 40, 256), (0, 40, 256)), weights="u4", group=64, zeros=True, scales="f32")
    assert experts.bytes == lower(experts).moved == p.bytes  # no weights of an expert without rows


def test_ceiling_is_the_bandwidth_of_the_weights() -> None:
    """Half a byte each, and f16 scales of groups."""
    p, ceiling = QuantizedGemm(16, 4096, 4096, weights="s4", group=128), QUANTIZED_GEMM.ceiling
    assert ceiling
    assert ceiling.moved(p) == 4096 * (2048 + 32 * 2)
    assert ceiling.least_us(p, H200) == ceiling.moved(p) / (H200.bandwidth * 1e3)


@pytest.mark.parametrize("weights", ["s8", "u8", "s4", "u4"])
def test_baseline_multiplies_by_the_dequantized_weights(weights: str) -> None:
    """PyTorch on the CPU in place of a GPU; integers, whose sums are exact."""
    torch = pytest.importorskip("torch")
    p = QuantizedGemm(3, 5, 64, weights=weights, group=32, zeros=weights[0] == "u")
    arrays = operands(p, 1, "integers") | quantized_arrays(p, 1, "integers")

    class OnHost(TorchDequantized):
        def __init__(self) -> None:
            self.problem, self.torch = p, torch

        def matrix(self, address: Any, rows: int, ld: int, size: int, dtype: str) -> Any:
            stored = arrays[address]
            assert (stored.dtype.name, stored.itemsize, stored.size) == (dtype, size, rows * ld)
            return torch.from_numpy(stored.reshape(rows, ld))

    got = OnHost().call({name: name for name in arrays})()
    assert (got.numpy() == product(p, arrays)[0].astype(np.float16)).all()


def test_jagged_baseline_has_the_dequantized_weights_of_each_expert(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    p = QuantizedJagged(((3, 5, 64), (0, 5, 64), (2, 5, 64)), dtype="bf16", weights="u4", group=32, zeros=True)
    arrays = random_group(p, 1, "integers")

    def matrix(torch: Any, address: Any, rows: int, ld: int, size: int, dtype: str) -> Any:
        assert arrays[address].size == rows * ld
        stored = arrays[address].reshape(rows, ld)
        return torch.from_numpy(stored.astype(np.float32) if dtype == "bfloat16" else stored)

    monkeypatch.setattr("ptxgen.operations.quantized_jagged.pytorch.matrix", matrix)
    baseline = TorchDequantizedJagged.__new__(TorchDequantizedJagged)
    baseline.problem, baseline._torch = p, torch
    weights = baseline._second({name: name for name in arrays}, (3, 64, 5)).float().numpy()  # type: ignore[misc]
    x = arrays["A"].astype(np.float64).reshape(5, 64)
    got = np.concatenate([x[:3] @ weights[0], x[3:] @ weights[2]])
    assert (got.ravel() == grouped_product(p, arrays)[0]).all()


def test_families_of_other_matrices_lack_the_access() -> None:
    """And the family of quantized weights computes nothing else."""
    q, plain = lower(QuantizedGemm(16, 64, 256)), Gemm(16, 64, 256, "NT", "f16")
    computing = [name for name, f in FAMILIES.items() if f.computes(q)]
    assert computing == ["wgmma", "quantized_mma"]
    assert [name for name, f in FAMILIES.items() if f.computes(lower(QuantizedJagged(((16, 64, 256),))))] == computing
    [scope] = [FAMILIES["quantized_mma"].scope]
    assert scope
    assert select(QuantizedGemm(1, 4096, 4096, weights="s4", group=128), H200)[0].config.family == "quantized_mma"
    assert select(QuantizedGemm(256, 4096, 4096, weights="s4", group=128), H200)[0].config.family == "wgmma"
    experts = QuantizedJagged(((1, 4096, 4096),) * 8, weights="s4", group=128)
    assert select(experts, H200)[0].config.family == "quantized_mma"
    assert select(plain, H200)[0].config.family != "quantized_mma"


def test_suites_have_the_layers_with_all_tokens() -> None:
    for suite, bits in (("int4", 4), ("int8", 8)):
        problems = [c.problem for c in cases(suite, "quantized_gemm", dtype="bf16")]
        assert len(problems) == 4 * 7
        assert {p.m for p in problems} == {1, 2, 4, 8, 16, 64, 256}
        assert all(p.format.bits == bits and p.dtype == "bf16" for p in problems)
        first = next(QUANTIZED_JAGGED.suites[suite].build(dtype="bf16"))
        assert first.name == f"{problems[0].weights} Mixtral-8x7B gate+up uniform 64"
        assert (len(first.problem.items), first.problem.dtype) == (8, "bf16")


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        *((name, "quantized_gemm") for name in ("select", "emit", "check", "bench", "tune")),
        ("bench", "quantized_jagged"),
    ],
)
def test_commands(
    name: str, operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They take weights, group and zero points; the text form survives the database."""
    monkeypatch.setattr(Categorical, "learn", partial(Categorical.learn, wanted=20, limit=1 << 16))
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    words = [name, operation, "--shape", "3,24,128", "--weights", "u4", "--group", "64", "--zeros"]
    few = ["--samples", "2", "--search", "1", "--rounds", "0"] if name == "tune" else []
    code = command.run([*words, "--device", "emulated", "--json", *few])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    document = json.loads(printed.out)
    [row] = document.get("rows", [document])
    assert parse(row["problem"]["key"]) == parse(f"{operation} 3,24,128 NT f16 weights=u4 group=64 zeros=1")
