"""wmma in all its types, shapes, layouts and state spaces, against NumPy."""

from __future__ import annotations

from importlib.util import find_spec

import ml_dtypes
import numpy as np
import pytest
from emulator_kernels import run

from ptxgen.emulator.ops.matrix.rounding import fused
from ptxgen.errors import DivergenceFault, MisalignedFault, OutOfBoundsFault, UninitialisedFault, UnsupportedError

ENGINES = ["numpy", pytest.param("llvm", marks=pytest.mark.skipif(not find_spec("llvmlite"), reason="no llvmlite"))]
SQUARE = [(16, 16, 16), (8, 32, 16), (32, 8, 16)]
#: NumPy's types
DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f32": np.float32,
    "f64": np.float64,
    "s8": np.int8,
    "u8": np.uint8,
    "s32": np.int32,
}
BITS = {"s4": 4, "u4": 4, "b1": 1}
PREFIX = {"f32": "f", "f64": "g"}
CASES = [
    *(("f16", "f16", d, c, s) for d in ("f16", "f32") for c in ("f16", "f32") for s in SQUARE),
    *(("bf16", "bf16", "f32", "f32", s) for s in SQUARE),
    ("tf32", "tf32", "f32", "f32", (16, 16, 8)),
    ("f64", "f64", "f64", "f64", (8, 8, 4)),
    *((a, a, "s32", "s32", s) for a in ("s8", "u8") for s in SQUARE),
    *((a, a, "s32", "s32", (8, 8, 32)) for a in ("s4", "u4")),
    ("b1", "b1", "s32", "s32", (8, 8, 128)),
]


def count(which: str, dtype: str, shape: tuple[int, int, int]) -> int:
    """Registers of a fragment, as PTX says."""
    m, n, k = shape
    extent = {"a": m * k, "b": k * n}.get(which, m * n)
    if which in "ab" and dtype == "f16":
        return 8
    packed = {"f16": 2, "bf16": 2, "s8": 4, "u8": 4, "s4": 8, "u4": 8, "b1": 32}.get(dtype, 1)
    return extent // (32 * packed)


def draw(generator: np.random.Generator, dtype: str, rows: int, columns: int) -> np.ndarray:
    """Whole numbers, small enough for sums without rounding."""
    low, high = {"u8": (0, 256), "s8": (-128, 128), "u4": (0, 16), "s4": (-8, 8), "b1": (0, 2)}.get(dtype, (-8, 9))
    return generator.integers(low, high, (rows, columns))


def stored(x: np.ndarray, dtype: str, layout: str, pad: int) -> tuple[np.ndarray, int]:
    """A matrix as bytes, its rows (or columns) `pad` elements apart; and the stride."""
    lines = x if layout == "row" else x.T
    lines = np.pad(lines, ((0, 0), (0, pad)))
    if dtype in BITS:
        bits = BITS[dtype]
        parts = (lines[..., None] >> np.arange(bits)) & 1
        return np.packbits(parts.astype(np.uint8).reshape(-1), bitorder="little"), lines.shape[1]
    return np.ascontiguousarray(lines).astype(DTYPES[dtype]).view(np.uint8).reshape(-1), lines.shape[1]


def fragment(which: str, dtype: str, shape: tuple[int, int, int]) -> str:
    prefix = PREFIX.get(dtype, "r")
    first = {"a": 0, "b": 10, "c": 20, "d": 40}[which]
    return "{" + ", ".join(f"%{prefix}{first + i}" for i in range(count(which, dtype, shape))) + "}"


