"""Selection for a shape: the user's winner, the shipped one, the regressor, the formula, in that order."""

from __future__ import annotations

import lzma
import os
import shutil
from dataclasses import replace

import pytest

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.families import plan_factory
from ptxgen.families.common import rules
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import device
from ptxgen.settings import shipped_dir
from ptxgen.tuning import selection
from ptxgen.tuning.choice import winners
from ptxgen.tuning.choice.models import model_folder, model_for
from ptxgen.tuning.selection import Selection, select
from ptxgen.tuning.store import tuning_files
from ptxgen.tuning.store.database import Database
from ptxgen.tuning.store.measurement import Environment, Measurement
from ptxgen.tuning.store.tuning_files import Header, write_winners

H200, T4 = device("h200"), device("t4")
P = Gemm(2560, 16, 2560, "TN")
OTHER = Gemm(2560, 17, 2560, "TN")
MINE = parse_config("ms=4 ns=4 ml=32 nl=16 lanes_m=8 vec_a=4 vec_b=4 vec_c=4")
THEIRS = parse_config("ms=4 ns=2 ml=64 nl=16 lanes_m=16 vec_a=4 vec_b=4 vec_c=2")


def measured(
    config: Config, us: float, problem: Gemm = P, where: str = "h200", clock: str = "hardware", digest: str = ""
) -> Measurement:
    """A winner, with the digest of the current kernel unless ``digest`` is given."""
    if not digest and rules.first_violation(lower(problem), config, device(where)) is None:
        digest = winners.current_digest(problem, config, device(where))
    digest = digest or "0123456789abcdef"
    return Measurement(problem, config, "ok", Environment(where, clock), (us,), digest, purpose="final")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Shipped files: a winner for the H200, and no model."""
    place = tmp_path / "shipped"
    write_winners(tuning_files.winners_path("h200", place), Header("h200", "hardware"), [measured(THEIRS, 7.0)])
    monkeypatch.setattr(tuning_files, "shipped_dir", lambda: place)
    return place


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path / "tuning.sqlite") as opened:
        yield opened


@pytest.fixture(scope="module")
def trained():
    """The regressor that this repository ships for the H200."""
    return shipped_dir() / "h200"


def test_sources_are_tried_in_order(folder, database, trained):
    assert select(P, H200) == select(P, H200, database) == [Selection(P, THEIRS, "shipped", 7.0)]
    database.set_winner(measured(MINE, 9.0))  # slower, but measured here
    assert select(P, H200, database) == [Selection(P, MINE, "winner", 9.0)]
    assert select(P, H200) == [Selection(P, THEIRS, "shipped", 7.0)]
    (analytic,) = select(OTHER, H200, database)
    assert analytic.origin == "analytic"
    assert analytic.us > 0
    assert rules.first_violation(lower(OTHER), analytic.config, H200) is None
    shutil.copy(trained / "model.json.xz", folder / "h200")
    (predicted,) = select(OTHER, H200, database)
    assert predicted.origin == "model"
    assert predicted.us > 0
    assert rules.first_violation(lower(OTHER), predicted.config, H200) is None
    assert select(P, H200, database) == [Selection(P, MINE, "winner", 9.0)]


def test_a_damaged_row_of_a_winner_is_skipped_with_a_warning(folder, database, caplog):
    database.set_winner(measured(MINE, 9.0))
    database._db.execute("UPDATE measurement SET samples = '[1.0, '")
    assert select(P, H200, database) == [Selection(P, THEIRS, "shipped", 7.0)]
    assert "the winner is not used" in caplog.text


def test_winners_apply_to_exactly_their_problem_and_device(folder, database):
    database.set_winner(measured(MINE, 9.0))
    for p in (
        Gemm(2561, 16, 2560, "TN"),
        Gemm(2560, 16, 2560, "TT"),
        replace(P, lda=2564),
        replace(P, deterministic=True),
        replace(P, aligned_a=8),
    ):
        assert select(p, H200, database)[0].origin == "analytic"
    assert select(P, T4, database)[0].origin == "analytic"
    assert select(P, device("h100"), database)[0].source == "shipped (h200)"  # of the same compute capability


def test_selection_by_the_model_alone(folder, database):
    database.set_winner(measured(MINE, 9.0))
    selections = select(P, H200, database, use_model=True)
    assert selections[0].origin == "analytic"
    assert selections[0].config != MINE


def test_several_choices_begin_with_the_winner_without_repetition(folder, database):
    database.set_winner(measured(MINE, 9.0))
    selections = select(P, H200, database, k=5)
    assert [s.origin for s in selections] == ["winner", *["analytic"] * 4]
    assert len({s.config for s in selections}) == 5
    assert [s.us for s in selections[1:]] == sorted(s.us for s in selections[1:])
    ranked = select(P, H200, database, use_model=True, k=3)
    database.set_winner(measured(ranked[0].config, 1.0))
    again = select(P, H200, database, k=3)
    assert [s.config for s in again] == [s.config for s in ranked]
    assert [s.origin for s in again] == ["winner", "analytic", "analytic"]


def test_illegal_winner_is_ignored(folder, database):
    """Such as a row of an older rule table."""
    database.set_winner(measured(replace(MINE, lanes_m=32), 0.5))
    assert select(P, H200, database) == [Selection(P, THEIRS, "shipped", 7.0)]
    database.set_winner(measured(replace(MINE, lanes_m=32), 0.5, OTHER))
    (selections,) = select(OTHER, H200, database)
    assert selections.origin == "analytic"
    assert rules.first_violation(lower(OTHER), selections.config, H200) is None


def test_local_model_precedes_the_shipped_one(folder, database, trained):
    assert not model_for(H200, database).trained
    mine = model_folder(database, "h200")
    shutil.copytree(trained, mine)
    assert model_for(H200, database).trained
    assert not model_for(H200).trained
    first = model_for(H200, database)
    assert model_for(H200, database) is first  # read once
    os.utime(mine / "model.json.xz", ns=(1, 1))
    assert model_for(H200, database) is not first  # until it changes
    assert select(OTHER, H200, database)[0].origin == "model"


def test_shipped_results_serve_the_h200_without_a_gpu():
    """On this repository's own results."""
    (selections,) = select(Gemm(2560, 16, 2560, "TN"), H200)
    assert selections.origin in ("shipped", "model")
    assert select(Gemm(2559, 17, 2561, "TN"), H200)[0].origin == "model"
    (scaled,) = select(Gemm(64, 64, 64), T4)
    assert (scaled.origin, scaled.scaled_from, scaled.source) == ("model", "h200", "model (h200)")
    assert select(Gemm(64, 64, 64), device("emulated"))[0].source == "analytic"


