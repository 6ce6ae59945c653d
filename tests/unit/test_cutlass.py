"""CUTLASS as a baseline of grouped products: its text, and what it is given, with a stand-in for its library."""

from __future__ import annotations

import ctypes as ct
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ptxgen.errors import LaunchError, ShapeError, UnavailableError
from ptxgen.operations.grouped import cutlass
from ptxgen.operations.grouped.cutlass import TILES, CutlassGrouped
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime.driver import Timing

ITEMS = ((5, 8, 16), (0, 8, 16), (4, 2, 64), (7, 3, 0))
ORDER = (2, 0, 3)  #: by K, without the empty item
SETS = [{"A": 1 << 20, "B": 2 << 20, "C": 3 << 20}, {"A": 4 << 20, "B": 5 << 20, "C": 6 << 20}]


class StandInDriver:
    """Memory, and one time for each timed list of launches."""

    stream = 77
    device = SimpleNamespace(target="sm_90")

    def __init__(self, *microseconds: float) -> None:
        self.microseconds = list(microseconds)
        self.memory: dict[int, np.ndarray[Any, Any]] = {}

    def allocate(self, size: int) -> int:
        at = (100 + len(self.memory)) << 32
        self.memory[at] = np.zeros(0)
        return at

    def release(self, address: int) -> None:
        del self.memory[address]

    def upload(self, address: int, array: np.ndarray[Any, Any]) -> None:
        self.memory[address] = array.copy()

    def context(self, doing: str) -> Any:
        return nullcontext()

    def synchronize(self) -> None:
        pass

    def time(self, launches: list[Any], timing: Timing) -> list[float]:
        for launch in launches:
            launch()
        return [self.microseconds.pop(0)]


class StandInLibrary:
    """Records calls; tile ``refused`` cannot be launched."""

    def __init__(self, refused: int = -1) -> None:
        self.refused = refused
        self.made: list[tuple[int, int, tuple[int, ...]]] = []
        self.runs: list[tuple[int, int]] = []
        self.freed = 0

    def grouped_make(self, tile: Any, out: Any, count: Any, host: Any, *arrays: Any) -> int:
        if tile.value == self.refused:
            return -1
        self.made.append((tile.value, count.value, tuple(a.value for a in arrays)))
        ct.cast(out, ct.POINTER(ct.c_void_p))[0] = len(self.made)
        return 0

    def grouped_run(self, made: Any, stream: Any) -> int:
        self.runs.append((made.value, stream.value))
        return 0

    def grouped_free(self, made: Any) -> None:
        self.freed += 1


def product(monkeypatch: pytest.MonkeyPatch, driver: StandInDriver, library: StandInLibrary) -> CutlassGrouped:
    monkeypatch.setattr(cutlass, "library_for", lambda layout, target: library)
    return CutlassGrouped(driver, GroupedGemm(ITEMS, "NT"))  # type: ignore[arg-type]


def test_items_are_sorted_by_k(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, library = StandInDriver(), StandInLibrary()
    timed = product(monkeypatch, driver, library)
    p = timed.problem
    made = timed.make(1, SETS[0])
    [(tile, count, (extents, a, b, c, lds))] = library.made
    assert (tile, count) == (1, 3)
    assert driver.memory[extents].tolist() == [list(ITEMS[i]) for i in ORDER]
    assert driver.memory[lds].tolist() == [[int(p.lds[i][x]) for i in ORDER] for x in range(3)]
    for x, (name, at) in enumerate(zip("ABC", (a, b, c), strict=True)):
        assert driver.memory[at].tolist() == [SETS[0][name] + 4 * int(p.starts[i][x]) for i in ORDER]
    timed.run(made)
    timed.run(made, 5)
    assert library.runs == [(1, 77), (1, 5)]
    timed.close()
    assert library.freed == 1
    assert not driver.memory


def test_fastest_tile_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = StandInDriver(9.0, 4.0)
    timed = product(monkeypatch, driver, StandInLibrary(refused=0))
    assert timed.best(SETS, Timing())[0::2] == VendorTimes(4.0, same_layout=4.0)[0::2]
    assert {tile for tile, *_ in timed._library.made} == {1, 2}


def test_other_problems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutlass, "library_for", lambda layout, target: StandInLibrary())
    for p, error in (
        (GroupedGemm(ITEMS, dtype="f16"), LaunchError),
        (GroupedGemm(ITEMS, epilogue="relu"), LaunchError),
        (GroupedGemm(((0, 1, 1),)), ShapeError),
    ):
        with pytest.raises(error):
            CutlassGrouped(StandInDriver(), p)  # type: ignore[arg-type]


def test_text_has_every_tile_and_the_layout() -> None:
    text, macros = cutlass.source_of("NT")
    assert macros == ["-DLAYOUT_A=Row", "-DLAYOUT_B=Column"]
    for i, tile in enumerate(TILES):
        assert f"case {i}: return make<{', '.join(map(str, tile))}>(out, count" in text


def test_missing_headers_name_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutlass.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="nvidia-cutlass"):
        cutlass.find_headers()