def kernel(
    a: str,
    b: str,
    d: str,
    c: str,
    shape: tuple[int, int, int],
    layouts: dict[str, str],
    strides: dict[str, int],
    space: str = "global",
    mma: str = "",
) -> str:
    m, n, k = shape
    name = f"m{m}n{n}k{k}"
    kinds = {"a": a, "b": b, "c": c, "d": d}

    def move(what: str, which: str) -> str:
        tail = f", {strides[which]}" if which in strides else ""
        at = {"a": "%d1", "b": "%d2", "c": "%d3", "d": "%d4"}[which]
        body = fragment(which, kinds[which], shape)
        ss = {"generic": "", "global": ".global", "shared": ".shared"}[space]
        full = f"wmma.{what}.{which}.sync.aligned.{layouts[which]}.{name}{ss}.{kinds[which]}"
        return f"{full} [{at}], {body}{tail};" if what == "store" else f"{full} {body}, [{at}]{tail};"

    types = f"{d}.{c}" if a == "f16" else f"{d}.{a}.{b}.{c}"
    op = f"wmma.mma{mma}.sync.aligned.{layouts['a']}.{layouts['b']}.{name}.{types}"
    f = {which: fragment(which, kinds[which], shape) for which in "abcd"}
    return "\n".join(
        [*(move("load", w) for w in "abc"), f"{op} {f['d']}, {f['a']}, {f['b']}, {f['c']};", move("store", "d")]
    )