@pytest.mark.parametrize("shape", [(0, 0, 0), (1, 1, 1), (0, 7, 7), (7, 7, 0), (1, 1, 1 << 20), (1 << 20, 1, 1)])
def test_any_shape_has_a_selection(shape):
    p = Gemm(*shape)
    for d in (H200, T4, device("emulated")):
        (selections,) = select(p, d)
        assert rules.first_violation(lower(p), selections.config, d) is None


def test_modelled_times_are_never_selected_for_hardware(folder, database):
    database.set_winner(measured(MINE, 0.001, clock="model"))
    assert select(P, H200, database)[0].config == THEIRS
    assert selection.select(P, H200, database)[0].origin == "shipped"


def test_winner_without_epilogue_serves_the_same_gemm_with_one(folder):
    """The same kernel with another epilogue; a configuration that is illegal with it is ignored."""
    fused = replace(P, epilogue="bias_column,relu")
    (selections,) = select(fused, H200)
    assert (selections.config, selections.origin, selections.problem) == (THEIRS, "shipped", fused)
    assert select(replace(fused, aligned_c=4), H200)[0].origin == "analytic"


SUMS = "where(i,j){reduce(k){accum+=A[i,k]*B[k,j];}"


def test_a_task_of_sums_of_products_has_the_winner_of_the_gemm(folder):
    """With accesses of C that its lists permit; a task of another step has none."""
    values = Task(2560, 16, 2560, "TN", text=f"{SUMS} C[i,j]=accum*2.0; }}")
    pairs = Task(2560, 16, 2560, "TN", text=f"{SUMS} accum>2.0?C.add(i,j); }}", capacity=64)
    assert [(x.config, x.origin) for x in select(values, H200)] == [(THEIRS, "shipped")]
    assert [(x.config, x.origin) for x in select(pairs, H200)] == [(THEIRS.replace(vec_c=1), "shipped")]
    other = Task(2560, 16, 2560, "TN", text=f"{SUMS} C[i,j]=accum*2.0; }}".replace("*B", "+B"))
    assert select(other, H200)[0].origin == "analytic"


