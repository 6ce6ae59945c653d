"""Stand-ins of Triton and Gluon that run kernels in NumPy, a program of the grid after the other, on the memory of a
driver. Copies to shared memory arrive when the kernel waits for their group."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

TYPES = {
    **{name: np.dtype(name) for name in ("float64", "float32", "float16", "int64", "int32", "int16", "int8")},
    **{name: np.dtype(name) for name in ("uint64", "uint32", "uint16", "uint8")},
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int1": np.dtype(bool),
}


class Tensor(np.ndarray):
    """Values of a program."""

    def to(self, type: np.dtype) -> Tensor:
        return tensor(np.asarray(self).astype(type))


def tensor(x: Any) -> Tensor:
    return np.asarray(x).view(Tensor)


class Pointer:
    """Addresses of elements of an array."""

    def __init__(self, data: np.ndarray, offsets: Any = 0) -> None:
        self.data, self.offsets = data, offsets

    def __add__(self, other: Any) -> Pointer:
        return Pointer(self.data, self.offsets + np.asarray(other, np.int64))

    def load(self, mask: Any = None) -> Tensor:
        at = self.offsets if mask is None else np.where(mask, self.offsets, 0)
        assert np.min(at) >= 0
        assert np.max(at) < self.data.size
        return tensor(self.data[at])

    def store(self, values: Any) -> None:
        at, values = np.broadcast_arrays(self.offsets, values)
        assert at.min() >= 0
        assert at.max() < self.data.size
        self.data[at] = values


class Memory:
    """An array in the memory of a driver, as a tensor is given to a kernel."""

    def __init__(self, driver: Any, address: int, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.driver, self.address, self.shape, self.dtype = driver, address, shape, dtype

    def download(self) -> np.ndarray:
        out = np.empty(int(np.prod(self.shape)), self.dtype)
        self.driver.download(self.address, out)
        return out


class Kernel:
    """A decorated function: ``kernel[grid](…)`` runs it. The third argument is written."""

    launches: ClassVar[list[dict[str, Any]]] = []  #: the options of each launch

    def __init__(self, function: Any) -> None:
        self.function = function

    def __getitem__(self, grid: tuple[int]) -> Any:
        return partial(self.run, grid[0])

    def run(self, blocks: int, *arguments: Any, num_warps: int, **options: Any) -> None:
        self.launches.append({**options, "num_warps": num_warps})
        held = [x.download() if isinstance(x, Memory) else x for x in arguments]
        given = [Pointer(x) if isinstance(x, np.ndarray) else tensor(np.int32(x)) for x in held]
        for block in range(blocks):
            Language.block = block
            Groups.waiting.clear()
            self.function(*given, **options)
            assert not Groups.waiting or not any(Groups.waiting), "copies were not awaited"
        arguments[2].driver.upload(arguments[2].address, held[2])


class Language:
    """What both languages have."""

    block = 0

    def __init__(self) -> None:
        self.constexpr = int
        self.abs, self.sqrt = np.abs, np.sqrt
        self.exp, self.exp2, self.log, self.log2 = np.exp, np.exp2, np.log, np.log2
        # NaN is ignored
        self.maximum, self.minimum = np.fmax, np.fmin
        for name, type in TYPES.items():
            setattr(self, name, type)

    def rsqrt(self, x: Any) -> Any:
        return 1 / np.sqrt(x)

    def where(self, condition: Any, x: Any, y: Any) -> Tensor:
        return tensor(np.where(condition, x, y))

    def min(self, x: Any, axis: int) -> Tensor:
        return tensor(np.min(x, axis))

    def max(self, x: Any, axis: int) -> Tensor:
        return tensor(np.max(x, axis))

    def sum(self, x: Any, axis: int) -> Tensor:
        return tensor(np.sum(x, axis))

    def argmin(self, x: Any, axis: int) -> Tensor:
        return tensor(np.argmin(x, axis))

    def argmax(self, x: Any, axis: int) -> Tensor:
        return tensor(np.argmax(x, axis))

    def dot(self, a: Any, b: Any, c: Any, input_precision: str) -> Tensor:
        assert input_precision in ("ieee", "tf32", "tf32x3")
        return tensor(a @ b + c)

    def program_id(self, axis: int) -> Tensor:
        assert axis == 0
        return tensor(np.int32(self.block))

    def arange(self, first: int, end: int, layout: Any = None) -> Tensor:
        size = end - first
        assert size & (size - 1) == 0
        return tensor(np.arange(first, end, dtype=np.int32))

    def full(self, shape: Any, value: Any, type: np.dtype, layout: Any = None) -> Tensor:
        return tensor(np.full([int(x) for x in shape], value, type))

    def load(self, pointer: Pointer) -> Tensor:
        return pointer.load()

    def store(self, pointer: Pointer, values: Any) -> None:
        pointer.store(values)

    def range(self, first: int, end: int, step: int = 1) -> Iterator[Tensor]:
        return (tensor(np.int32(n)) for n in range(first, int(end), step))

    def static_range(self, *limits: int) -> range:
        return range(*limits)


class Groups:
    """Copies that were queued, by group; the last one is open."""

    waiting: ClassVar[list[list[Any]]] = [[]]

    @classmethod
    def copy(cls, to: np.ndarray, pointer: Pointer, mask: Any = None) -> None:
        if not cls.waiting:
            cls.waiting.append([])
        if mask is None or np.any(mask):
            cls.waiting[-1].append((to, pointer, mask))

    @classmethod
    def commit(cls) -> None:
        if not cls.waiting:
            cls.waiting.append([])
        cls.waiting.append([])

    @classmethod
    def wait(cls, left: int) -> None:
        """All but the last ``left`` committed groups arrive."""
        while len(cls.waiting) - 1 > left:
            for to, pointer, mask in cls.waiting.pop(0):
                value = pointer.load(mask)
                to[...] = value if mask is None else np.where(mask, value, to)


class Shared:
    """Shared memory."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data

    def index(self, n: int) -> Shared:
        return Shared(self.data[int(n)])

    def slice(self, first: int, size: int, axis: int) -> Shared:
        assert axis == 0
        return Shared(self.data[first : first + size])

    def permute(self, axes: tuple[int, ...]) -> Shared:
        return Shared(self.data.transpose(axes))

    def load(self, layout: Any) -> Tensor:
        return tensor(self.data.copy())


