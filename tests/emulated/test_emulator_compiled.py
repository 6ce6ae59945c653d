"""Kernels compiled by nvcc from CUDA C++: the files of emulator_ptx, each with its expected results."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import compute, run

from ptxgen.emulator import launch
from ptxgen.errors import Fault

PTX = Path(__file__).parent / "emulator_ptx"
ENGINES = ["numpy", pytest.param("llvm", marks=pytest.mark.skipif(not find_spec("llvmlite"), reason="no llvmlite"))]


def text(name: str) -> str:
    return (PTX / f"{name}.ptx").read_text()


@pytest.mark.parametrize("engine", ENGINES)
def test_division_of_128_bits(engine):
    """q = a / b, r = a % b, s = signed a / signed b - b, of __int128."""
    generator = np.random.default_rng(5)
    n = 200
    words = generator.integers(0, 1 << 64, (2, n, 2), dtype="u8")
    words[1, ::3, 1] = 0  # divisors of one word
    words[1, ::4, 1] >>= generator.integers(0, 64, (n + 3) // 4, dtype="u8")
    words[1, 1::5] = words[0, 1::5]
    words[0, 2::7, 1] = (1 << 64) - 1
    words[1, ..., 0] |= 1
    q, r, s = (np.zeros((n, 2), "u8") for _ in range(3))
    launch(text("div128"), "div128", -(-n // 64), 64, [words[0], words[1], q, r, s, np.int32(n)], engine=engine)

    def whole(pairs: np.ndarray) -> list[int]:
        return [int(low) | int(high) << 64 for low, high in pairs]

    def signed(x: int) -> int:
        return x - (x >> 127 << 128)

    a, b = whole(words[0]), whole(words[1])
    assert whole(q) == [x // y for x, y in zip(a, b, strict=True)]
    assert whole(r) == [x % y for x, y in zip(a, b, strict=True)]
    want = []
    for x, y in zip(map(signed, a), map(signed, b), strict=True):
        quotient = abs(x) // abs(y)
        want.append(((quotient if (x < 0) == (y < 0) else -quotient) - y) % (1 << 128))
    assert whole(s) == want


def test_carry_of_a_subtraction():
    """sub.cc and subc.cc compute a + ~b + carry: the flag is set if nothing is borrowed, as addc then reads it."""
    a = np.array([5, 3, 7, 0, 0xFFFFFFFF], "u4")
    b = np.array([3, 5, 7, 0, 0xFFFFFFFF], "u4")
    flag = compute("sub.cc.u32 %a, %a, %b; addc.u32 %z, 0, 0;", np.uint32, a, b)
    assert flag.tolist() == [1, 0, 1, 1, 1]
    after_sum = compute("add.cc.u32 %a, %a, %b; subc.u32 %z, 10, 4;", np.uint32, a, b)
    assert after_sum.tolist() == [5, 5, 5, 5, 6]
    chain = compute("sub.cc.u32 %a, %a, %b; subc.cc.u32 %b, 0, 0; addc.u32 %z, 0, 0;", np.uint32, a, b)
    assert chain.tolist() == [1, 0, 1, 1, 1]


@pytest.mark.parametrize("engine", ENGINES)
def test_wmma_in_f16(engine):
    """D = 2 A B + C / 2, with A by rows and B by columns; a warp a tile of 16 x 16."""
    generator = np.random.default_rng(2)
    m, n, k = 64, 48, 64
    a, b = (generator.integers(-4, 5, s).astype(np.float16) for s in ((m, k), (n, k)))
    c = generator.integers(-8, 9, (m, n)).astype(np.float32)
    d = np.zeros_like(c)
    grid, block = (1, n // 16), (32 * m // 16, 1)
    launch(text("wmma"), "wmma_f16", grid, block, [a, b, c, d, *map(np.int32, (m, n, k))], engine=engine)
    assert np.array_equal(d, 2 * (a.astype(np.float32) @ b.astype(np.float32).T) + c / 2)


def test_wmma_of_shared_memory():
    """D = A B + 3 of s8, 32 x 8 x 16: A and D by columns, B by rows."""
    generator = np.random.default_rng(3)
    a, b = (generator.integers(-128, 128, s).astype(np.int8) for s in ((16, 32), (16, 8)))
    d = np.zeros((8, 32), np.int32)
    launch(text("wmma"), "wmma_shared", 1, 32, [a, b, d])
    assert np.array_equal(d.T, a.T.astype(np.int32) @ b.astype(np.int32) + 3)


@pytest.mark.parametrize("engine", ENGINES)
def test_assertions_and_printf(engine, capsys):
    x = np.arange(40, dtype=np.int32) * 3
    y = np.zeros_like(x)
    launch(text("asserts"), "checked", 2, 20, [x, y, np.int32(40)], engine=engine)
    assert (y == 2 * x).all()
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(
        f"thread {i % 20} of block {i // 20}: {x[i] * 0.5:5.2f} half {int(x[i]) << 33} {chr(97 + i % 26)}%"
        for i in (3, 19, 35)
    )
    launch(text("asserts"), "hello", 2, 3, [], engine=engine)
    assert capsys.readouterr().out == 6 * "hello\n"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("change", "n", "message", "thread"),
    [
        (-1, 32, r"asserts.cu:6: void checked\(const int \*, int \*, int\): assertion `x\[i\] >= 0` failed", (7, 0, 0)),
        (5, 24, r'asserts.cu:5: .*: assertion `i < n && "one thread an element"` failed', (24, 0, 0)),
    ],
)
def test_failed_assertions(engine, change, n, message, thread):
    x, y = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    x[7] = change
    with pytest.raises(Fault, match=message) as raised:
        launch(text("asserts"), "checked", 1, 32, [x, y, np.int32(n)], engine=engine)
    assert raised.value.thread == thread


@pytest.mark.parametrize(
    ("text_", "values", "printed"),
    [
        ("%d %i %u|", [("s32", -7), ("s32", 8), ("s32", -1)], "-7 8 4294967295|"),
        (
            "%5.1f|%-8e|%+g|%G",
            [("f64", 2.25), ("f64", 1e-3), ("f64", 0.5), ("f64", 1e30)],
            "  2.2|1.000000e-03|+0.5|1E+30",
        ),
        ("%08lx %#X %o", [("s64", 1 << 40), ("s32", 255), ("s32", 8)], "10000000000 0XFF 10"),
        (
            "%*d|%-*d|%.*f",
            [("s32", 5), ("s32", 42), ("s32", 4), ("s32", 1), ("s32", 2), ("f64", 3.14159)],
            "   42|1   |3.14",
        ),
        (
            "%c%c %hhd %hu %zu %p %%",
            [("s32", 72), ("s32", 105), ("s32", 257), ("s32", 65537), ("s64", 3), ("s64", 4096)],
            "Hi 1 1 3 0x1000 %",
        ),
        ("%a %f %f", [("f64", 1.0), ("f64", float("inf")), ("f64", float("nan"))], "0x1p+0 inf nan"),
    ],
)
def test_printf_conversions(text_, values, printed, capsys):
    """Arguments are in the buffer, each at a multiple of its size; the result is their number."""
    declared = ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);"
    declared += f".global .b8 form[{len(text_) + 1}] = {{{', '.join(str(x) for x in text_.encode())}, 0}};"
    at, stores = 0, []
    for conversion, value in values:
        size = int(conversion[1:]) // 8
        at = -(-at // size) * size
        bits = int(np.array(value, {"s32": "i4", "s64": "i8", "f64": "f8"}[conversion]).view(f"u{size}"))
        stores.append(f"st.local.u{8 * size} [buffer+{at}], {bits};")
        at += size
    y = np.zeros(1, "u4")
    run(
        f"""{" ".join(stores)} mov.u64 %d1, form; mov.u64 %d2, buffer; cvta.local.u64 %d2, %d2;
        {{ .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %d1; st.param.b64 [a], %d2;
        call.uni (r), vprintf, (f, a); ld.param.b32 %r1, [r]; }} st.global.u32 [%q0], %r1; ret;""",
        y,
        block=1,
        registers=".local .align 8 .b8 buffer[64];",
        extra=declared,
    )
    assert capsys.readouterr().out == printed
    assert y[0] == len(values)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("blocks", [1, 7, 100])
def test_grid_barriers(engine, blocks):
    """cooperative_groups: each block's sum, after grid.sync() the total, after another the total of the other blocks."""
    n = 5000
    x = np.random.default_rng(6).integers(-8, 9, n).astype(np.float32)
    partial, total = np.zeros(blocks, np.float32), np.zeros(1, np.float32)
    launch(text("coop"), "grid_sum", blocks, 96, [x, partial, total, np.int32(n)], engine=engine, lanes=1024)
    mine = x[np.arange(n)]
    want = np.array([mine[(np.arange(n) // 96) % blocks == b].sum() for b in range(blocks)])
    assert total[0] == x.sum()
    assert np.array_equal(partial, x.sum() - want)


def ackermann(m: int, n: int) -> int:
    if m == 0:
        return n + 1
    return ackermann(m - 1, 1 if n == 0 else ackermann(m, n - 1))


@pytest.mark.parametrize("engine", ENGINES)
def test_recursion(engine):
    """Ackermann's function, mutually recursive even and odd, and a quicksort in the thread's stack."""
    m, n = (x.astype(np.int32) for x in np.divmod(np.arange(33), 3))
    m %= 3
    y, ordered = np.zeros((33, 3), np.int32), np.zeros((33, 12), np.int32)
    launch(text("recursion"), "recursive", 2, 32, [m, n, y, ordered, np.int32(33)], engine=engine)
    assert y[:, 0].tolist() == [ackermann(int(a), int(b)) for a, b in zip(m, n, strict=True)]
    assert (y[:, 1] == ((n * 3 + m) % 2 == 0)).all()
    want = (m[:, None] * 7919 + n[:, None] * 104729 + np.arange(12) * 31) % 61
    assert np.array_equal(ordered, np.sort(want, axis=1))
