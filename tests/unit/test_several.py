"""Several GPUs in one process, for which emulated devices with memories of their own stand in."""

from __future__ import annotations

import sys
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import autotune, choice, driver_state, drivers, first_call, grouped, launches, runners
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import DeviceError, InputError
from ptxgen.problem.device import DEVICES
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.open_driver import open_driver
from ptxgen.settings import settings
from ptxgen.tuning import selection
from tests.tensors import LIBRARY, Tensor

ANY = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")
#: a configuration that needs a workspace
SPLIT = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2 kg=2 splitk=workspace")


class Gpu(EmulatedDriver):
    """GPU ``index``. Its memory begins at another address, so that no address is valid on two GPUs."""

    def __init__(self, index: int) -> None:
        super().__init__(DEVICES["emulated"])
        self.name, self.index, self.selector = "cuda", index, f"cuda:{index}"
        self.allocate(1 + (index << 24))


class Opened(dict[int, Gpu]):
    """The drivers that were opened, by index."""

    def __call__(self, name: str, index: int = 0) -> Gpu:
        index = int(name.partition(":")[2] or index)
        assert index not in self, "a GPU is opened once"
        self[index] = Gpu(index)
        return self[index]


def select(problem: Any, *_: Any) -> list[selection.Selection]:
    return [selection.Selection(problem, SPLIT if problem.operation == "gemm" and problem.k >= 16 else ANY, "given")]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Any:
    open_drivers = Opened()
    monkeypatch.setattr(launches, "launches", OrderedDict())
    monkeypatch.setattr(runners, "runners", OrderedDict())
    monkeypatch.setattr(drivers, "open_driver", open_drivers)
    monkeypatch.setattr(choice, "database", lambda: None)
    monkeypatch.setattr(drivers, "_first_gpu", None)
    monkeypatch.setattr(selection, "select", select)
    monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    caches = (drivers.driver, drivers._gpu)
    for cached in caches:
        cached.cache_clear()
    yield open_drivers
    grouped._launchers.clear()
    for cached in caches:
        cached.cache_clear()


def on(index: int, x: np.ndarray[Any, Any]) -> Tensor:
    """A tensor on GPU ``index``."""
    driver = drivers.driver_of(SimpleNamespace(host=False, device=index))  # type: ignore[arg-type]
    return Tensor(driver, x)  # type: ignore[arg-type]


def integers(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def test_the_gpu_of_the_operands_computes(opened: Opened) -> None:
    """With a kernel, a workspace and a cached call of its own, also in later calls."""
    x, y = integers(0, 24, 40), integers(1, 40, 16)
    images, filters = integers(2, 1, 2, 5, 5), integers(3, 3, 2, 3, 3)
    for _ in range(2):
        for index in (1, 0, 2):
            out = on(index, np.zeros((24, 16), np.float32))
            ptxgen.gemm(on(index, x), on(index, y), out=out)
            assert np.array_equal(out.numpy(), x @ y)
            [c] = ptxgen.gemm_grouped([on(index, x)], [on(index, y)], [on(index, np.zeros((24, 16), np.float32))])
            assert np.array_equal(c.numpy(), x @ y)
            made = ptxgen.conv2d(on(index, images), on(index, filters), padding=1)
            assert np.array_equal(made.numpy(), ptxgen.conv2d(images, filters, padding=1))
    assert list(opened) == [1, 0, 2]
    assert len(launches.launches) == 6
    assert drivers.driver().index == 1, "host arrays are computed on the GPU that was used first"
    states = [driver_state.state_of(d) for d in opened.values()]
    assert len({id(s.workspaces) for s in states}) == 3
    problems = {problem for _, problem in runners.runners}
    for d in opened.values():
        runners.reselect(problems)
        assert not [at for at in runners.runners if at[0] is d]


def test_processes_with_other_gpus_have_equal_selection_digests(opened: Opened) -> None:
    x = integers(0, 8, 8)
    ptxgen.gemm(on(1, x), on(1, x))
    first = ptxgen.selection_digest()
    ptxgen.gemm(on(0, x), on(0, x))
    assert len(runners.runners) == 2
    assert ptxgen.selection_digest() == first


@pytest.mark.parametrize("named", ["b", "out", "bias", "residual", "workspace"])
def test_arrays_of_one_call_are_on_one_gpu(opened: Opened, named: str) -> None:
    x = integers(0, 16, 16)
    given = {name: on(0, x) for name in ("a", "b", "out", "residual")}
    given |= {"bias": on(0, x[0]), "workspace": on(0, np.zeros(1 << 14, np.float32))}
    given[named] = on(1, x[0] if named == "bias" else x if named != "workspace" else np.zeros(1 << 14, np.float32))
    with pytest.raises(DeviceError, match=f"{named} is on GPU 1"):
        ptxgen.gemm(**given)


def test_items_of_a_group_are_on_one_gpu(opened: Opened) -> None:
    x = integers(0, 8, 8)
    with pytest.raises(DeviceError, match="item 1 is on GPU 1 and item 0 on GPU 0"):
        ptxgen.gemm_grouped([on(0, x), on(1, x)], [on(0, x), on(1, x)])


def test_tuning_times_on_the_gpu_of_the_operands(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """``autotune`` and PTXGEN_TUNE name it to the measuring process. GPUs of one kind are timed once."""
    monkeypatch.setenv("PTXGEN_DATABASE", str(tmp_path / "tuning.sqlite"))
    tuned: list[tuple[str, int, float]] = []

    def tune(problems: Any, selector: str, database: Any, weights: Any, deadline: Any) -> list[Any]:
        tuned.append((selector, int(sum(weights.values())), deadline.seconds))
        return []

    monkeypatch.setattr(autotune, "tune", tune)
    x, y = integers(0, 8, 8), integers(0, 16, 16)
    with ptxgen.autotune(time_limit=6):
        for index, z in ((1, x), (0, x), (0, y)):
            ptxgen.gemm(on(index, z), on(index, z))
    assert tuned == [("cuda:1", 2, 3.0), ("cuda:0", 1, 3.0)]
    timed: list[str] = []
    chooser = SimpleNamespace(choose=lambda problem, device: None)
    monkeypatch.setattr(first_call, "first_use", lambda selector, path: (timed.append(selector), chooser)[1])
    monkeypatch.setenv("PTXGEN_TUNE", "first")
    ptxgen.gemm(on(1, integers(0, 24, 24)), on(1, integers(0, 24, 24)))
    assert timed == ["cuda:1"]


def test_the_current_gpu_computes_on_host_arrays(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that has called torch.cuda.set_device and begins with host arrays does not use GPU 0."""
    rank = SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 3)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=rank))
    x = integers(0, 8, 8)
    assert np.array_equal(ptxgen.gemm(x, x), x @ x)
    assert list(opened) == [3]


def test_ptxgen_driver_names_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "CUDA:12")
    assert settings().driver == "cuda:12"
    monkeypatch.setenv("PTXGEN_DRIVER", "cuda:x")
    with pytest.raises(InputError, match="PTXGEN_DRIVER"):
        settings()
    with pytest.raises(DeviceError, match="cuda:N with the index of a GPU"):
        open_driver("cuda:")