def product(
    case: tuple,
    layouts: dict[str, str],
    pad: int,
    space: str = "global",
    mma: str = "",
    engine: str = "numpy",
    inputs: dict | None = None,
    **options,
) -> tuple[dict, np.ndarray]:
    a, b, d, c, shape = case
    m, n, k = shape
    generator = np.random.default_rng(m + k)
    x = inputs or {"a": draw(generator, a, m, k), "b": draw(generator, b, k, n), "c": draw(generator, c, m, n)}
    kinds = {"a": a, "b": b, "c": c, "d": d}
    x["d"] = np.zeros((m, n), np.int64)
    data, strides = {}, {}
    for w in "abcd":
        size = BITS.get(kinds[w], 0) or 8 * np.dtype(DTYPES[kinds[w]]).itemsize
        data[w], strides[w] = stored(x[w], kinds[w], layouts[w], pad * 128 // size)
    body = kernel(a, b, d, c, shape, layouts, strides if pad else {}, space, mma)
    if space == "shared":
        lines, declared = [], []
        for i, w in enumerate("abcd"):
            declared.append(f".shared .align 128 .b8 s{w}[{len(data[w])}];")
            lines.append(f"mov.u64 %d{i + 1}, s{w};")
            if w != "d":
                lines += [
                    f"mov.u32 %r60, 0; L{w}: cvt.u64.u32 %d9, %r60; add.u64 %d8, %q{i}, %d9; ld.global.u8 %r61, [%d8];"
                    f"add.u64 %d8, %d{i + 1}, %d9; st.shared.u8 [%d8], %r61; add.u32 %r60, %r60, 1;"
                    f"setp.lt.u32 %p1, %r60, {len(data[w])}; @%p1 bra L{w};"
                ]
        back = (
            f"mov.u32 %r60, 0; LO: cvt.u64.u32 %d9, %r60; add.u64 %d8, %d4, %d9; ld.shared.u8 %r61, [%d8];"
            f"add.u64 %d8, %q3, %d9; st.global.u8 [%d8], %r61; add.u32 %r60, %r60, 1;"
            f"setp.lt.u32 %p1, %r60, {len(data['d'])}; @%p1 bra LO;"
        )
        body = "\n".join([*lines, "bar.sync 0;", body, "bar.sync 0;", back])
        declared = "\n".join(declared)
        options.setdefault("uninitialised", pad == 0)
    else:
        body = "\n".join([*(f"mov.u64 %d{i + 1}, %q{i};" for i in range(4)), body])
        declared = ""
    names = ".reg .b32 %r32, %r33" + "".join(f", %r{i}" for i in range(34, 64)) + ";"
    names += ".reg .f32 %f32" + "".join(f", %f{i}" for i in range(33, 64)) + ";"
    names += ".reg .f64 %g32" + "".join(f", %g{i}" for i in range(33, 64)) + ";"
    run(body + "\nret;", *data.values(), engine=engine, registers=names + declared, **options)
    lines = data["d"].view(DTYPES[d]).reshape(-1, strides["d"])
    out = lines[:, : n if layouts["d"] == "row" else m]
    return x, out if layouts["d"] == "row" else out.T


@pytest.mark.each_value
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_products(case, engine):
    short = case[0] in BITS
    mma = ".xor.popc" if case[0] == "b1" else ""
    for turn, la in enumerate(["row"] if short else ["row", "col"]):
        for lb in ["col"] if short else ["row", "col"]:
            layouts = {"a": la, "b": lb, "c": "row" if turn else "col", "d": lb}
            x, out = product(case, layouts, pad=turn, mma=mma, engine=engine, space="generic" if turn else "global")
            total = (x["a"][:, :, None] ^ x["b"]).sum(axis=1) if mma else x["a"] @ x["b"]
            assert np.array_equal(out.astype(np.float64), (total + x["c"]).astype(DTYPES[case[2]]).astype(np.float64))


@pytest.mark.parametrize(
    "case", [c for c in CASES if c[4] in ((8, 32, 16), (16, 16, 8), (8, 8, 4), (8, 8, 128), (8, 8, 32))], ids=str
)
def test_shared_memory(case):
    mma = ".and.popc" if case[0] == "b1" else ""
    layouts = {"a": "row", "b": "col" if case[0] in BITS else "row", "c": "col", "d": "row"}
    x, out = product(case, layouts, pad=CASES.index(case) % 2, space="shared", mma=mma)
    assert np.array_equal(out.astype(np.float64), (x["a"] @ x["b"] + x["c"]).astype(DTYPES[case[2]]).astype(np.float64))


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("shape", SQUARE, ids=str)
def test_rounding_is_that_of_mma(element, shape):
    """Sums round as those of mma.sync do."""
    m, n, k = shape
    generator = np.random.default_rng(1)
    dtype = DTYPES[element]
    a, b = (
        (generator.standard_normal(s) * 2.0 ** generator.integers(-9, 9, s)).astype(dtype) for s in ((m, k), (k, n))
    )
    c = generator.standard_normal((m, n)).astype(np.float32)
    layouts = dict.fromkeys("abcd", "row")
    _, out = product((element, element, "f32", "f32", shape), layouts, 0, inputs={"a": a, "b": b, "c": c})
    want = fused(a.astype(np.float32), b.astype(np.float32).T, c, (element, element))
    assert np.array_equal(out.view("u4"), want.view("u4"))


def test_saturation():
    layouts = dict.fromkeys("abcd", "row")
    inputs = {"a": np.full((16, 16), 127), "b": np.full((16, 16), 127), "c": np.full((16, 16), 2**31 - 1)}
    case = ("s8", "s8", "s32", "s32", (16, 16, 16))
    wrapped = product(case, layouts, 0, inputs=dict(inputs))[1]
    assert (wrapped == (2**31 - 1 + 16 * 127 * 127) - 2**32).all()
    body = kernel("s8", "s8", "s32", "s32", (16, 16, 16), layouts, {})
    data = [inputs[w].astype(t).reshape(-1).view("u1") for w, t in (("a", "i1"), ("b", "i1"), ("c", "i4"))]
    out = np.zeros((16, 16), np.int32)
    moves = "".join(f"mov.u64 %d{i + 1}, %q{i};" for i in range(4))
    body = body.replace("s32.s8.s8.s32", "s32.s8.s8.s32.satfinite")
    run(moves + body + "ret;", *data, out, registers="".join(f".reg .b32 %r{i};" for i in range(32, 64)))
    assert (out == 2**31 - 1).all()


LOAD = "wmma.load.a.sync.aligned.row.m16n16k16{space}.f16 {{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}}, [{at}], {stride};"


@pytest.mark.parametrize(
    ("fault", "space", "setup", "at", "stride"),
    [
        (MisalignedFault, ".global", "add.u64 %d1, %q0, 16;", "%d1", "16"),
        (MisalignedFault, ".global", "mov.u64 %d1, %q0;", "%d1", "17"),
        (OutOfBoundsFault, ".global", "mov.u64 %d1, %q0;", "%d1", "24"),
        (DivergenceFault, "", "mov.u32 %r9, %tid.x; mul.wide.u32 %d1, %r9, 32; add.u64 %d1, %d1, %q0;", "%d1", "16"),
        (DivergenceFault, ".global", "mov.u64 %d1, %q0; mov.u32 %r9, %tid.x;", "%d1", "%r9"),
        (UninitialisedFault, ".shared", "mov.u64 %d1, s;", "%d1", "16"),
    ],
)
def test_faults(fault, space, setup, at, stride):
    y = np.zeros((16, 16), np.float16)
    load = LOAD.format(space=space, at=at, stride=stride)
    with pytest.raises(fault):
        run(f"{setup} {load} st.global.u32 [%q0], %r3; ret;", y, registers=".shared .align 32 .b8 s[512];")


@pytest.mark.parametrize(
    "text",
    [
        "wmma.load.a.sync.aligned.row.m16n8k16.global.f16 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%q0];",
        "wmma.load.d.sync.aligned.row.m16n16k16.global.f16 {%r0, %r1, %r2, %r3}, [%q0];",
        "wmma.load.a.sync.aligned.row.m16n16k8.global.bf16 {%r0, %r1}, [%q0];",
    ],
)
def test_invalid_text(text):
    with pytest.raises(UnsupportedError):
        run(f"{text} ret;", np.zeros(512, np.float16))


@pytest.mark.parametrize(
    ("shape", "a", "b", "how"),
    [
        ((8, 32), "s4", "u4", ""),
        ((16, 32), "u4", "s4", ""),
        ((16, 64), "s4", "s4", ".satfinite"),
        ((8, 128), "b1", "b1", ".xor.popc"),
        ((16, 128), "b1", "b1", ".and.popc"),
        ((16, 256), "b1", "b1", ".xor.popc"),
    ],
    ids=str,
)
def test_mma_of_elements_shorter_than_a_byte(shape, a, b, how):
    """mma.sync: register r of lane l holds elements of row l / 4 + 8 (r % 2) of A, and of column l / 4 of B."""
    (m, k), bits = shape, BITS[a]
    packed, generator = 32 // bits, np.random.default_rng(k)
    x, y, z = draw(generator, a, m, k), draw(generator, b, 8, k), draw(generator, "s32", m, 8)

    def words(matrix: np.ndarray) -> np.ndarray:
        """[row, word along k]"""
        parts = (matrix.reshape(len(matrix), -1, packed) & (1 << bits) - 1).astype(np.uint64)
        return (parts << np.arange(0, 32, bits, dtype=np.uint64)).sum(axis=2).astype(np.uint32)

    lane, high = np.arange(32), m // 8
    regs_a = [words(x)[lane // 4 + 8 * (r % high), lane % 4 + 4 * (r // high)] for r in range(m * k // (32 * packed))]
    regs_b = [words(y)[lane // 4, lane % 4 + 4 * r] for r in range(8 * k // (32 * packed))]
    regs_c = [z[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2].astype(np.int32).view("u4") for i in range(m // 4)]
    given = np.array([*regs_a, *regs_b, *regs_c])
    out = np.zeros((m // 4, 32), np.int32)
    loads = [f"ld.global.u32 %r{i}, [%d0+{128 * i}];" for i in range(len(given))]
    names = [f"%r{i}" for i in range(len(given))]
    ends = len(regs_a), len(regs_a) + len(regs_b)
    fragments = [", ".join(names[i:j]) for i, j in ((0, ends[0]), ends, (ends[1], len(names)))]
    results = [f"%r{20 + i}" for i in range(m // 4)]
    sat, pop = (how, "") if how == ".satfinite" else ("", how)
    run(
        f"""mov.u32 %r30, %tid.x; mad.wide.u32 %d0, %r30, 4, %q0; mad.wide.u32 %d1, %r30, 4, %q1; {" ".join(loads)}
        mma.sync.aligned.m{m}n8k{k}.row.col{sat}.s32.{a}.{b}.s32{pop} {{{", ".join(results)}}},
        {", ".join("{" + f + "}" for f in fragments)};
        {" ".join(f"st.global.u32 [%d1+{128 * i}], {r};" for i, r in enumerate(results))} ret;""",
        given,
        out,
    )
    total = z + ((x[:, None] ^ y).sum(axis=2) if "xor" in how else x @ y.T)
    want = [total[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2] for i in range(m // 4)]
    assert np.array_equal(out, want)
