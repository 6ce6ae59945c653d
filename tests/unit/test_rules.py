"""The rule table: each row rejects what it says, with both numbers in its message, on integers and on columns."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ptxgen.codegen.config.config import FAMILIES, Columns, Config, parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import ConfigError
from ptxgen.families.common.rules import RULES
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse as program
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.roles import roles_of
from ptxgen.operations.task.semirings import semiring_program
from ptxgen.problem.device import DEVICES, device
from ptxgen.problem.registry import parse
from tests.cases import SOURCES
from tests.cases.columns import random_columns
from tests.cases.simt import problem
from tests.lowered import first_violation, legal, rejections, require, rules

H200 = device("h200")
GOOD = "vec_a=4 vec_b=4 vec_c=4"
P = Gemm(512, 512, 512, "TN")
NT = Gemm(512, 512, 512, "NT")

GROUP = lower(GroupedGemm(((64, 64, 64), (32, 32, 128))))
STEPS = "A:f32[i,k];B:f32[k,j];where(i,j){reduce(k){accum argmin=A[i,k]+B[k,j];}C[i,j]=accum;}"
PAIRS_OF_KEYS = (
    "A:f32[i,k];B:f32[k,j];input0:s32[i];input1:s32[j];accum:f32;"
    "where(i,j)when(input0[i]==input1[j]){reduce(k){accum+=A[i,k]*B[k,j];}%s+=accum;}"
)
JOIN = lower(Task(64, 64, 64, text=PAIRS_OF_KEYS % "C[i]", sorted_keys=True))
ORDERED_JOIN = lower(
    Task(
        64,
        64,
        64,
        text=PAIRS_OF_KEYS % "C[input0[i],input1[j]]",
        groups="9,9",
        sorted_keys=True,
        deterministic=True,
    )
)
MAX_PLUS = lower(
    Task(
        64,
        64,
        64,
        text="A:f32[i,k];B:f32[k,j];accum:f32;where(i,j){reduce(k){accum=max(accum,A[i,k]+B[k,j]);}C[i,j]=accum;}",
    )
)
#: minima and maxima of elements, which pairs of columns compute
MIN_MAX = {
    dtype: lower(Task(64, 64, 64, dtype=dtype, text=canonical(semiring_program("min_max", dtype))))
    for dtype in ("f16", "s16")
}
POSITIONS = lower(Task(64, 64, 64, text=Task.text_of(roles_of(program(STEPS)))))

#: a row of the table -> problem, configuration that breaks it and none before it, device, words of the message
BREAKS = {
    "capabilities": [
        (
            lower(Conv(1, 2, 8, 8, 2, 3, 3)),
            "family=skinny ms=2 ns=4 ml=2 nl=4 u=64 kl=2 lanes_long=1 long_n=1",
            "h200",
            "family skinny lacks operands addressed through offset tables",
        ),
        (
            GROUP,
            "family=skinny ms=2 ns=4 ml=2 nl=4 u=64 kl=2 lanes_long=1 long_n=1",
            "h200",
            "families for this problem: simt, mma",
        ),
    ],
    "offset_table_end": [
        (lower(Conv(1, 4, 8, 8, 4, 3, 3, padding=1)), "u=256 cp_async_a=0 vec_c=1", "h200", "stages=3 of u=256")
    ],
    "simt_positions": [
        (POSITIONS, "ms=2 ns=2 ml=16 nl=16 u=16 kl=2", "h200", "kl=2: a reduction to positions"),
    ],
    "positions": [
        (POSITIONS, "ms=2 ns=2 ml=16 nl=16 u=16 kg=2 splitk=workspace", "h200", "kg=2: a reduction to positions"),
    ],
    "grouped_slices": [(GROUP, "ms=4 ns=4 ml=32 nl=32 kg=2 splitk=workspace", "h200", "kg=2, splitk=")],
    "stream_k": [
        (P, "stream_k=1 kg=2", "h200", "stream_k=1, kg=2"),
        (P, "stream_k=1 pdl=on_exit", "h200", "pdl=on_exit, operand_path_a="),
        (P, "stream_k=1 stages=0 cp_async_a=0 cp_async_b=0 fragment_prefetch=0", "h200", "stages=0, pdl="),
        (Gemm(64, 64, 64, "NN", "f32", batch=2), "stream_k=1", "h200", "single products of matrices"),
        (
            Gemm(64, 64, 1 << 18, "NT", "s8"),
            "family=mma ms=32 ns=32 u=64 vec_a=16 vec_b=16 stream_k=1",
            "h200",
            "of K up to 131072",
        ),
        (GROUP, "ms=4 ns=4 ml=32 nl=32 kg=2 splitk=last_cta stream_k=1", "h200", "stream_k=1, kg=2"),
        (
            lower(GroupedGemm(((64, 64, 64),) * 2, jagged="m")),
            "ms=4 ns=4 ml=32 nl=32 stream_k=1",
            "h200",
            "stream_k=1, kg=1",
        ),
    ],
    "l2_prefetch": [
        (P, "l2_prefetch=1", "h200", "l2_prefetch=1, kg=1, stream_k=0: only whole tiles of groups"),
        (GROUP, "ms=4 ns=4 ml=32 nl=32 stream_k=1 l2_prefetch=1", "h200", "stream_k=1: only whole tiles"),
    ],
    "listed_tiles": [
        (P, "listed_tiles=1", "h200", "listed_tiles=1, stages=3, kg=1, pdl=off, raster_group=1: the list of tiles"),
        (JOIN, "listed_tiles=1 kg=2 splitk=workspace", "h200", "listed_tiles=1, stages=3, kg=2"),
        (JOIN, "listed_tiles=1 raster_group=8", "h200", "raster_group=8: the list of tiles"),
        (ORDERED_JOIN, "ms=4 ns=4 ml=32 nl=32 listed_tiles=1", "h200", "the list of tiles"),
    ],
    "output_dtype": [
        (Gemm(64, 64, 64, "NT", "f16", out="e4m3"), "cp_async_a=0 cp_async_b=0", "a100", "e4m3 need sm_89")
    ],
    "axis": [
        (P, "ms=3", "h200", "ms=3"),
        (P, "ml=48", "h200", "ml=48"),
        (P, "vec_c=0", "h200", "vec_c=0"),
        (P, "u=-8", "h200", "u=-8"),
    ],
    "range": [
        (P, "stages=-1", "h200", "stages=-1"),
        (P, "stages=9", "h200", "stages=9"),
        (P, "kg=0", "h200", "kg=0"),
        (P, "kg=65536", "h200", "kg=65536"),
        (P, "lanes_m=64", "h200", "lanes_m=64"),
        (P, "deferred_sts=2", "h200", "deferred_sts=2"),
        (P, "raster_group=0", "h200", "raster_group=0"),
        (P, Config(splitk=5), "h200", "splitk=5"),
        (P, "min_ctas_per_sm=0", "h200", "min_ctas_per_sm=0"),
        (P, Config(bounds=3), "h200", "bounds=3"),
        (P, Config(pdl=4), "h200", "pdl=4 must be off, on_exit, on_start, within_launch"),
        (P, Config(mma_order=3), "h200", "mma_order=3"),
        (P, "fragment_prefetch=-1", "h200", "fragment_prefetch=-1"),
    ],
    "simt_dtype": [
        (Gemm(512, 512, 512, "TN", "f32", "tf32"), "", "h200", "f32 summed in tf32"),
        (Gemm(512, 512, 512, "TN", "s8"), "", "h200", "s8 summed in s32"),
        (Gemm(512, 512, 512, "TN", "bf16"), "cp_async_a=0 cp_async_b=0", "t4", "sm_75"),
    ],
    "simt_tile_m": [(P, "ms=8 lanes_m=16", "h200", "ml=64 must be a multiple of lanes_m·ms=16·8")],
    "simt_tile_n": [(P, "ns=16 lanes_m=4", "h200", "nl=64 must be a multiple of 32/lanes_m·ns=32/4·16")],
    "simt_depth": [
        (P, "kl=8", "h200", "u=8 over kl=8 leaves 1 steps"),
        (P, "ks=16", "h200", "ks=16"),
        (P, "prefetch_k=7", "h200", "prefetch_k=7"),
        (P, "prefetch_k=-1", "h200", "prefetch_k=-1"),
        (P, "u=2 kl=4", "h200", "kl=4"),
    ],
    "simt_stages": [
        (P, "stages=1", "h200", "stages=1"),
        (P, "u=1", "h200", "u=1"),
        (P, "stages=0", "h200", "stages=0"),
        (P, "stages=0 cp_async_a=0 cp_async_b=0", "h200", "fragment_prefetch=0"),
        (P, "stages=0 cp_async_a=0 cp_async_b=0 fragment_prefetch=0 kl=2", "h200", "kl=1"),
    ],
    "simt_kmajor_smem_a": [
        (P, "kmajor_smem_a=1", "h200", "kmajor_smem_a"),
        (NT, "kmajor_smem_a=1 u=4", "h200", "u=4"),
        (NT, "kmajor_smem_a=1 u=32 kl=16", "h200", "kmajor_smem_a"),
        (NT, "kmajor_smem_a=1 vec_a=8", "h200", "vec_a=8"),
        (
            Gemm(64, 64, 64, "NT", "f16", "f16"),
            "kmajor_smem_a=1 cp_async_a=0 cp_async_b=0",
            "h200",
            "4 or 8 bytes",
        ),
    ],
    "simt_kmajor_smem_b": [
        (P, "kmajor_smem_b=1", "h200", "kmajor_smem_b"),
        (NT, "kmajor_smem_b=1 u=64", "h200", "u=64"),
        (NT, "kmajor_smem_b=1 vec_b=8", "h200", "vec_b=8"),
    ],
    "simt_f16x2": [
        (Gemm(64, 64, 64, "TN", "f16", "f16"), "ms=1 ns=8 ml=32 nl=64", "h200", "ms=1"),
        (Gemm(64, 64, 64, "TN", "f16", "f16"), "ms=8 ns=1 ml=64 nl=32", "h200", "ns=1"),
    ],
    "simt_gated": [
        (
            Gemm(64, 64, 64, "TN", epilogue="swiglu"),
            "ms=8 ns=1 ml=64 nl=32 vec_a=1 vec_b=1 vec_c=2",
            "h200",
            "two adjacent sums of a thread; it takes ns of 2 or more",
        ),
        (
            Gemm(64, 64, 64, "TT", epilogue="swiglu"),
            "ms=8 ns=8 ml=64 nl=64 lanes_m=4 vec_a=1 vec_b=1 vec_c=2 u=8 kmajor_smem_b=1",
            "h200",
            "kmajor_smem_b=1: a gated activation",
        ),
    ],
    "simt_column_pairs": [
        (
            P,
            "column_pairs=1",
            "h200",
            "column_pairs=1, ns=8, stages=3: pairs of columns need steps on f16, bf16, s16 or",
        ),
        (MAX_PLUS, "column_pairs=1", "h200", "A and B alone, with the results"),
        (MIN_MAX["f16"], "column_pairs=1 ns=1 nl=32 vec_a=1 cp_async_a=0 cp_async_b=0", "h200", "column_pairs=1, ns=1"),
        (MIN_MAX["f16"], "column_pairs=1 vec_a=1 cp_async_a=0 cp_async_b=0", "t4", "instructions of sm_75"),
        (MIN_MAX["s16"], "column_pairs=1 vec_a=1 cp_async_a=0 cp_async_b=0", "a100", "s16, u16: from sm_90 on"),
    ],
    "simt_vec_a": [
        (Gemm(510, 512, 512, "TN"), "vec_a=4", "h200", "vec_a=4 exceeds 2, the limit by A's alignment"),
        (Gemm(512, 512, 512, "TN", aligned_a=8), "vec_a=4", "h200", "exceeds 2, the limit"),
        (Gemm(512, 512, 510, "NN"), "vec_a=4 cp_async_a=0", "h200", "vec_a=4"),
        (NT, "vec_a=4 u=2 cp_async_a=0 kl=1 ks=1", "h200", "vec_a=4"),
    ],
    "simt_vec_b": [
        (Gemm(512, 510, 512, "TN"), "vec_b=4", "h200", "vec_b=4 exceeds 2, the limit by B's alignment"),
        (Gemm(512, 512, 512, "TN", ldb=514), "vec_b=4", "h200", "exceeds 2, the limit"),
    ],
    "simt_cp_async_a": [
        (P, "cp_async_a=1", "t4", "sm_80"),
        (NT, "vec_a=4 cp_async_a=1", "h200", "vec_a=1 where it transposes"),
        (Gemm(64, 64, 64, "TN", "f16"), "cp_async_a=1 vec_a=8", "h200", "no conversion"),
        (Gemm(64, 64, 64, "TN", "f16", "f16"), "cp_async_a=1 vec_a=1", "h200", "4 to 16 bytes"),
    ],
    "simt_cp_async_b": [
        (P, "cp_async_a=0 cp_async_b=1", "t4", "sm_80"),
        (NT, "vec_b=4 cp_async_a=0 cp_async_b=1", "h200", "vec_b=1"),
    ],
    "simt_loads_a": [
        (
            NT,
            "ms=8 ns=2 ml=128 nl=16 u=32 ks=2 kl=8 cp_async_a=0 vec_a=2 lanes_m=8",
            "h200",
            "the 2048 loads of A's tile, 4 side by side",
        )
    ],
    "simt_loads_b": [
        (
            NT,
            "ms=8 ns=8 ml=32 nl=64 kmajor_smem_a=1 kmajor_smem_b=1 vec_a=2 lanes_m=4",
            "h200",
            "512 loads of B's tile, 8 side by side, do not split evenly over 32 threads",
        )
    ],
    "simt_operand_path": [
        (P, "operand_path_b=realign", "h200", "operand_path_b=realign: direct, or pack for plain matrices"),
        (
            Gemm(512, 512, 512, "NN", "f64"),
            "operand_path_a=pack",
            "h200",
            "elements of 2 or 4 bytes",
        ),
        (P, "operand_path_a=pack kg=4 splitk=flag_red", "h200", "not with kg=4 of splitk=flag_red"),
        (
            Gemm(1 << 16, 64, 1 << 16, "NN"),
            "operand_path_a=pack",
            "h200",
            "17179869184 bytes of packed operands, less than 2^34",
        ),
    ],
    "simt_deferred_sts": [
        (P, "deferred_sts=1", "h200", "deferred_sts=1 needs an operand that is copied through registers")
    ],
    "pdl": [
        (P, "pdl=on_exit cp_async_a=0 cp_async_b=0", "a100", "from sm_90 on; a100 is sm_80"),
    ],
    "threads": [(P, "ms=2 ns=2 ml=128 nl=128 lanes_m=8 vec_a=1", "h200", "4096 threads a block; the limit is 1024")],
    "vec_c": [
        (Gemm(512, 510, 512, "TN"), "vec_c=4", "h200", "vec_c=4 exceeds 2, the limit by C's alignment and rows"),
        (Gemm(512, 512, 512, "TN", ldc=513), "vec_c=2", "h200", "exceeds 1, the limit"),
        (P, "ms=8 ns=1 ml=256 nl=2 lanes_m=16 vec_c=4 epilogue_smem=1", "h200", "or 2, a row of the tile"),
    ],
    "gated": [
        (
            Gemm(512, 512, 512, "TN", "f16", epilogue="swiglu"),
            "vec_c=1 cp_async_a=0 cp_async_b=0",
            "h200",
            "it takes vec_c of 2 or more",
        )
    ],
    "shared_memory": [
        (
            P,
            "ml=256 nl=256 u=64 stages=2 ms=16 ns=16",
            "h200",
            "262144 bytes of shared memory; h200 has 232448 a block",
        ),
        (P, "stages=8 u=64 cp_async_a=0 cp_async_b=0", "t4", "t4 has 65536"),
    ],
    "min_ctas_per_sm": [
        (P, "min_ctas_per_sm=33", "h200", "min_ctas_per_sm=33 blocks of 64 threads"),
        (P, "min_ctas_per_sm=4 u=64 stages=2", "h200", "65536 bytes do not fit"),
    ],
    "registers": [
        (P, "ms=16 ns=16 ml=128 nl=128", "h200", "about 418 registers"),
        (P, "min_ctas_per_sm=16", "h200", "min_ctas_per_sm=16"),
        (MAX_PLUS, "ms=16 ns=8 ml=128 nl=128 u=8 stages=2", "h200", "about 290 registers"),
    ],
    "register_margin": [
        (
            Gemm(8, 636, 272, "NN", "f16", "f16"),
            "ms=8 ns=4 ml=128 nl=16 u=32 ks=2 cp_async_a=0 vec_a=4 vec_b=4 vec_c=4 lanes_m=16 lane_interleave=1 fragment_prefetch=0",
            "h200",
            "about 256 registers a thread, and 17 in reserve; h200 has 65536",
        )
    ],
    "sum_a": [
        (Gemm(64, 64, 64, "TN", "f16", "f16", epilogue="sum_a"), "cp_async_a=0 cp_async_b=0", "h200", "four bytes"),
        (Gemm(64, 64, 64, "TN", epilogue="sum_a", deterministic=True), "kl=2", "h200", "deterministic=1"),
    ],
    "sum_columns": [
        (
            Gemm(64, 64, 64, "TN", epilogue="sum_columns"),
            changes,
            "h200",
            "sum_columns takes an epilogue from registers",
        )
        for changes in ("epilogue_smem=1", "kg=2 splitk=workspace", "kl=2")
    ],
    "bounds": [
        (
            Gemm(512, 512, 509, "TN"),
            "bounds=none",
            "h200",
            "m, n, k=512, 512, 509 to be multiples of ml, nl, u=64, 64, 8",
        ),
        (Gemm(510, 512, 512, "TN"), "bounds=none", "h200", "510"),
        (Gemm(512, 16, 512, "TN"), "bounds=none", "h200", "16"),
    ],
    "kg": [
        (Gemm(64, 64, 20, "TN"), "kg=4", "h200", "kg=4 slices; K=20 has fewer blocks of u=8"),
        (Gemm(64, 64, 0, "TN"), "kg=2", "h200", "K=0"),
    ],
    "splitk": [
        (P, "splitk=flag_red", "h200", "splitk=flag_red with kg=1"),
        (P, "kg=2 splitk=last_cta", "h200", "splitk=last_cta"),
        (Gemm(64, 64, 64, "TN", "f16"), "kg=2 cp_async_a=0 cp_async_b=0", "h200", "16-bit C"),
        (Gemm(64, 64, 64, "TN", deterministic=True), "kg=2 splitk=flag_red", "h200", "deterministic"),
    ],
    "grid": [
        (Gemm(64, 64 * 65536, 64, "TN"), "raster_group=1", "h200", "65536 along N"),
        (Gemm(2**31 - 64, 64 * 128, 64, "TN"), "raster_group=8", "h200", "33554431 tiles along M"),
    ],
}


@pytest.fixture(scope="module")
def drawn():
    """Random rows of every family on random problems and devices, with the rule that each row breaks."""
    rng, out = np.random.default_rng(7), []
    for n in range(36):
        d = DEVICES[str(rng.choice(["h200", "t4", "a100", "rtx4090", "emulated"]))]
        p = problem(rng, 300, d)
        families = [FAMILIES[n % len(FAMILIES)]] if n % 9 else FAMILIES
        parts = []
        for family in families:
            part = random_columns(family, rng, 3000 // len(families))
            arbitrary = rng.random(len(part)) < 0.15
            for name in ("ms", "ml", "u", "kl", "vec_b", "stages", "prefetch_k", "raster_group", "bounds", "kg"):
                if name in part.columns:
                    other = np.where(arbitrary, rng.integers(-3, 20, len(part)), part.column(name))
                    part = part.replace(**{name: other})
            parts.append(part)
        c = Columns.concat(parts)
        c = c.take(rng.permutation(len(c)))
        out.append((p, c, d, rejections(p, c, d)))
    return out


def test_integers_and_columns_break_the_same_rule(drawn):
    rng = np.random.default_rng(0)
    for p, c, d, broken in drawn:
        picked = [rng.integers(0, len(c), 60), *(np.flatnonzero(broken == i)[:6] for i in np.unique(broken))]
        for i in np.concatenate(picked):
            config = c.row(int(i))
            rule = first_violation(p, config, d)
            assert (RULES.index(rule) if rule else -1) == broken[i], f"{p.key()} | {config} | {d.name}"
        assert ((broken < 0) == legal(p, c, d)).all()


def test_every_rejection_has_a_message(drawn):
    for p, c, d, broken in drawn:
        for i in np.unique(broken[broken >= 0]):
            config = c.row(int(np.flatnonzero(broken == i)[0]))
            with pytest.raises(ConfigError) as caught:
                require(p, config, d)
            assert caught.value.rule == RULES[i].name
            text = str(caught.value)
            assert text.startswith(f"config breaks rule {RULES[i].name!r}: ")
            assert "{" not in text


def test_legal_configurations_can_be_generated():
    """Legal means that there is a plan and a text; also for values that the search does not visit."""
    for where in ("h200", "t4", "rtx4090"):
        d = device(where)
        for p, c in (*SOURCES["simt"].cases(3, 15, d), *SOURCES["simt_wide"].cases(4, 15, d)):
            assert first_violation(p, c, d) is None
            assert render(plan_for(p, c, d)).text


def test_every_rule_has_an_example():
    assert set(BREAKS) | {"simt_warps"} == {r.name for r in RULES if r.family in ("", "simt")}
    names = [(r.name, r.family) for r in RULES]
    assert len(set(names)) == len(names)
    assert all(r.message for r in RULES)


@pytest.mark.parametrize(
    ("name", "p", "text", "where", "words"),
    [(name, *case) for name, cases in BREAKS.items() for case in cases],
    ids=lambda x: x.key() if isinstance(x, Gemm) else str(x),
)
def test_rule_rejects_its_examples(name, p, text, where, words):
    config = text if isinstance(text, Config) else parse_config(text)
    rule = first_violation(p, config, device(where))
    assert rule is not None
    assert rule.name == name
    with pytest.raises(ConfigError) as caught:
        require(p, config, device(where))
    assert words in str(caught.value)
    with pytest.raises(ConfigError):
        plan_for(p, config, device(where))


def test_neighbours_of_rejected_configurations_are_legal():
    """The configurations that the rejected ones above are variations of."""
    for p, text in (
        (P, ""),
        (P, GOOD),
        (NT, "kmajor_smem_a=1 kmajor_smem_b=1"),
        (P, "bounds=none"),
        (P, "kg=2"),
        (P, "kg=2 splitk=flag_red"),
        (P, "kg=2 splitk=workspace"),
        (P, "min_ctas_per_sm=6"),
        (P, "stages=8"),
        (P, "deferred_sts=1 cp_async_a=0"),
    ):
        assert first_violation(p, parse_config(text), H200) is None, text
    assert first_violation(Gemm(0, 0, 0), Config(), H200) is None
    assert first_violation(lower(parse("gemm 1,1,1 TT f64")), Config(), H200) is None


def test_largest_legal_grids():
    """The largest legal shapes: grid and raster arithmetic stay within 32 bits."""
    for m, n in ((2**31 - 1, 64), (64, 2**31 - 1), (1 << 20, 1 << 20), (2**31 - 1, 1 << 13)):
        for raster in (1, 8, 16):
            p, c = Gemm(m, n, 8, "TN"), Config(raster_group=raster)
            if first_violation(p, c, H200) is None:
                x, y, z = plan_for(p, c, H200).launch(lower(p)).steps[0].grid
                assert 1 <= x < 2**31
                assert 1 <= y <= 65535
                assert 1 <= z <= 65535
                assert raster == 1 or -(-n // 64) * raster < 1 << 32


def test_order_of_the_table():
    """Rules without which there is no geometry come first: later ones may divide by the values that they accept."""
    assert tuple(RULES[: len(rules.FIRST)]) == rules.FIRST
    assert re.fullmatch(r"(axis|range)", rules.FIRST[0].name)
