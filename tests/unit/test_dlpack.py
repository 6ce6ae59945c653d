"""DLPack import and export, and calls on arrays of a library that supports DLPack alone."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.api import choice, dlpack, drivers, grouped, launches, runners
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import DtypeError, InputError, OverlapError
from ptxgen.problem.dtypes import DTYPES
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning import selection

ANY = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")


def integers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(np.float32)


# ---- the protocol


class Given:
    """An array whose library exports ``capsule``."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0


def given_to_numpy(capsule: Any) -> np.ndarray[Any, Any]:
    return np.from_dlpack(Given(capsule))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["f16", "f32", "f64", "s8", "s32", "u32", "s16", "u16", "u8"])
def test_memory_of_numpy_is_read_and_given_back(name: str) -> None:
    dtype = DTYPES[name]
    x = integers(3, 4, 5).astype(dtype.numpy)[:, ::-1].transpose(2, 0, 1)
    e = dlpack.read(x, "a")
    assert (e.address, e.shape, e.dtype, e.device) == (x.ctypes.data, x.shape, dtype, None)
    assert e.strides == tuple(s // x.itemsize for s in x.strides)
    y = given_to_numpy(dlpack.export(e.address, e.shape, e.strides, dtype, (dlpack.CPU, 0), x))
    assert np.array_equal(x, y)
    assert y.ctypes.data == x.ctypes.data


def test_read_only_arrays_are_recognised() -> None:
    x = integers(4, 4)
    assert not dlpack.read(x, "a").readonly
    x.flags.writeable = False
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # versions before export writable arrays only
        assert dlpack.read(x, "a").readonly
    else:
        with pytest.raises(InputError, match="does not export"):
            dlpack.read(x, "a")


def test_torch_takes_and_gives_types_that_numpy_lacks() -> None:
    torch = pytest.importorskip("torch")
    for name in ("bf16", "e4m3", "e5m2"):
        dtype = DTYPES[name]
        x = torch.arange(12).float().to(getattr(torch, dtype.torch.removeprefix("torch."))).reshape(3, 4).T
        try:
            e = dlpack.read(x, "a")
        except InputError:  # a version without DLPack's 8-bit types
            assert dtype.fp8
            continue
        assert (e.address, e.shape, e.strides, e.dtype) == (x.data_ptr(), (4, 3), (1, 4), dtype)
        y = torch.from_dlpack(dlpack.export(e.address, e.shape, e.strides, dtype, (dlpack.CPU, 0), x))
        assert y.dtype == x.dtype
        assert torch.equal(x.float(), y.float())


class Owner:
    """What keeps the memory of an exported array valid."""


def test_an_owner_is_released_with_the_array_or_with_a_capsule_that_nobody_took() -> None:
    x, owner = integers(4), Owner()
    alive = weakref.ref(owner)
    taken = given_to_numpy(dlpack.export(x.ctypes.data, (4,), (1,), DTYPES["f32"], (dlpack.CPU, 0), owner))
    del owner
    gc.collect()
    assert alive() is not None
    del taken
    gc.collect()
    assert alive() is None
    owner = Owner()
    alive = weakref.ref(owner)
    capsule = dlpack.export(x.ctypes.data, (4,), (1,), DTYPES["f32"], (dlpack.CPU, 0), owner)
    del owner
    assert alive() is not None
    dlpack.withdraw(capsule)
    assert alive() is None
    assert not dlpack._exported


# ---- calls


class Gpu(EmulatedDriver):
    name = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[int] = []
        self.blocks: set[int] = set()

    def wait(self, stream: int) -> None:
        self.waits.append(stream)

    def allocate(self, size: int) -> int:
        address = super().allocate(size)
        self.blocks.add(address)
        return address

    def release(self, address: int) -> None:
        self.blocks.remove(address)
        super().release(address)


class Array:
    """An array of a library with DLPack and the array API's namespace, and with no other interface."""

    driver: Gpu

    def __init__(self, x: np.ndarray[Any, Any], device_type: int = dlpack.CUDA, version: bool = True) -> None:
        self.memory = dlpack.DeviceArray(self.driver, x.shape, DTYPES["f32"])
        self.driver.upload(self.memory.memory.address, np.ascontiguousarray(x))
        self.shape, self.device_type, self.version, self.streams = x.shape, device_type, version, list[Any]()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_type, 0

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        if options and not self.version:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        return self.memory.__dlpack__()

    def __array_namespace__(self) -> Any:
        return SimpleNamespace(from_dlpack=Array.taken)

    @classmethod
    def taken(cls, x: Any) -> Array:
        """``from_dlpack`` of the library."""
        view = dlpack.read(x, "x")
        data = np.empty(view.shape, np.float32)
        assert view.strides == tuple(s // 4 for s in data.strides)
        cls.driver.download(view.address, data)
        return cls(data)

    def numpy(self) -> np.ndarray[Any, Any]:
        out = np.empty(self.shape, np.float32)
        self.driver.download(self.memory.memory.address, out)
        return out


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    driver = Gpu()
    monkeypatch.setattr(Array, "driver", driver, raising=False)
    monkeypatch.setattr(launches, "launches", OrderedDict())
    monkeypatch.setattr(runners, "runners", OrderedDict())
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setattr(choice, "database", lambda: None)
    monkeypatch.setattr(selection, "select", lambda p, *_, **__: [selection.Selection(p, ANY, "given")])
    yield driver
    grouped._launchers.clear()


@pytest.mark.parametrize("version", [True, False])
def test_results_are_arrays_of_the_callers_library(gpu: Gpu, version: bool) -> None:
    x, y, bias = integers(16, 24), integers(24, 8), integers(8)
    a, b = Array(x, version=version), Array(y, version=version)
    made = ptxgen.gemm(a, b, bias=Array(bias), activation="relu")
    assert isinstance(made, Array)
    assert np.array_equal(made.numpy(), np.maximum(x @ y + bias, 0))
    assert a.streams == [dlpack.LEGACY_STREAM]
    assert gpu.waits == [dlpack.LEGACY_STREAM], "the library does not know when the kernels end"
    [c] = ptxgen.gemm_grouped([a], [b])
    assert np.array_equal(c.numpy(), x @ y)
    images, filters = integers(1, 2, 5, 5), integers(3, 2, 3, 3)
    made = ptxgen.conv2d(Array(images), Array(filters), padding=1)
    assert np.array_equal(made.numpy(), ptxgen.conv2d(images, filters, padding=1))
    out = Array(np.zeros((16, 8), np.float32))
    assert ptxgen.gemm(a, b, out=out) is out
    assert np.array_equal(out.numpy(), x @ y)
    assert not launches.launches


def test_memory_of_operands_and_results_is_released(gpu: Gpu) -> None:
    x = integers(16, 16)
    ptxgen.gemm(Array(x), Array(x))
    gc.collect()
    before = len(gpu.blocks)
    made = ptxgen.gemm(Array(x), Array(x))
    del made
    gc.collect()
    assert len(gpu.blocks) == before
    assert not dlpack._exported


def test_arrays_that_cannot_be_used_are_refused(gpu: Gpu) -> None:
    x = integers(8, 8)
    a = Array(x)
    with pytest.raises(InputError, match="a is on a device of DLPack's type 4"):
        ptxgen.gemm(Array(x, device_type=4), a)
    with pytest.raises(OverlapError, match="out shares memory with a"):
        ptxgen.gemm(a, Array(x), out=a)

    def fail(**_: Any) -> Any:
        raise BufferError("it is sharded")

    bad = SimpleNamespace(__dlpack__=fail, __dlpack_device__=lambda: (dlpack.CUDA, 0))
    with pytest.raises(InputError, match="b is SimpleNamespace, which its library does not export: it is sharded"):
        ptxgen.gemm(a, bad)
    bare = SimpleNamespace(__dlpack__=a.__dlpack__, __dlpack_device__=a.__dlpack_device__)
    with pytest.raises(InputError, match="out is None; with arrays of types out is required"):
        ptxgen.gemm(bare, bare)
    strange = SimpleNamespace(
        __dlpack__=lambda **_: np.zeros((8, 8), np.uint64).__dlpack__(), __dlpack_device__=lambda: (dlpack.CPU, 0)
    )
    with pytest.raises(DtypeError, match="a has dtype of code 1, 64 bits and 1 lanes; it must be one of"):
        ptxgen.gemm(strange, a)


def test_jax_arrays_in_host_memory(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(gpu, "name", "emulated")
    x, y = jax.numpy.asarray(integers(6, 5)), jax.numpy.asarray(integers(5, 4))
    made = ptxgen.gemm(x, y)
    assert isinstance(made, jax.Array)
    assert np.array_equal(made, integers(6, 5) @ integers(5, 4))
    half = ptxgen.gemm(x.astype("bfloat16"), y.astype("bfloat16"))
    assert half.dtype == jax.numpy.bfloat16
    assert np.array_equal(half.astype("float32"), integers(6, 5) @ integers(5, 4))
    [item] = ptxgen.gemm_grouped([x], [y])
    assert np.array_equal(item, made)
    images, filters = (jax.numpy.asarray(integers(*shape)) for shape in ((1, 2, 5, 5), (3, 2, 3, 3)))
    done = ptxgen.conv2d(images, filters)
    assert isinstance(done, jax.Array)
    assert np.array_equal(done, ptxgen.conv2d(np.asarray(images), np.asarray(filters)))
    with pytest.raises(InputError, match="out is read-only"):
        ptxgen.gemm(x, y, out=made)
    with pytest.raises(InputError, match="a is "):
        jax.jit(lambda z: ptxgen.gemm(z, y))(x)
