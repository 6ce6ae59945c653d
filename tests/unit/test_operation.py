<<<<<<< HEAD
"""The registry of operations, and an operation that is registered from outside the package: C = A·diag(d)·B."""
=======
"""The registry of operations, and an operation that is registered from outside the package: C = A·diag(d)·B. Its
kernels are those of a GEMM; the host multiplies A by d before the launch."""
>>>>>>> w/all

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxgen import plugins
from ptxgen.cli import command
from ptxgen.codegen.render import render
from ptxgen.errors import InputError
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import device
from ptxgen.problem.gemm import Gemm
from ptxgen.problem.operation import (
    Operation,
    operation_named,
    operation_names,
    operation_of,
    register,
    unregister,
)
from ptxgen.problem.registry import from_dict, parse
from ptxgen.runtime.check import CASES, check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.bench import Bench
from ptxgen.tuning.selection import select
<<<<<<< HEAD
from tests.plugins.diagonal import DIAGONAL, DiagonalGemm, DiagonalOperandSets, checks
=======
from ptxgen.tuning.worker import Worker


@dataclass(frozen=True)
class DiagonalGemm(Gemm):
    """C[M,N] = alpha · A[M,K] · diag(d[K]) · B[K,N] + beta · C."""

    operation = "diagonal_gemm"


def diagonal(p: DiagonalGemm, seed: int) -> Array:
    """Values of d: powers of two, by which A is multiplied exactly."""
    return np.exp2(np.random.default_rng([seed, 3]).integers(-1, 2, p.k))


def scale(p: DiagonalGemm, a: Array, d: Array) -> Array:
    """A·diag(d), as the host prepares it for the kernel."""
    return (a.astype(np.float64) * (d if p.layout[0] == "N" else d[:, None])).astype(a.dtype)


def to_gemm(p: DiagonalGemm) -> KernelGemm:
    return KernelGemm.of(p)


def product(p: DiagonalGemm, a: Array, b: Array, region: None = None) -> tuple[Array, Array]:
    """Of the scaled A."""
    found: tuple[Array, Array] = operation_named("gemm").product(p, a, b, region)
    return found


def checks(driver: Driver, p: DiagonalGemm, config: Config, seed: int = 0, slack: int = 0) -> Iterator[CheckResult]:
    """Compares the scaling by the host and the kernel together with A·diag(d)·B, computed from the user's operands."""
    runner = Runner.of(driver, p, config)
    for kind, alpha, beta, _ in CASES:
        a, b, c = operands(p, seed, kind)
        d = diagonal(p, seed)
        wide_a = a.astype(np.float64) if p.layout[0] == "N" else a.T.astype(np.float64)
        wide_b = b.astype(np.float64) if p.layout[1] == "N" else b.T.astype(np.float64)
        expected = reference(p, scale(p, a, d), b, c, alpha, beta)
        exact = alpha * np.einsum("mk,k,kn->mn", wide_a, d, wide_b) + beta * c.astype(np.float64)
        result = runner.compute(scale(p, a, d), b, c, alpha, beta)
        yield CheckResult(kind, verdict(kind, result, replace(expected, exact=exact)))


class DiagonalOperandSets(GemmOperandSets):
    """The operands of the GEMM with a scaled A: only the kernel is timed."""


def small(**fields: Any) -> Iterator[Case]:
    yield Case("diagonal 16x24x32", DiagonalGemm(16, 24, 32, **fields))


def cells(row: dict[str, Any]) -> list[Any]:
    p = row["problem"]
    return [f"{p['m']},{p['n']},{p['k']}", p["layout"], p["dtype"]]


DIAGONAL = Operation(
    DiagonalGemm,
    lowering=to_gemm,
    product=product,
    slices=lambda p, region=None: (),
    checks=checks,
    operand_sets=DiagonalOperandSets,
    titles=("M,N,K", "layout", "dtype"),
    cells=cells,
    suites=by_name(Suite("small", "one small product", small)),
)


class InProcess(Worker):
    """Measures in this process: a child process would have to import this module."""

    def start(self) -> dict[str, Any]:
        driver = EmulatedDriver()
        self.bench = Bench(driver)
        self.environment = environment(driver, SEARCH_TIMING)
        return {"device": asdict(driver.device)}

    def measure(
        self, problem: Problem, config: Config, timing: Timing = SEARCH_TIMING, purpose: str = "", full: bool = False
    ) -> Measurement:
        return self.bench.measure(problem, config, timing, purpose, full)

    def stop(self) -> None: ...

>>>>>>> w/all

P = DiagonalGemm(16, 24, 32, "NT")
H200 = device("h200")


@pytest.fixture
def registered() -> Iterator[Operation]:
    plugins.load()
    register(DIAGONAL)
    yield DIAGONAL
    unregister("diagonal_gemm")


def test_package_has_its_operations() -> None:
    assert operation_names()[:2] == ("gemm", "conv")
    for name in operation_names():
        assert operation_named(name).name == name
        assert {"isaac", "small"} <= set(operation_named(name).suites)
    with pytest.raises(InputError, match="operation is 'spmm'; it must be one of gemm, conv"):
        operation_named("spmm")


def test_name_is_registered_once(registered: Operation) -> None:
    with pytest.raises(InputError, match="registered already"):
        register(DIAGONAL)
    assert operation_of(P) is registered


def test_new_operation_has_a_text_form(registered: Operation) -> None:
    assert P.key() == "diagonal_gemm 16,24,32 NT f32"
    assert parse(P.key()) == P == from_dict(P.as_dict())
    assert parse("gemm 16,24,32 NT f32") != P


def test_new_operation_is_lowered_selected_and_emitted(registered: Operation) -> None:
    lowered = lower(P)
    assert type(lowered) is KernelGemm
    assert (lowered.m, lowered.n, lowered.k, lowered.layout) == (16, 24, 32, "NT")
    [chosen, *_] = select(P, H200)
    plain = plan_for(Gemm(16, 24, 32, "NT"), chosen.config, H200)
    assert render(plan_for(P, chosen.config, H200)).digest == render(plain).digest


def test_new_operation_is_checked_and_timed(registered: Operation) -> None:
    driver = EmulatedDriver()
    config = select(P, driver.device)[0].config
    found = check(driver, P, config)
    assert [r.kind for r in found] == [kind for kind, *_ in CASES]
    assert all(r.ok for r in found)
    work = Bench(driver)
    assert work.measure(P, config).outcome == "ok"
    assert isinstance(work.operand_sets, DiagonalOperandSets)


def test_check_of_a_new_operation_finds_errors(registered: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(checks.__globals__, "scale", lambda p, a, d: a)
    driver = EmulatedDriver()
    assert not any(r.ok for r in check(driver, P, select(P, driver.device)[0].config))


@pytest.mark.parametrize("name", ["select", "emit", "check", "bench", "tune", "sampler"])
def test_commands_accept_a_new_operation(
    registered: Operation,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    monkeypatch.setenv("PTXGEN_PLUGINS", "tests.plugins.diagonal:register_it")
    words = [name, "diagonal_gemm", "--shape", "16,24,32", "--device", "emulated", "--json"]
    few = ["--samples", "2", "--search", "1", "--rounds", "0"]
    code = command.run([*words, *(few if name == "tune" else [])])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    document = json.loads(printed.out)
    [row] = document.get("rows", [document])
    assert row["problem"]["operation"] == "diagonal_gemm"
    assert command.run([w for w in words if w != "--json"] + (few if name == "tune" else [])) == 0
