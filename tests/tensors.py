"""A stand-in for PyTorch tensors on the memory of an emulated device."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ptxgen.runtime.emulated import EmulatedDriver

Array = np.ndarray[Any, Any]
#: what is asked of the library: its types, and the handle of the stream that it queues on
LIBRARY = SimpleNamespace(
    **{name: f"torch.{name}" for name in ("float32", "int32", "uint8", "bool")},
    _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda i: 0),
    is_grad_enabled=lambda: True,
    no_grad=nullcontext,
    inference_mode=nullcontext,
)


class Place(NamedTuple):
    type: str
    index: int


class Tensor:
    """The part of PyTorch's tensor interface that calls use, on the emulated device's memory."""

    made = 0
    requires_grad = negative = False

    def __init__(self, driver: EmulatedDriver, x: Array, order: tuple[int, ...] | None = None) -> None:
        order = order or tuple(range(x.ndim))
        memory = x.transpose(order).copy()  # axes of extent 1 have strides of the order too
        self.driver, self.shape = driver, x.shape
        self.address = driver.allocate(max(memory.nbytes, 1))
        driver.upload(self.address, memory)
        steps = [s // x.itemsize for s in memory.strides]
        self.strides = tuple(steps[order.index(i)] for i in range(x.ndim))
        self.dtype, self.device = f"torch.{x.dtype.name}", Place("cuda", driver.index)

    def data_ptr(self) -> int:
        return self.address

    def is_neg(self) -> bool:
        return self.negative

    def is_conj(self) -> bool:
        return False

    def numel(self) -> int:
        return int(np.prod(self.shape))

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def get_device(self) -> int:
        return self.device.index

    def untyped_storage(self) -> Tensor:
        return self

    def is_contiguous(self) -> bool:
        return 0 in self.shape or self.strides == tuple(
            int(np.prod(self.shape[i + 1 :])) for i in range(len(self.shape))
        )

    @property
    def nbytes(self) -> int:
        return self.element_type.itemsize * int(np.prod(self.shape))

    @property
    def element_type(self) -> np.dtype[Any]:
        return np.dtype(str(self.dtype).removeprefix("torch."))

    def numpy(self) -> Array:
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        flat = np.empty(last + 1 if 0 not in self.shape else 0, self.element_type)
        self.driver.download(self.address, flat)
        return np.ndarray(self.shape, flat.dtype, flat, strides=[flat.itemsize * s for s in self.strides])

    def new_empty(self, shape: tuple[int, ...], dtype: Any = None) -> Tensor:
        Tensor.made += 1
        return Tensor(self.driver, np.zeros(shape, str(dtype or self.dtype).removeprefix("torch.")))

    def view(self, dtype: str) -> Tensor:
        """The same memory with another type, whose size divides that of this one."""
        out = self.permute(tuple(range(len(self.shape))))
        out.dtype = dtype
        if (count := self.element_type.itemsize // out.element_type.itemsize) > 1:
            assert self.is_contiguous()
            out.shape = (*self.shape[:-1], self.shape[-1] * count)
            out.strides = tuple(int(np.prod(out.shape[i + 1 :])) for i in range(len(out.shape)))
        return out

    def __getitem__(self, n: int | slice | tuple[slice, ...]) -> Tensor:
        """An item, consecutive items, or those of slices along all axes."""
        if isinstance(n, tuple):
            out = self.permute(tuple(range(len(self.shape))))
            parts = [range(size)[x] for size, x in zip(self.shape, n, strict=True)]
            first = sum(x.start * s for x, s in zip(parts, self.strides, strict=True))
            out.address = self.address + first * self.element_type.itemsize
            out.shape = tuple(map(len, parts))
            out.strides = tuple(x.step * s for x, s in zip(parts, self.strides, strict=True))
            return out
        out = self.permute(tuple(range(len(self.shape))))
        items = range(self.shape[0])[n]
        first = items if isinstance(items, int) else items.start
        out.address = self.address + first * self.strides[0] * self.element_type.itemsize
        if isinstance(items, int):
            out.shape, out.strides = self.shape[1:], self.strides[1:]
        else:
            out.shape = (len(items), *self.shape[1:])
        return out

    def permute(self, order: tuple[int, ...]) -> Tensor:
        out = object.__new__(Tensor)
        out.__dict__.update(self.__dict__)
        out.shape = tuple(self.shape[i] for i in order)
        out.strides = tuple(self.strides[i] for i in order)
        return out

    T = property(lambda self: self.permute((1, 0)))

    def reshape(self, *shape: int) -> Tensor:
        """A view of a contiguous tensor with another shape; -1 stands for the rest."""
        assert self.is_contiguous()
        out = self.permute(tuple(range(len(self.shape))))
        size = int(np.prod(self.shape))
        out.shape = tuple(size // -int(np.prod(shape)) if n == -1 else n for n in shape)
        out.strides = tuple(int(np.prod(out.shape[i + 1 :])) for i in range(len(shape)))
        return out

    def float(self) -> Tensor:
        axes = range(len(self.shape))
        order = tuple(sorted(axes, key=lambda i: -self.strides[i]))
        return Tensor(self.driver, self.numpy().astype(np.float32), order)

    def contiguous(self) -> Tensor:
        return Tensor(self.driver, self.numpy())


Tensor.__module__ = "torch"
