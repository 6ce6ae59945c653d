"""Tasks that count bits: which steps are, what is told of them, and what PyTorch computes in their place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.lowering.bit_products import COMMON_BITS, DIFFERENT_BITS, TruthWords, bit_form_on
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.baselines import libraries, torch_text
from ptxgen.operations.task.baselines.parts import Parts
from ptxgen.operations.task.explanation import explanation
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.suites import BITS, bit_text
from ptxgen.problem.device import device
from ptxgen.tuning.selection import require

H100 = device("h100")


def task(dtype: str, step: str, output: str = "C[i,j] = accum;", **fields: int) -> Task:
    return Task(30, 20, 70, text=f"A:{dtype}[i,k];B:{dtype}[k,j];where(i,j){{reduce(k){{{step}}}{output}}}", **fields)


@pytest.mark.parametrize(
    ("p", "algebra"),
    [
        (task("u32", "accum += popcount(A[i,k] & B[k,j]);"), COMMON_BITS),
        (task("u32", "accum += s32(popcount(B[k,j] ^ A[i,k]));"), DIFFERENT_BITS),
        (task("u32", "accum |= A[i,k] & B[k,j];", "C[i,j] = accum == 0;"), COMMON_BITS),
        (task("u8", "accum += (A[i,k] == 0) != (B[k,j] == 0);"), DIFFERENT_BITS),
        (task("s8", "accum |= not (A[i,k] == 0 or B[k,j] == 0);"), COMMON_BITS),
        (task("u32", "accum |= A[i,k] & B[k,j];"), None),  # bits of the reduction are results
        (task("u32", "accum |= A[i,k] & B[k,j];", "C[i,j] = accum > 1;"), None),
        (task("u32", "accum += popcount(A[i,k] | B[k,j]);"), None),
        (task("s32", "accum += popcount(u32(A[i,k] & B[k,j]));"), None),
        (task("u8", "accum += A[i,k] != B[k,j];"), None),  # numbers that differ may both be true
        (task("u8", "accum += A[i,k] != 0 or B[k,j] != 0;"), None),
        (task("u8", "accum += A[i,k] != 0 and B[k,j] != 0;", "C[i,j] = f32(accum) / f32(K);"), None),
        (task("u16", "accum += A[i,k] != 0 and B[k,j] != 0;"), None),
        (replace(task("u32", "accum += popcount(A[i,k] & B[k,j]);"), algebra=False), None),
    ],
    ids=lambda x: x.text[x.text.index("reduce") :] if isinstance(x, Task) else "",
)
def test_steps_that_count_bits(p: Task, algebra: object) -> None:
    form = bit_form_on(lower(p), H100)
    assert (form and form.algebra) is algebra
    if form is not None:
        packed = p.dtype != "u32"
        assert all(isinstance(x.access, TruthWords) == packed for x in form.operands)
        assert form.k == (4 if packed else 70)  # 70 truth values in words of 32, of which a row has a multiple of 4
        assert bit_form_on(lower(p), device("b200")) is None


def test_large_tasks_are_computed_by_tensor_cores_where_they_count_bits() -> None:
    p = Task(4096, 4096, 4096, dtype="u8", text=bit_text("or_and", "u8"))
    assert [require(p, device(name))[0].config.family for name in ("h100", "b200")] == ["mma", "simt"]


@pytest.mark.parametrize("dtype", ["u8", "u32"])
@pytest.mark.parametrize("name", BITS)
def test_explanations_tell_which_bits_are_counted(name: str, dtype: str) -> None:
    program = parse(bit_text(name, dtype))
    [line] = [x for x in explanation(program) if "cores count" in x]
    assert ("different" if name == "hamming" else "common") in line
    assert ("packed" in line) == (dtype == "u8")
    assert not any("cores count" in x for x in explanation(program, algebra=False))


@pytest.mark.parametrize("name", BITS)
def test_functions_of_pytorch_multiply_truth_values(name: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    a, b = (np.where(rng.random(shape) < 0.2, 3, 0).astype(np.uint8) for shape in ((24, 40), (40, 32)))
    x, y = (a != 0).astype(int), (b != 0).astype(int)
    rows, columns = x.sum(1)[:, None], y.sum(0)
    expected = {
        "or_and": x @ y > 0,
        "hamming": rows + columns - 2 * (x @ y),
        "jaccard": x @ y / (rows + columns - x @ y),
    }[name]
    counts = [torch.from_numpy(z.ravel().astype(np.int32)) for z in (rows, columns)] if name == "jaccard" else []
    sources = torch_text.sources(Parts(Task(24, 32, 40, dtype="u8", text=bit_text(name, "u8"))))
    assert set(sources) == {"int8 product", "f16 product" if name == "or_and" else "cube"}
    for source in sources.values():
        compute = libraries.module_of(source).compute
        [result] = compute(torch.from_numpy(a), torch.from_numpy(b), *counts, 24, 32, 40, 16, {})
        assert np.allclose(result.numpy(), expected)
