"""The legal space: nothing illegal in it, nothing legal left out, one row a kernel."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from ptxgen import rules, space
from ptxgen.config import AXES, AXIS, Columns, Config
from ptxgen.device import device
from ptxgen.generate import plan_for
from ptxgen.geometry import ceil_div, geometry, warp_rows
from ptxgen.problem import Gemm
from ptxgen.render import render
from ptxgen.sampler import Categorical

H200, T4 = device("h200"), device("t4")

PROBLEMS = [
    Gemm(2560, 16, 2560, "TN"),
    Gemm(64, 48, 1000, "NT"),
    Gemm(777, 1000, 1333, "NT"),
    Gemm(130, 66, 514, "TT", "f64"),
    Gemm(256, 256, 512, "NN", "f16"),
    Gemm(256, 250, 512, "NT", "f16", "f16"),
    Gemm(96, 96, 4096, "NN", deterministic=True),
    Gemm(300, 200, 40, "NN", lda=41, aligned_b=4),
]
SMALL = {
    "ms": (4, 8), "ns": (2, 4), "ml": (32, 128), "nl": (64,), "u": (8, 32), "ks": (1, 2), "kl": (1, 4),
    "stages": (2, 4),
}  # fmt: skip


def plain(c: Columns) -> Columns:
    """The same rows without what a space keeps beside them."""
    return Columns({a.name: c.columns[a.name] for a in AXES}, len(c))


def configs(c: Columns) -> set[Config]:
    return {c.row(i) for i in range(len(c))}


@pytest.fixture
def small_axes(monkeypatch):
    for name, values in SMALL.items():
        monkeypatch.setitem(AXIS, name, replace(AXIS[name], values=values))
    space._base.cache_clear()
    yield
    space._base.cache_clear()


def ways(p: Gemm, name: str) -> list[dict[str, int]]:
    """What the axes of an operand may be: the widest loads that copying and keeping allow."""
    kmajor = p.layout[0] == "N" if name == "a" else p.layout[1] == "T"
    widest = p.vectors["ab".index(name)]
    out = []
    for copy, keep in product((0, 1), (0, 1) if kmajor else (0,)):
        vec = min(widest, 16 // p.accumulator.bytes) if keep else 1 if copy and kmajor else widest
        out.append({f"copy_{name}": copy, f"keep_{name}": keep, f"vec_{name}": vec})
    return out


def by_hand(p: Gemm, d) -> set[Config]:
    """Every configuration of the stated axes that breaks no rule, one at a time."""
    found = []
    for values in product(*SMALL.values()):
        c = Config(**dict(zip(SMALL, values, strict=True)), vec_c=p.vectors[2])
        c = replace(c, wm=int(warp_rows(c)), stream=int(p.k < 512))
        tiles = geometry(p, c).tiles
        c = replace(c, raster=8 if tiles > 2 * d.sms else 1)
        small = c.ml * c.nl < 128 * 128 and 1 < c.wm < 32
        slices = {max(d.sms * w // max(tiles, 1), 1) for w in (1, 2, 3, 4, 6, 8)} | {1}
        for a, b, kg in product(ways(p, "a"), ways(p, "b"), slices):
            free = p.dtype in ("f32", "f64") and not p.deterministic
            full = replace(c, **a, **b, kg=kg, lanes=int(small), split=0 if kg == 1 else 1 if free else 2)
            if full.keep_b and full.kl == 1 and rules.broken(p, replace(full, stage_c=1), d) is None:
                full = replace(full, stage_c=1)
            if rules.broken(p, full, d) is None:
                found.append(full)
    return configs(space.canonical(p, Columns.of(found)))


@pytest.mark.parametrize(("p", "d"), [*((p, H200) for p in PROBLEMS), (PROBLEMS[1], T4)])
def test_candidates_are_the_legal_rows_of_the_product(small_axes, p, d):
    c = space.candidates(p, d)
    found = configs(c)
    assert len(found) == len(c), "a configuration appears twice"
    assert found == by_hand(p, d)


@pytest.mark.parametrize("p", PROBLEMS, ids=lambda p: p.key())
def test_the_whole_space_is_legal_and_canonical(p):
    c = space.candidates(p, H200)
    picked = plain(c.take(np.random.default_rng(0).integers(0, len(c), 20_000)))
    assert len(c) > 1000
    assert rules.legal(p, picked, H200).all()
    again = space.canonical(p, picked)
    for a in AXES:
        assert (again.columns[a.name] == picked.columns[a.name]).all(), a.name


@pytest.mark.parametrize(
    "p", [Gemm(0, 5, 3), Gemm(5, 3, 0), Gemm(1, 1, 1), Gemm(1, 70000, 1, "TT"), Gemm(3, 2, 5, "NT", "f16")]
)
def test_degenerate_problems_have_candidates(p):
    c = space.candidates(p, H200)
    assert len(c)
    assert rules.legal(p, plain(c), H200).all()


def test_reading_lazily_and_by_row_agree():
    c = space.candidates(Gemm(64, 48, 1000, "NT"), H200)
    some = c.take(np.array([5, 0, len(c) - 1]))
    assert [some.row(i) for i in range(3)] == [c.row(5), c.row(0), c.row(len(c) - 1)]
    assert [plain(some).row(i) for i in range(3)] == [some.row(i) for i in range(3)]
    assert (some.replace(ks=1).ks == 1).all()


def test_explain_accounts_for_every_row(small_axes):
    p = Gemm(64, 48, 1000, "NT")
    counts = space.explain(p, H200)
    assert set(counts) <= {r.name for r in rules.RULES}
    assert {"slices", "loads_a", "threads", "registers"} <= set(counts)
    total = 0
    shapes = np.prod([len(SMALL[n]) for n in ("ms", "ns", "ks", "kl", "stages")]) * 16
    for ml, nl, u in product(SMALL["ml"], SMALL["nl"], SMALL["u"]):
        tiles = ceil_div(p.m, ml) * ceil_div(p.n, nl)
        slices = {max(H200.sms * w // tiles, 1) for w in (1, 2, 3, 4, 6, 8)} | {1}
        blocks = ceil_div(p.k, u)
        legal = {ceil_div(p.k, ceil_div(ceil_div(p.k, kg), u) * u) for kg in slices if kg <= blocks}
        total += shapes * len(legal | {kg for kg in slices if kg > blocks})
    assert sum(counts.values()) + len(space.candidates(p, H200)) == total


def test_slices_fill_whole_waves():
    assert space.whole_waves(20, H200).tolist() == [[6, 13, 19, 26, 39, 52, 1]]
    p = Gemm(16, 2560, 2560, "NN")
    c = plain(space.candidates(p, H200))
    tile = (c.ml == 16) & (c.nl == 128) & (c.u == 8)
    # 26 slices of 2560 are 25 of 104
    assert set(np.unique(c.kg[tile])) == {1, 6, 13, 19, 25, 36, 46}


def test_many_tiles_are_not_sliced():
    c = space.candidates(Gemm(4096, 4096, 4096, "TN"), H200)
    big = (c.ml == 128) & (c.nl == 128)
    assert big.any()
    assert (c.kg[big] == 1).all()
    assert (c.raster[big] == 8).all()


def test_deterministic_sums_meet_in_a_workspace():
    c = space.candidates(Gemm(96, 96, 4096, "NN", deterministic=True), H200)
    assert (c.kg > 1).any()
    assert (c.split[c.kg > 1] == 2).all()


def test_no_asynchronous_copies_before_sm_80():
    c = space.candidates(Gemm(512, 512, 512, "NT"), T4)
    assert len(c)
    assert not c.copy_a.any()
    assert not c.copy_b.any()


def test_problems_of_one_class_share_a_base():
    a, b, c = Gemm(2560, 16, 2560, "NN"), Gemm(128, 64, 4096, "NN"), Gemm(128, 63, 4096, "NN")
    assert space.base(a, H200) is space.base(b, H200)
    assert space.base(a, H200) is not space.base(c, H200)


def random_rows(p: Gemm, n: int, seed: int) -> Columns:
    rng = np.random.default_rng(seed)
    return Columns({a.name: rng.choice(np.array(a.values), n) for a in AXES}, n)


def outcomes(p: Gemm, c: Columns, names) -> np.ndarray:
    with np.errstate(all="ignore"):
        g = geometry(p, c)
        chosen = [r for r in rules.RULES if r.name in names]
        assert len(chosen) == len(set(names))
        return np.stack([np.broadcast_to(r.holds(p, c, g, H200), len(c)) for r in chosen])


def test_tile_rules_read_only_tile_axes():
    p, q = Gemm(2560, 16, 2560, "NN"), Gemm(77, 300, 19, "TT", "f64")
    a, b = random_rows(p, 3000, 1), random_rows(p, 3000, 2)
    shared = {n: a.columns[n] for n in (*space.TILE, "wm", "request")}
    assert (outcomes(p, a, space.TILE_RULES) == outcomes(q, b.replace(**shared), space.TILE_RULES)).all()


def test_only_extent_rules_read_extents_and_slices():
    p, q = Gemm(2560, 16, 2560, "NN"), Gemm(64, 4096, 128, "NN")
    assert p.vectors == q.vectors
    a = random_rows(p, 3000, 1)
    b = random_rows(p, 3000, 2)
    mine = [r.name for r in rules.RULES if r.family in (-1, space.SIMT)]
    rest = [n for n in mine if n not in space.EXTENT_RULES or n == "range"]
    mixed = a.replace(kg=b.kg, split=b.split, raster=b.raster, stream=b.stream)
    assert (outcomes(p, a, rest) == outcomes(q, mixed, rest)).all()
    # and those read nothing but what a cell has
    cell = {n: a.columns[n] for n in ("ml", "nl", "u", "kg", "split", "raster", "bounds")}
    names = [n for n in space.EXTENT_RULES if n != "range"]
    assert (outcomes(p, a, names) == outcomes(p, b.replace(**cell), names)).all()


@pytest.mark.parametrize(
    "p",
    [Gemm(256, 256, 512, "NT"), Gemm(255, 257, 129, "TT"), Gemm(256, 256, 512, "NN", "f16"),
     Gemm(256, 256, 512, "TN", "f64"), Gemm(256, 256, 512, "NN", "f16", "f16")],
    ids=lambda p: p.key(),
)  # fmt: skip
def test_canonical_configurations_are_the_same_kernels(p):
    drawn = Categorical.learn(p, H200, wanted=300).sample(60, np.random.default_rng(3))
    mapped = space.canonical(p, drawn)
    assert rules.legal(p, mapped, H200).all()
    pairs = [(drawn.row(i), mapped.row(i)) for i in range(len(drawn))]
    changed = [(a, b) for a, b in pairs if a != b]
    assert len(changed) > 5
    for a, b in changed:
        one, two = plan_for(p, a, H200), plan_for(p, b, H200)
        assert render(one).digest == render(two).digest, f"{a} | {b}"
        assert geometry(p, a).blocks == geometry(p, b).blocks


@pytest.mark.parametrize(
    "p", [Gemm(64, 48, 4096, "NT"), Gemm(256, 256, 512, "NN", "f16", "f16")], ids=lambda p: p.key()
)
def test_refinements_are_different_kernels(p):
    c = space.candidates(p, H200)
    config = c.row(len(c) // 3)
    near = space.refinements(p, H200, config)
    texts = defaultdict(list)
    for x in [config, *configs(near)]:
        texts[render(plan_for(p, x, H200)).digest].append(replace(x, kg=1))
    for same in texts.values():
        assert len(set(same)) == 1, [str(x) for x in same]


def test_refinements_reach_every_axis():
    p = Gemm(512, 512, 4096, "NT")
    config = Config(ml=64, nl=64, u=16, kg=4, split=1, copy_a=0, copy_b=0, vec_a=4, vec_b=4, vec_c=4, wm=4)
    assert rules.broken(p, config, H200) is None
    near = space.refinements(p, H200, config)
    found = configs(near)
    assert rules.legal(p, near, H200).all()
    assert len(found) == len(near)
    assert config not in found
    reached = {name for x in found for name, value in x.items() if value != dict(config.items())[name]}
    assert reached == set(space.SIMT_AXES)
    assert replace(config, ns=4, nl=32, wm=4) in found
    assert any(x.ml == 128 and x.nl == 32 for x in found)
    for kg in (2, 6, 8, 12, 16):
        assert replace(config, kg=kg) in found
    assert replace(config, kg=1, split=0) in found
    assert any(x.split == 2 and x.kg == 4 for x in found)


def test_refinements_of_an_illegal_neighbourhood_stay_legal():
    p = Gemm(3, 5, 7, "TT")
    config = space.candidates(p, H200).row(0)
    near = space.refinements(p, H200, config)
    assert len(near)
    assert rules.legal(p, near, H200).all()


def test_unique_keeps_the_first_of_equals():
    a, b = Config(), Config(ms=4)
    assert [space.unique(Columns.of([b, a, b, a])).row(i) for i in range(2)] == [b, a]
    assert len(space.unique(Columns.of([b, a, b, a]))) == 2


def test_kin_differ_in_stages_and_sets_only():
    b = space.base(Gemm(512, 512, 512, "NT"), H200)
    kin, leads = b.kin, b.leads
    assert (np.bincount(kin[leads]) == 1).all()
    group = np.flatnonzero(kin == kin[len(kin) // 2])
    assert 1 < len(group) <= 6
    c = b.columns.take(group)
    for a in AXES:
        if a.name not in ("ks", "stages", "stage_c", "vec_c"):
            assert len(set(c.columns[a.name].tolist())) == 1, a.name
