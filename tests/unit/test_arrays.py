"""Arrays of any library as views: strides, and refused arrays."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from ptxgen.api import arrays
from ptxgen.api.arrays import View, alignment_of, as_numpy, matrix_layout, overlap, overlaps_itself, view
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.problem.dtypes import DTYPES, dtype


class Foreign:
    """An array of a library that only provides __cuda_array_interface__."""

    def __init__(self, array: np.ndarray, strides: bool = True, readonly: bool = False) -> None:
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "version": 3,
            "data": (array.ctypes.data, readonly),
            "strides": array.strides if strides else None,
        }


def test_view_of_a_numpy_array():
    x = np.zeros((6, 8), np.float32)
    v = view(x[1:, 2:], "a")
    assert (v.shape, v.strides, v.dtype, v.host, v.readonly) == ((5, 6), (8, 1), dtype("f32"), True, False)
    assert v.address == x.ctypes.data + 4 * 10
    assert v.span == (v.address, x.ctypes.data + x.nbytes)
    assert v.origin.base is x
    x.flags.writeable = False
    assert view(x, "a").readonly


def test_spans_of_positive_and_negative_strides():
    x = np.zeros((6, 8), np.float64)
    end = x.ctypes.data + x.nbytes
    assert view(x[::-1, ::-1], "a").span == (x.ctypes.data, end)
    assert view(x[::-1], "a").span == (x.ctypes.data, end)
    assert view(x[::2, 1:3].T, "a").span == (x.ctypes.data + 8, x.ctypes.data + 8 * (4 * 8 + 3))
    empty = view(x[:0], "a")
    assert empty.span == (empty.address, empty.address)


@pytest.mark.parametrize("strides", [True, False])
def test_view_of_a_foreign_array(strides):
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


def tensor(dtype: str, device: str = "cuda", index: int | None = 1):
    """The part of a PyTorch tensor that this package reads."""
    where = SimpleNamespace(type=device, index=index)
    made = type("Tensor", (), {"__module__": "torch"})()
    for name, value in {"dtype": dtype, "shape": (2, 3), "device": where}.items():
        setattr(made, name, value)
    made.stride, made.data_ptr, made.is_neg, made.requires_grad = lambda: (3, 1), lambda: 4096, lambda: False, False
    made.is_conj = lambda: False
    return made


def test_view_of_a_tensor():
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
        (np.zeros(3, np.float32), ShapeError, r"left has shape \(3,\)"),
        (np.zeros((1, 2, 3), np.float32), ShapeError, r"left has shape \(1, 2, 3\); it must have 2 dimensions"),
        (np.float32(1), InputError, "left is float32"),
        (np.zeros((2, 2), np.int64), DtypeError, "left has dtype int64"),
        (np.zeros((2, 2), ">f4"), DtypeError, "left has dtype >f4"),
        (np.zeros((2, 2), np.clongdouble), DtypeError, f"left has dtype {np.dtype(np.clongdouble)}"),
        (Foreign(np.zeros(3, np.float32)), ShapeError, r"left has shape \(3,\)"),
        (Foreign(np.zeros((2, 2), np.int64)), DtypeError, "left has dtype int64"),
    ],
)
def test_arrays_that_are_no_matrix(value, error, words):
    with pytest.raises(error, match=words):
        view(value, "left")


def test_strides_that_are_no_multiples_of_an_element_are_refused():
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
def test_layout_of_an_array(make, expected):
    x = np.arange(48, dtype=np.float32).reshape(6, 8)
    v = view(make(x), "a")
    layout = matrix_layout(v)
    assert layout == expected
    if layout is None or 0 in v.shape or not np.shares_memory(v.origin, x):
        return
    letter, ld = layout  # and that is where its elements are
    rows, columns = v.shape if letter == "N" else v.shape[::-1]
    ld = ld or columns
    plain = v.origin if letter == "N" else v.origin.T
    at = [[v.address + 4 * (r * ld + c) for c in range(columns)] for r in range(rows)]
    start = x.ctypes.data
    assert [[x.reshape(-1)[(a - start) // 4] for a in row] for row in at] == plain.tolist()


def test_alignment_of_an_address():
    assert [alignment_of(1 << n) for n in range(7)] == [1, 2, 4, 8, 16, 16, 16]
    assert alignment_of(0) == 16
    assert alignment_of(0x7F0000001234) == 4


class HostTensor:
    """A host tensor: PyTorch gives NumPy no array of tensors that need gradients or are bfloat16."""

    def __init__(self, x: np.ndarray, grad: bool = True) -> None:
        self.x, self.grad = x, grad

    def detach(self):
        return HostTensor(self.x, False)

    def view(self, dtype):
        return HostTensor(self.x.view(dtype), self.grad)

    def numpy(self):
        assert not self.grad
        assert self.x.dtype.name in ("int16", "int8", "float32")
        return self.x


@pytest.mark.parametrize("element", ["f32", "bf16", "e4m3", "e5m2"])
def test_host_tensors_share_their_memory(element, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(int16=np.int16, int8=np.int8))
    x = np.arange(12).reshape(3, 4).astype(dtype(element).numpy)
    plain = view(x[:, 1:], "a") if element == "f32" else View(x[:, 1:], 0, (3, 3), (4, 1), dtype(element), True)
    assert as_numpy(plain) is plain.origin
    result = as_numpy(View(HostTensor(x[:, 1:]), 0, (3, 3), (4, 1), dtype(element), True))
    assert result.dtype == x.dtype
    assert np.array_equal(result, x[:, 1:])
    result[1, 2] = 0
    assert x[1, 3] == 0


# ---- memory that arrays share


def random_views(seed: int, count: int) -> list[View]:
    """Small views on one memory, with strides of both signs and of zero."""
    rng, out = np.random.default_rng(seed), []
    for _ in range(count):
        axes = int(rng.integers(1, 4))
        shape = tuple(int(n) for n in rng.integers(0 if rng.random() < 0.1 else 1, 5, axes))
        strides = tuple(int(s) for s in rng.integers(-3, 14, axes))
        element = dtype(str(rng.choice(["f16", "f32", "f64"])))
        address = 4096 + element.bytes * int(rng.integers(0, 30))
        out.append(View(None, address, shape, strides, element, bool(rng.random() < 0.5)))
    return out


def elements(v: View) -> list[range]:
    """The bytes of each element."""
    size = v.dtype.bytes
    starts = (v.address + size * int(np.dot(at, v.strides)) for at in np.ndindex(*v.shape))
    return [range(start, start + size) for start in starts]


def test_overlap_is_exact():
    views, shared = random_views(0, 400), 0
    for x, y in zip(views[::2], views[1::2], strict=True):
        common = {b for e in elements(x) for b in e} & {b for e in elements(y) for b in e}
        assert overlap(x, y) == overlap(y, x) == bool(common)
        shared += bool(common)
    assert 20 < shared < 180
    for v in views:
        every = [b for e in elements(v) for b in e]
        assert overlaps_itself(v) == (len(every) != len(set(every)))
    assert 50 < sum(map(overlaps_itself, views)) < 350


def test_undecided_overlap_counts_as_overlap(monkeypatch):
    x = View(None, 4096, (9, 9, 9), (7, 11, 13), dtype("f32"), False)
    y = View(None, 4100, (9, 9, 9), (21, 33, 39), dtype("f32"), False)
    monkeypatch.setattr("ptxgen.api.arrays.OVERLAP_WORK", 1)
    assert overlap(x, y)
    assert overlaps_itself(View(None, 4096, (9, 9, 9, 9), (1001, 1003, 1007, 1009), dtype("f32"), False))


# ---- rejected arguments


@pytest.mark.parametrize("argument", ["a", "bias"])
def test_masked_arrays_are_refused(argument):
    x = np.ma.masked_array(np.ones((2, 2), np.float32), [[0, 1], [0, 0]])
    with pytest.raises(
        InputError, match=rf"{argument} is a masked array; .*{argument}.filled\(value\) or {argument}.data"
    ):
        view(x, argument)
    assert view(x.filled(0), argument).shape == (2, 2)
    foreign = Foreign(np.ones((2, 2), np.float32))
    foreign.__cuda_array_interface__["mask"] = Foreign(np.ones((2, 2), bool))
    with pytest.raises(InputError, match=f"{argument} is a masked array"):
        view(foreign, argument)


DAMAGED = [
    (InputError, "__cuda_array_interface__ is None; it must be a dict", None),
    (InputError, "it must be a dict", [("shape", (2, 2))]),
    (InputError, "has no data, typestr; it must have", {"shape": (2, 2)}),
    (DtypeError, "has typestr 'zz'; it must be", {"typestr": "zz"}),
    (DtypeError, "has typestr 'f4, \\('; it must be", {"typestr": "f4, ("}),
    (DtypeError, "has typestr 7; it must be", {"typestr": 7}),
    (InputError, "has data 4096; it must be", {"data": 4096}),
    (InputError, "has data None; it must be", {"data": None}),
    (InputError, r"has data \(None, False\); it must be", {"data": (None, False)}),
    (InputError, r"has data \(-16, False\); it must be", {"data": (-16, False)}),
    (ShapeError, "has shape 2; it must be a tuple", {"shape": 2}),
    (ShapeError, r"has shape \(2, -1\); it must be", {"shape": (2, -1)}),
    (ShapeError, r"has shape \(2.0, 2\); it must be", {"shape": (2.0, 2)}),
    (ShapeError, r"has strides \(8,\) bytes; they must be None, or 2 integers", {"strides": (8,)}),
    (ShapeError, r"has strides \(8, 4, 4\) bytes; they must be", {"strides": (8, 4, 4)}),
    (ShapeError, "has strides 8 bytes; they must be", {"strides": 8}),
    (InputError, "has stream 'legacy'; it must be None or an integer", {"stream": "legacy"}),
]


@pytest.mark.parametrize(("error", "message", "change"), DAMAGED)
def test_damaged_interfaces_are_refused(error, message, change):
    for read in (arrays.tensor, arrays.device_memory):
        foreign = Foreign(np.ones((2, 2), np.float32))
        whole = foreign.__cuda_array_interface__
        replaces = not isinstance(change, dict) or "has no" in message
        foreign.__cuda_array_interface__ = change if replaces else {**whole, **change}
        with pytest.raises(error, match=rf"^b\W?.*{message}"):
            read(foreign, "b")


def test_strides_inside_an_element_are_refused():
    foreign = Foreign(np.ones((2, 2), np.float32))
    foreign.__cuda_array_interface__["strides"] = (10, 4)
    with pytest.raises(ShapeError, match=r"b has strides \(10, 4\) bytes; they must be multiples of 4"):
        view(foreign, "b")


def no_storage() -> int:
    raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": SimpleNamespace(type="meta", index=None)}, "a is on the device 'meta'; it must be on cpu or cuda"),
        ({"device": SimpleNamespace(type="mps", index=0)}, "a is on the device 'mps'"),
        (
            {"data_ptr": lambda: 0},
            "a is a Tensor without memory of its own; it must be a dense tensor",
        ),  # a fake tensor
        ({"data_ptr": no_storage}, "a is a Tensor without memory of its own"),  # a sparse tensor, or inside vmap
        ({"is_neg": lambda: True}, r"a is a view with the negative bit; pass a.resolve_neg\(\)"),
        ({"requires_grad": True}, r"a requires a gradient, .*torch.no_grad\(\), or pass a.detach\(\)"),
    ],
)
def test_conjugate_and_negative_views_are_refused(changes, words, monkeypatch):
    recording = SimpleNamespace(is_grad_enabled=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", recording)
    x = tensor("torch.float32")
    vars(x).update(changes)
    with pytest.raises(InputError, match=words):
        view(x, "a")
    if "requires_grad" in changes:
        recording.is_grad_enabled = lambda: False
        assert view(x, "a").address == 4096


def test_subclass_of_a_tensor_is_a_tensor():
    subclass = type("Weights", (type(tensor("torch.float32")),), {"__module__": "model"})
    x = subclass()
    vars(x).update(vars(tensor("torch.float32")))
    assert view(x, "a").address == 4096


def test_tensors_without_elements_have_no_address():
    x = tensor("torch.float32")
    x.shape, x.data_ptr = (0, 3), lambda: 0
    assert view(x, "a").shape == (0, 3)
