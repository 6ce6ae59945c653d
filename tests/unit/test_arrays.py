"""Arrays of any library as views: what their strides say, and what is refused."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from ptxgen.arrays import View, aligned, on_host, stored, view
from ptxgen.dtypes import DTYPES, dtype
from ptxgen.errors import DtypeError, InputError, ShapeError


class Foreign:
    """An array of a library that only speaks __cuda_array_interface__."""

    def __init__(self, array: np.ndarray, strides: bool = True, readonly: bool = False) -> None:
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "version": 3, "data": (array.ctypes.data, readonly),
            "strides": array.strides if strides else None,
        }  # fmt: skip


def test_a_view_of_numpy():
    x = np.zeros((6, 8), np.float32)
    v = view(x[1:, 2:], "a")
    assert (v.shape, v.strides, v.dtype, v.host, v.readonly) == ((5, 6), (8, 1), dtype("f32"), True, False)
    assert v.address == x.ctypes.data + 4 * 10
    assert v.span == (v.address, x.ctypes.data + x.nbytes)
    assert v.origin.base is x
    x.flags.writeable = False
    assert view(x, "a").readonly


def test_spans_go_both_ways():
    x = np.zeros((6, 8), np.float64)
    end = x.ctypes.data + x.nbytes
    assert view(x[::-1, ::-1], "a").span == (x.ctypes.data, end)
    assert view(x[::-1], "a").span == (x.ctypes.data, end)
    assert view(x[::2, 1:3].T, "a").span == (x.ctypes.data + 8, x.ctypes.data + 8 * (4 * 8 + 3))
    empty = view(x[:0], "a")
    assert empty.span == (empty.address, empty.address)


@pytest.mark.parametrize("strides", [True, False])
def test_a_view_of_a_foreign_array(strides):
    x = np.zeros((6, 8), np.float16)
    v = view(Foreign(x, strides), "a")
    assert (v.address, v.shape, v.strides, v.dtype, v.host, v.device) == (
        x.ctypes.data,
        (6, 8),
        (8, 1),
        dtype("f16"),
        False,
        None,
    )
    if strides:
        assert view(Foreign(x.T), "a").strides == (1, 8)
    assert view(Foreign(x, readonly=True), "a").readonly


def tensor(kind: str, device: str = "cuda", index: int | None = 1):
    """What this package reads of a PyTorch tensor."""
    where = SimpleNamespace(type=device, index=index)
    made = type("Tensor", (), {"__module__": "torch"})()
    for name, value in {"dtype": kind, "shape": (2, 3), "device": where}.items():
        setattr(made, name, value)
    made.stride, made.data_ptr = lambda: (3, 1), lambda: 4096
    return made


def test_a_view_of_a_tensor():
    v = view(tensor("torch.bfloat16"), "a")
    assert (v.address, v.shape, v.strides, v.dtype, v.host, v.device) == (4096, (2, 3), (3, 1), dtype("bf16"), False, 1)
    v = view(tensor("torch.float32", "cpu", None), "a")
    assert (v.host, v.device) == (True, None)
    with pytest.raises(DtypeError, match=r"b has dtype torch.int64; it must be one of float16"):
        view(tensor("torch.int64"), "b")
    assert {d.numpy.name for d in DTYPES.values()} >= {"float32", "bfloat16", "int32", "float8_e4m3fn"}


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ([[1.0]], InputError, "left is list; it must be an array"),
        (1.0, InputError, "left is float"),
        (None, InputError, "left is NoneType"),
        (np.zeros(3, np.float32), ShapeError, "left has 1 dimensions"),
        (np.zeros((1, 2, 3), np.float32), ShapeError, r"left has 3 dimensions, shape \(1, 2, 3\); it must have 2"),
        (np.float32(1), InputError, "left is float32"),
        (np.zeros((2, 2), np.int64), DtypeError, "left has dtype int64"),
        (np.zeros((2, 2), ">f4"), DtypeError, "left has dtype >f4"),
        (np.zeros((2, 2), complex), DtypeError, "left has dtype complex128"),
        (Foreign(np.zeros(3, np.float32)), ShapeError, "left has 1 dimensions"),
        (Foreign(np.zeros((2, 2), np.int64)), DtypeError, "left has dtype int64"),
    ],
)
def test_what_is_no_matrix(value, error, words):
    with pytest.raises(error, match=words):
        view(value, "left")


def test_strides_that_are_no_multiples_of_an_element():
    pairs = np.zeros((4, 4), np.dtype([("x", "<f4"), ("y", "<u2")]))
    with pytest.raises(ShapeError, match=r"left has strides \(24, 6\) bytes; they must be multiples of 4"):
        view(pairs["x"], "left")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: x, ("N", 8)),
        (lambda x: x.T, ("T", 8)),
        (lambda x: x[:, 2:5], ("N", 8)),
        (lambda x: x[:, 2:5].T, ("T", 8)),
        (lambda x: x[::2], ("N", 16)),
        (lambda x: x[::2].T, ("T", 16)),
        (lambda x: np.asfortranarray(x), ("T", 6)),
        (lambda x: x[:, ::2], None),
        (lambda x: x[::-1], None),
        (lambda x: x[:, ::-1], None),
        (lambda x: np.broadcast_to(x[:1], (6, 8)), None),
        (lambda x: np.broadcast_to(x[:, :1], (6, 8)), None),
        (lambda x: x[:1], ("N", 0)),
        (lambda x: x[:1].T, ("N", 1)),  # a column with nothing between its elements
        (lambda x: x[:, :1], ("N", 8)),
        (lambda x: x[:, :1].T, ("T", 8)),
        (lambda x: x[:1, ::2], ("T", 2)),
        (lambda x: x[:1, :1], ("N", 0)),
        (lambda x: x[::-1, :1], None),
        (lambda x: x[:0], ("N", 0)),
        (lambda x: x[:, :0], ("N", 0)),
        (lambda x: np.lib.stride_tricks.as_strided(x, (4, 4), (4, 4)), None),  # rows that overlap
    ],
)
def test_how_an_array_is_stored(make, expected):
    x = np.arange(48, dtype=np.float32).reshape(6, 8)
    v = view(make(x), "a")
    found = stored(v)
    assert found == expected
    if found is None or 0 in v.shape or not np.shares_memory(v.origin, x):
        return
    letter, ld = found  # and that is where its elements are
    rows, columns = v.shape if letter == "N" else v.shape[::-1]
    ld = ld or columns
    plain = v.origin if letter == "N" else v.origin.T
    at = [[v.address + 4 * (r * ld + c) for c in range(columns)] for r in range(rows)]
    start = x.ctypes.data
    assert [[x.reshape(-1)[(a - start) // 4] for a in row] for row in at] == plain.tolist()


def test_alignment_of_an_address():
    assert [aligned(1 << n) for n in range(7)] == [1, 2, 4, 8, 16, 16, 16]
    assert aligned(0) == 16
    assert aligned(0x7F0000001234) == 4


class HostTensor:
    """What this package does with a tensor of the host: PyTorch gives NumPy none that needs gradients or is bfloat16."""

    def __init__(self, x: np.ndarray, grad: bool = True) -> None:
        self.x, self.grad = x, grad

    def detach(self):
        return HostTensor(self.x, False)

    def view(self, kind):
        return HostTensor(self.x.view(kind), self.grad)

    def numpy(self):
        assert not self.grad
        assert self.x.dtype.name in ("int16", "int8", "float32")
        return self.x


@pytest.mark.parametrize("kind", ["f32", "bf16", "e4m3", "e5m2"])
def test_tensors_of_the_host_share_their_memory(kind, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(int16=np.int16, int8=np.int8))
    x = np.arange(12).reshape(3, 4).astype(dtype(kind).numpy)
    plain = view(x[:, 1:], "a") if kind == "f32" else View(x[:, 1:], 0, (3, 3), (4, 1), dtype(kind), True)
    assert on_host(plain) is plain.origin
    found = on_host(View(HostTensor(x[:, 1:]), 0, (3, 3), (4, 1), dtype(kind), True))
    assert found.dtype == x.dtype
    assert np.array_equal(found, x[:, 1:])
    found[1, 2] = 0
    assert x[1, 3] == 0