def test_a_task_is_ranked_as_its_gemm():
    """Through shared memory C is stored by the GEMM alone: for the task that memory is another stage."""
    task = Task(
        4096,
        4096,
        4096,
        dtype="f16",
        text=f"{SUMS.replace('A[i,k]*B[k,j]', 'f32(A[i,k])*f32(B[k,j])')} accum>2.0?C.add(i,j); }}",
    )
    (result,), (gemm,) = (select(p, device("h100")) for p in (task, Gemm(4096, 4096, 4096, dtype="f16")))
    assert (result.config.ml, result.config.nl, result.config.persistent) == (gemm.config.ml, gemm.config.nl, 1)
    assert gemm.config.epilogue_smem
    assert result.config == gemm.config.replace(epilogue_smem=0, stages=gemm.config.stages + 1)
    odd = replace(task, m=3000, n=3500, k=2000, lda=0, ldb=0, ldc=0)
    (ranked,), gemms = select(odd, device("h100")), select(Gemm(3000, 3500, 2000, dtype="f16"), device("h100"), k=20)
    assert any((ranked.config.ml, ranked.config.nl) == (x.config.ml, x.config.nl) for x in gemms)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_a_task_of_half_of_the_pairs_has_blocks_of_one_tile(dtype):
    """The skipped tiles are not the same share of those of each persistent block."""
    compute = "tf32" if dtype == "f32" else ""
    step = "A[i,k]*A[j,k]" if compute else "f32(A[i,k])*f32(A[j,k])"
    text = f"A:{dtype}[i,k];s:f32;where(i,j){{reduce(k){{accum+={step};}}accum>s?C.add(i,j);}}"
    for n in (4096, 8192):
        task = Task(n, n, 4096, dtype=dtype, compute=compute, text=text, capacity=1000)
        assert task.mirrored
        config = select(task, device("h100"))[0].config
        assert config.family == "wgmma"
        assert config.pingpong or not config.persistent
        assert select(replace(task, algebra=False), device("h100"))[0].config.persistent


@pytest.mark.parametrize("rows", [2, 64, 300])
@pytest.mark.parametrize("name", ["h100", "h200"])
def test_choices_for_short_rows_of_one_array_are_legal(rows, name):
    """The form of all pairs is of other families than the problem itself, whose rows of C have no vectors."""
    text = "A:f32[i,k];where(i,j){reduce(k){accum+=abs(A[i,k]-A[j,k]);}C[i]min=accum;}"
    for k in (1, 5, 12):
        task = Task(rows, rows, k, "NT", text=text)
        assert lower(task).forms
        ranked = model_for(device(name)).rank(task, k=20)
        assert ranked
        for config, _ in ranked:
            assert rules.first_violation(lower(task), config, device(name)) is None, str(config)


@pytest.mark.parametrize(
    ("p", "name", "words"),
    [
        (Gemm(64, 64, 64, "NT", "e4m3"), "a100", "it is sm_80; kernels of this are for sm_89, sm_90, sm_100, sm_120"),
        (Gemm(64, 64, 64, "NT", "f16", out="e5m2"), "t4", "it is sm_75; kernels of this are for sm_89"),
        (Conv(1, 3, 8, 8, 4, 3, 3, compute="f32_bf16x6"), "h200", "with compute f32 or tf32 there are kernels"),
    ],
)
def test_errors_name_the_missing_result(p: Gemm | Conv, name: str, words: str) -> None:
    assert not select(p, device(name))
    assert words in selection.why_unsupported(p, device(name))


def test_stale_winner_is_ignored_with_one_warning(folder, database, caplog):
    """Its time is that of a kernel that this version does not generate."""
    database.set_winner(measured(MINE, 9.0, digest="0123456789abcdef"))
    for _ in range(2):
        assert select(P, H200, database) == [Selection(P, THEIRS, "shipped", 7.0)]
    [record] = [r for r in caplog.records if r.name == "ptxgen.tuning.selection"]
    assert record.levelname == "WARNING"
    assert f"the winner of {P.key()} on h200 is stale" in record.getMessage()
    assert "its kernel was 0123456789abcdef" in record.getMessage()
    write_winners(
        tuning_files.winners_path("h200", folder), Header("h200"), [measured(THEIRS, 7.0, digest="fedcba9876543210")]
    )
    assert select(P, H200, database)[0].origin == "analytic"


def test_digest_of_a_winner_is_computed_once(folder, monkeypatch):
    calls = []
    monkeypatch.setattr(plan_factory, "plan_for", lambda *a, real=plan_factory.plan_for: calls.append(a) or real(*a))
    winners.current_digest.cache_clear()
    assert [select(P, H200)[0].origin for _ in range(3)] == ["shipped"] * 3
    assert len(calls) == 1


@pytest.mark.parametrize("damage", [b"{", *map(lzma.compress, (b'{"format": 2}', b"[" * 100_000))])
def test_damaged_model_is_ignored_with_a_warning(folder, database, trained, caplog, damage):
    mine = model_folder(database, "h200")
    mine.mkdir(parents=True)
    (mine / "model.json.xz").write_bytes(damage)
    for _ in range(2):
        assert select(OTHER, H200, database)[0].origin == "analytic"
    [record] = [r for r in caplog.records if r.name == "ptxgen.tuning.selection"]
    assert str(mine / "model.json.xz") in record.getMessage()
    shutil.copy(trained / "model.json.xz", folder / "h200")
    assert select(OTHER, H200, database)[0].origin == "model"  # the one that ships stands in
