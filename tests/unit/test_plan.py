"""Plans: the launches of a problem, their arguments, and the header."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import is_dataclass
from functools import cache

import pytest

from ptxgen.codegen.config.config import SPLIT_FLAG, SPLIT_MEMSET, SPLIT_WORKSPACE, Config, parse_config
from ptxgen.codegen.launches.c_kernels import AUX_KERNEL_THREADS
from ptxgen.codegen.parts.part import Allocator
from ptxgen.codegen.plan import Plan, neutral
from ptxgen.codegen.render import render
from ptxgen.emulator import Machine
from ptxgen.errors import ConfigError
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.registry import FAMILIES
from ptxgen.families.simt.plan import SimtPlan
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from tests.cases import SOURCES
from tests.lowered import geometry

H200 = device("h200")
COUNT = 60
STATIC_SHARED = 48 << 10  #: bytes of shared memory that a launch may have without an attribute of the kernel


@cache
def pairs() -> list[tuple[Gemm, Config]]:
    return [*SOURCES["simt"].cases(21, COUNT // 2, H200), *SOURCES["simt_wide"].cases(22, COUNT // 2, H200)]


def arguments(step, packed=()) -> dict[str, object]:
    """The parameters of a launch by their names in the kernel. ``packed``: those of packed operands."""
    names = ("A", "B", "C", "W", "M", "N", "K", "lda", "ldb", "ldc", "slice_k", "alpha", "beta", *packed)
    return dict(zip(names, [v for _, v in step.arguments], strict=True))


def test_families_have_plans():
    assert FAMILIES["simt"].plan(Gemm(64, 64, 64), Config()) is SimtPlan
    assert type(plan_for(Gemm(64, 64, 64), Config(), H200)) is SimtPlan
    with pytest.raises(ConfigError, match="family is one of simt, mma") as caught:
        Config(family="nonsense")
    assert caught.value.rule == "axis"


def test_plans_are_composed_of_parts():
    """No plan derives from another one or from two classes, and every part is a frozen record."""
    assert Plan.__subclasses__()
    for plan in Plan.__subclasses__():
        assert plan.__bases__ == (Plan,)
        assert not plan.__subclasses__()
    for p, c in pairs()[:4]:
        parts = plan_for(p, c, H200).parts
        assert len(parts) > 5
        assert all(is_dataclass(part) and part.__dataclass_params__.frozen for part in parts)


def test_regions_of_the_workspace_are_aligned_and_disjoint():
    workspace = Allocator()
    sizes = [(5, 1), (3, 128), (0, 4), (4, 4)]
    regions = [workspace.claim(size, "", alignment) for size, alignment in sizes]
    assert [r.offset for r in regions] == [0, 128, 132, 132]
    assert workspace.bytes == 136
    assert not workspace.zeroed
    workspace.claim(1, "flags", zeroed=True)
    assert workspace.zeroed
    assert workspace.regions[-1].offset == 136


@pytest.mark.every(2)
@pytest.mark.parametrize("n", range(COUNT))
def test_launches_match_their_kernels(n):
    """Entries exist, blocks are as the kernel declares, parameters have the size that it reads."""
    p, c = pairs()[n]
    plan = plan_for(p, c, H200)
    source = render(plan)
    module = Machine().load(source.text)
    steps = plan.launch(lower(p)).steps
    assert [s.entry for s in steps if s.entry == plan.entry] == [plan.entry]
    assert {s.entry for s in steps} == set(source.entries) == set(module.entries)
    values = {"A": 1, "B": 2, "C": 3, "W": 4, "alpha": 1.0, "beta": 0.0}
    for s in steps:
        entry = module[s.entry]
        assert s.block == entry.maxntid
        assert len(s.pack(values)) == entry.param_bytes
        assert all(x >= 1 for x in s.grid)
        assert s.grid[1] <= 65535
        assert s.grid[2] <= 65535
        assert s.shared <= max(source.shared, STATIC_SHARED)
    assert source.shared <= H200.shared_block
    assert source.registers == plan.geometry.registers


@pytest.mark.parametrize("n", range(COUNT))
def test_grid_covers_every_tile_and_slice_once(n):
    p, c = pairs()[n]
    c = c.replace(stream_k=0)  # the grid of shares counts blocks, not tiles
    plan = plan_for(p, c, H200)
    launch = plan.launch(lower(p))
    main = next(s for s in launch.steps if s.entry == plan.entry)
    g = geometry(p, c)
    tiles = -(-p.m // c.ml), -(-p.n // c.nl)
    assert main.grid == ((*tiles, g.slices) if c.raster_group == 1 else (tiles[0] * tiles[1], 1, g.slices))
    assert main.block == (g.threads, 1, 1)
    assert main.shared == g.shared
    a = arguments(main, [name for each in plan.packing.product_parameters for name in each.names])
    product = plan.packing.product_problem(lower(p))
    assert [a[x] for x in ("M", "N", "K")] == [p.m, p.n, p.k]
    assert [a[x] for x in ("lda", "ldb", "ldc")] == [product.operand(x).access.ld for x in "ABC"]
    assert [a[x] for x in ("A", "B", "C", "W", "alpha", "beta")] == ["A", "B", "C", "W", "alpha", "beta"]
    slices, slice_k = plan.scheduler.k_slices(p)
    assert (slices, slice_k) == (g.slices, g.slice_k)
    assert a["slice_k"] == slice_k
    assert launch.workspace >= g.workspace
    names = [s.entry.removeprefix(plan.entry) for s in launch.steps]
    expected = {None: [""], SPLIT_MEMSET: ["_scale", ""], SPLIT_FLAG: [""], SPLIT_WORKSPACE: ["", "_reduce"]}
    packing = ["_pack"] * bool(plan.packing.names)
    assert names == packing + expected[c.splitk if c.kg > 1 else None]
    assert launch.zeroed == (c.kg > 1 and c.splitk == SPLIT_FLAG)
    if launch.zeroed:
        assert launch.workspace == 4 * tiles[0] * tiles[1]
    elif packing:
        assert launch.workspace - g.workspace in range(128)  # the first copy starts at a multiple of 128 bytes
    elif c.splitk == SPLIT_WORKSPACE:
        assert launch.workspace == slices * p.m * p.n * max(4, p.accumulator.bytes)
    else:
        assert launch.workspace == 0


def test_auxiliary_kernels_cover_each_vector_of_c_once():
    """The grid of the scale and reduction kernels, as templates/epilogue/splitk_kernels.mako computes it."""
    for m, n, c in (
        (1, 1, "vec_c=1"),
        (5, 300, "vec_c=4"),
        (700, 3, "vec_c=1"),
        (64, 1030, "vec_c=2"),
        (3, 5000, "vec_c=4"),
    ):
        p = Gemm(m, n, 64, "TN")
        plan = plan_for(p, parse_config(f"kg=4 {c}"), H200)
        step = plan.launch(lower(p)).steps[0]
        shift = step.arguments[5][1]
        seen: Counter[tuple[int, int]] = Counter()
        rows = AUX_KERNEL_THREADS >> shift
        for x in range(step.grid[0]):
            for y in range(step.grid[1]):
                for t in range(AUX_KERNEL_THREADS):
                    q = ((t & (1 << shift) - 1) + (x << shift)) * plan.c.vec
                    if q < n:
                        seen.update((r, q) for r in range(y * rows + (t >> shift), m, step.grid[1] * rows))
        assert seen == Counter({(r, q): 1 for r in range(m) for q in range(0, n, plan.c.vec)})


def test_auxiliary_kernels_of_tall_matrices_stay_within_the_grid():
    p = Gemm(1 << 30, 1, 64, "TN")
    for split in (SPLIT_MEMSET, SPLIT_WORKSPACE):
        steps = plan_for(p, Config(kg=4, splitk=split), H200).launch(lower(p)).steps
        assert all(s.grid[1] <= 65535 for s in steps if s.entry.endswith(("scale", "reduce")))


def test_empty_problems_launch_nothing():
    for m, n in ((0, 64), (64, 0), (0, 0)):
        p = Gemm(m, n, 64)
        assert plan_for(p, Config(), H200).launch(lower(p)).steps == ()
    p = Gemm(64, 64, 0)
    (step,) = plan_for(p, Config(), H200).launch(lower(p)).steps  # C = beta C
    assert step.grid == (1, 1, 1)
    assert plan_for(p, Config(), H200).scheduler.k_slices(p) == (1, 0)


def test_k_near_its_limit():
    p = Gemm(16, 16, 2**31 - 1, "TN")
    for kg in (1, 7, 65535):
        plan = plan_for(p, Config(kg=kg, u=32, ms=4, ns=4), H200)
        slices, slice_k = plan.scheduler.k_slices(p)
        assert slice_k * slices >= p.k > slice_k * (slices - 1)
        assert slice_k + 31 < 1 << 32  # what 32-bit sums of the kernel hold
        assert slices * slice_k < 1 << 32


def test_kernel_serves_every_shape_of_its_class():
    """The text depends on the class of a problem, not on its extents."""
    c = parse_config("vec_a=4 vec_b=4 vec_c=4 kg=2")
    texts = {
        render(plan_for(Gemm(m, n, k, "TN"), c, H200)).digest for m, n, k in ((64, 64, 64), (4, 128, 999), (8, 8, 16))
    }
    assert len(texts) == 1
    assert render(plan_for(Gemm(64, 64, 64, "TT"), parse_config("kg=2 vec_c=4"), H200)).digest not in texts


def test_neutral_configuration_serves_every_number_of_slices():
    p = Gemm(64, 64, 4096, "TN")
    for text in ("", "kg=2", "kg=64 splitk=flag_red", "kg=3 splitk=workspace"):
        c = parse_config(text)
        assert render(plan_for(p, c, H200)).digest == render(plan_for(p, neutral(c), H200)).digest
    assert neutral(Config(kg=64)) == Config(kg=2)
    assert neutral(Config(kg=1)) == Config(kg=1)


@pytest.mark.parametrize("n", range(0, COUNT, 3))
def test_command_in_the_header_emits_the_same_text(n):
    """Except for leading dimensions and alignment, which the command line lacks: they only limit vectors."""
    p, c = pairs()[n]
    plan = plan_for(p, c, H200)
    words = shlex.split(plan.command)
    assert words[:5] == ["python", "-m", "ptxgen", "emit", "gemm"]
    flags = dict(zip(words[5::2], words[6::2], strict=True))
    m, k_n, k = (int(x) for x in flags["--shape"].split(","))
    again = Gemm(m, k_n, k, flags["--layout"], flags["--dtype"], flags.get("--compute", ""), out=flags.get("--out", ""))
    assert parse_config(flags["--config"]) == c
    assert flags["--device"] == "h200"
    same = Gemm(p.m, p.n, p.k, p.layout, p.dtype, p.compute, out=p.out)
    assert again == same
    if all(x <= y for x, y in zip(p.vectors, same.vectors, strict=True)):
        deterministic = p.deterministic and c.kg > 1
        if not deterministic:
            assert render(plan_for(again, c, H200)).digest == render(plan).digest


def test_vectors_of_c_are_no_wider_than_16_bytes_of_sums():
    for p, c in pairs():
        plan = plan_for(p, c, H200)
        assert plan.c.vec * plan.arithmetic.bytes <= 16
        assert plan.c.vec <= c.vec_c
        assert c.nl % plan.c.vec == 0
        assert plan.epilogue.row_vectors * plan.c.vec == c.nl
        assert plan.epilogue.gather_rounds * plan.threads >= plan.epilogue.gather_loads