class GluonLanguage(Language):
    """Gluon's own part. Layouts are checked for their number of elements."""

    def allocate_shared_memory(self, type: np.dtype, shape: Any, layout: Any) -> Shared:
        memory = np.empty([int(x) for x in shape], type)
        memory.view(np.uint8)[...] = 0xFF
        return Shared(memory)

    def thread_barrier(self) -> None:
        pass

    def BlockedLayout(self, *sizes: Any) -> Any:  # noqa: N802
        each, lanes, _, order = sizes
        assert lanes[0] * lanes[1] == 32
        assert order == [1, 0]
        return ("blocked", each)

    def SliceLayout(self, axis: int, of: Any) -> Any:  # noqa: N802
        return ("slice", axis, of)

    def SwizzledSharedLayout(self, *fields: Any) -> Any:  # noqa: N802
        return ("shared", fields)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes ``import triton`` and ``from triton.experimental import gluon`` find the stand-ins."""
    triton, language = ModuleType("triton"), Language()
    triton.jit, triton.language = Kernel, language  # type: ignore[attr-defined]
    copies = SimpleNamespace(
        async_copy_global_to_shared=lambda to, pointer, mask=None: Groups.copy(to.data, pointer, mask),
        commit_group=Groups.commit,
        wait_group=Groups.wait,
    )
    gluon, own = ModuleType("triton.experimental.gluon"), GluonLanguage()
    gluon.jit, gluon.language = Kernel, own  # type: ignore[attr-defined]
    experimental, ampere = ModuleType("triton.experimental"), ModuleType("ampere")
    experimental.gluon = gluon  # type: ignore[attr-defined]
    ampere.async_copy = copies  # type: ignore[attr-defined]
    for name, module in {
        "triton": triton,
        "triton.language": language,
        "triton.experimental": experimental,
        "triton.experimental.gluon": gluon,
        "triton.experimental.gluon.language": own,
        "triton.experimental.gluon.language.nvidia": ModuleType("nvidia"),
        "triton.experimental.gluon.language.nvidia.ampere": ampere,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    Kernel.launches = []
