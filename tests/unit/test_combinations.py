"""Fewer combinations of parametrized values than their product."""

from __future__ import annotations

from itertools import combinations, product
from types import SimpleNamespace

import pytest

from tests.combinations import covering, left_out

pytest_plugins = ["pytester"]


@pytest.mark.parametrize("lengths", [(3, 4), (4, 8), (2, 2, 5), (4, 2, 2, 2), (3, 3, 3)], ids=str)
@pytest.mark.parametrize("strength", [1, 2])
def test_each_tuple_of_values_is_chosen(lengths: tuple[int, ...], strength: int) -> None:
    chosen = covering(lengths, strength)
    assert chosen <= {*product(*map(range, lengths))}
    for axes in combinations(range(len(lengths)), strength):
        assert {tuple(row[a] for a in axes) for row in chosen} == {*product(*(range(lengths[a]) for a in axes))}
    assert strength > 1 or len(chosen) == max(lengths)


def test_pairs_of_many_axes_are_few() -> None:
    assert len(covering((3, 3, 3), 2)) <= 10
    assert len(covering((2, 2, 2, 2), 2)) <= 6


def collected(**markers: int) -> list[SimpleNamespace]:
    """The tests that pytest makes of a function with the axes a, which is slower, and b."""
    axes = [SimpleNamespace(args=("a", "xyz")), SimpleNamespace(args=("b", [0, 1]))]

    def get(name: str) -> SimpleNamespace | None:
        return SimpleNamespace(args=(markers[name],)) if name in markers else None

    shared = {"parent": SimpleNamespace(nodeid="file"), "originalname": "test", "get_closest_marker": get}
    return [
        SimpleNamespace(params=row, iter_markers=lambda name: axes, **shared)
        for row in product(axes[0].args[1], (0, 1))
    ]


def kept(tests: list[SimpleNamespace]) -> list[tuple[str, int]]:
    out = list(map(id, left_out(tests)))
    return [x.params for x in tests if id(x) not in out]


def test_markers_leave_tests_out() -> None:
    assert kept(collected()) == [*product("xyz", (0, 1))]
    assert kept(collected(each_value=0)) == [("x", 0), ("y", 1), ("z", 0)]
    assert kept(collected(each_pair=0)) == [*product("xyz", (0, 1))]
    assert kept(collected(first=2)) == [("x", 0), ("x", 1)]
    assert kept(collected(every=2)) == [("x", 0), ("y", 0), ("z", 0)]


def test_tests_that_are_asked_for_by_name_run() -> None:
    assert len(kept(collected(each_value=0)[1:])) == 5


def test_order_of_combinations_is_that_of_pytest(pytester: pytest.Pytester) -> None:
    """The axis of the decorator next to the function is the slowest."""
    pytester.makeini("[pytest]\nmarkers = each_value")
    pytester.makeconftest(
        "from tests.combinations import left_out\n"
        "def pytest_collection_modifyitems(items):\n"
        "    out = left_out(items)\n"
        "    items[:] = [x for x in items if x not in out]\n"
    )
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.each_value\n"
        "@pytest.mark.parametrize('b', [0, 1])\n"
        "@pytest.mark.parametrize(('a', 'c'), [('x', 0), ('y', 0), ('z', 0)])\n"
        "def test_each(a, b, c): assert b == 'xyz'.index(a) % 2\n"
    )
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)
