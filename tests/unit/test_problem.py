"""Problems: validation, error messages, and the text form."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest

from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm, parse_shape
from ptxgen.problem.base import COMPUTE_MODES, EXTENT_LIMIT, OUT_DTYPES
from ptxgen.problem.registry import from_dict, parse


def random_problems(seed: int, n: int) -> list[Gemm]:
    rng = np.random.default_rng(seed)
    out = []
    while len(out) < n:
        dtype = str(rng.choice(list(COMPUTE_MODES)))
        m, n_, k = (int(x) for x in rng.choice([0, 1, 2, 7, 16, 33, 100, 4096, EXTENT_LIMIT - 20], 3))
        if max(m, n_, k) > 4096 and sorted((m, n_, k))[1] > 100:
            continue  # no GPU addresses such a matrix
        layout = str(rng.choice(LAYOUTS))
        plain = Gemm(
            m, n_, k, layout, dtype, str(rng.choice(COMPUTE_MODES[dtype])), out=str(rng.choice(OUT_DTYPES[dtype]))
        )
        values = {"deterministic": bool(rng.random() < 0.5)}
        for name, columns in (("lda", plain.columns_a), ("ldb", plain.columns_b), ("ldc", n_)):
            if rng.random() < 0.5:
                values[name] = max(columns, 1) + int(rng.integers(0, 17))
        for name, size in (("a", plain.element.bytes), ("b", plain.element.bytes), ("c", plain.output.bytes)):
            if rng.random() < 0.5:
                values[f"aligned_{name}"] = int(rng.choice([x for x in (1, 2, 4, 8, 16) if x >= size]))
        out.append(Gemm(m, n_, k, layout, dtype, plain.compute, out=plain.out, **values))
    return out


def test_key_parse_and_dict_round_trip():
    seen: dict[str, Gemm] = {}
    for p in random_problems(1, 300):
        assert parse(p.key()) == p
        assert from_dict(p.as_dict()) == p
        assert from_dict(json.loads(json.dumps(p.as_dict()))) == p
        assert seen.setdefault(p.key(), p) == p  # one key, one problem
        assert p.key().count("\n") == 0
    assert len(set(seen)) == len(set(seen.values()))


def test_key_omits_defaults():
    assert Gemm(3, 4, 5).key() == "gemm 3,4,5 NN f32"
    assert Gemm(3, 4, 5, lda=5, ldb=4, ldc=4, compute="f32", out="f32").key() == "gemm 3,4,5 NN f32"
    p = Gemm(3, 4, 5, "TN", "f16", "f16", lda=8, aligned_b=4, deterministic=True)
    assert p.key() == "gemm 3,4,5 TN f16 compute=f16 lda=8 aligned_b=4 deterministic=1"
    assert p == parse("gemm 3,4,5 TN f16 deterministic=1 lda=8 aligned_b=4 compute=f16")


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("", InputError, "must have the form"),
        ("gemm 1,2,3 NN", InputError, "must have the form"),
        ("conv 1,2,3 NN f32", ShapeError, "must read"),
        ("sddmm 1,2,3 NN f32", InputError, "must have the form"),
        ("gemm 1,2 NN f32", ShapeError, "shape is '1,2'"),
        ("gemm 1,2,x NN f32", ShapeError, "shape"),
        ("gemm 1,-2,3 NN f32", ShapeError, "shape"),
        ("gemm 1,2,3 NX f32", ShapeError, "layout is 'NX'"),
        ("gemm 1,2,3 NN f31", DtypeError, "dtype is 'f31'"),
        ("gemm 1,2,3 NN tf32", DtypeError, "dtype is 'tf32'; this is a value of compute, with dtype f32"),
        ("gemm 1,2,3 NN f32 lda", InputError, "'lda'"),
        ("gemm 1,2,3 NN f32 lda=", InputError, "lda"),
        ("gemm 1,2,3 NN f32 lda=abc", InputError, "lda must be an integer"),
        ("gemm 1,2,3 NN f32 lda=-4", InputError, "lda must be an integer"),
        ("gemm 1,2,3 NN f32 lda=4 lda=5", InputError, "once"),
        ("gemm 1,2,3 NN f32 deterministic=yes", InputError, "deterministic must be 0 or 1"),
        ("gemm 1,2,3 NN f32 m=4", InputError, "'m=4'"),
        ("gemm 1,2,3 NN f32 dtype=f16", InputError, "'dtype=f16'"),
        ("gemm 1,2,3 NN f32 colour=red", InputError, "colour"),
        (
            "gemm 1,2,3 NN f32 epilogue=relu,bias_column",
            InputError,
            "epilogue is 'relu,bias_column'; .* order of execution: bias_column,relu",
        ),
        ("gemm 1,2,3 NN f32 compute=f16", DtypeError, "compute is 'f16'"),
        ("gemm 1,2,3 NN f32 aligned_a=3", ShapeError, "aligned_a is 3"),
        ("gemm 1,2,99999999999 NN f32", ShapeError, "k is 99999999999"),
    ],
)
def test_invalid_text_is_refused(text, error, words):
    with pytest.raises(error, match=words):
        parse(text)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"m": 1, "n": 2}, "lacks k"),
        ({"m": 1, "n": 2, "k": 3, "mm": 4}, "problem has mm"),
        ({"m": 1, "n": 2, "k": 3, "operation": "sddmm"}, "sddmm"),
        ({"m": "1", "n": 2, "k": 3}, "m is '1'"),
        ({"m": 1.0, "n": 2, "k": 3}, r"m is 1\.0"),
        ({"m": 1, "n": None, "k": 3}, "n is None"),
        ({"m": 1, "n": 2, "k": 3, "lda": "8"}, "lda is '8'"),
        ({"m": 1, "n": 2, "k": 3, "lda": 8.5}, r"lda is 8\.5"),
        ({"m": 1, "n": 2, "k": 3, "aligned_c": True}, "aligned_c is True"),
        ({"m": 1, "n": 2, "k": 3, "dtype": ["f32"]}, "dtype"),
        ({"m": 1, "n": 2, "k": 3, "layout": 5}, "layout"),
        ({"m": 1, "n": 2, "k": 3, "deterministic": "yes"}, "deterministic"),
    ],
)
def test_invalid_dicts_are_refused(values, words):
    with pytest.raises(InputError, match=words):
        from_dict(values)


@pytest.mark.parametrize(
    ("layout", "dtype", "fields"),
    [
        ("nt", "fp16", ("NT", "f16", "f32", "f16")),
        ("Nt", "half", ("NT", "f16", "f32", "f16")),
        ("NT", "torch.float32", ("NT", "f32", "f32", "f32")),
        ("NT", "double", ("NT", "f64", "f64", "f64")),
        ("NT", "float8_e4m3fn", ("NT", "e4m3", "f32", "bf16")),
        ("NT", "INT8", ("NT", "s8", "s32", "s32")),
    ],
)
def test_other_names_of_types_and_layouts_make_the_same_problem(layout, dtype, fields):
    p = Gemm(4, 5, 6, layout, dtype)
    assert (p.layout, p.dtype, p.compute, p.out) == fields
    assert p == Gemm(4, 5, 6, fields[0], fields[1])
    assert Gemm(4, 5, 6, dtype="half", compute="FP16", out="float").out == "f32"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"m": -1}, "m is -1; it must be an integer from 0"),
        ({"n": EXTENT_LIMIT}, f"n is {EXTENT_LIMIT}; it must be an integer from 0 to {EXTENT_LIMIT - 1}"),
        ({"k": True}, "k is True"),
        ({"lda": 4}, "lda is 4; it must be from 5"),
        ({"ldb": 3}, "ldb is 3; it must be from 4"),
        ({"ldc": 3}, "ldc is 3; it must be from 4"),
        ({"lda": EXTENT_LIMIT}, "lda is"),
        ({"aligned_a": 2}, "aligned_a is 2 bytes; it must be a power of two from 4 to 16"),
        ({"aligned_b": 32}, "aligned_b is 32"),
        ({"aligned_c": 0}, "aligned_c is 0"),
        ({"layout": "nx"}, "layout is 'nx'; it must be one of NN, NT, TN, TT"),
        ({"dtype": "float31"}, "dtype is 'float31'; it must be one of f16"),
        ({"compute": "f64"}, "compute is 'f64'; with dtype f32"),
        ({"out": "f16"}, "out is 'f16'; with dtype f32"),
    ],
)
def test_messages_name_the_argument_and_the_rule(values, words):
    with pytest.raises(InputError, match=words):
        Gemm(**{"m": 3, "n": 4, "k": 5, **values})


def test_numpy_integers_become_int():
    p = Gemm(np.int64(3), np.int32(4), np.uint8(5), lda=np.int64(8))
    assert p == Gemm(3, 4, 5, lda=8)
    assert {type(v) for v in (p.m, p.n, p.k, p.lda, p.aligned_a)} == {int}
    assert json.dumps(p.as_dict())


def test_leading_dimensions_default_to_packed_rows():
    for layout, m, n, k in itertools.product(LAYOUTS, (0, 3), (0, 4), (0, 5)):
        p = Gemm(m, n, k, layout)
        assert p.lda == max(k if layout[0] == "N" else m, 1)
        assert p.ldb == max(n if layout[1] == "N" else k, 1)
        assert p.ldc == max(n, 1)


def widest(start: int, rows: int, columns: int, ld: int, size: int) -> int:
    """The widest access, in elements, that divides every row and the start's alignment."""
    best = 1
    for vec in (2, 4, 8, 16):
        bytes_ = vec * size
        if bytes_ > 16:
            break
        starts = {(start + r * ld * size) % bytes_ for r in range(max(rows, 2))}
        if starts == {0} and columns % vec == 0:
            best = vec
    return best


def test_alignment_class_is_what_every_row_allows():
    for p in random_problems(5, 2000):
        if p.columns_a > 5000 or p.columns_b > 5000 or p.n > 5000:
            continue
        size, out = p.element.bytes, p.output.bytes
        expected = (
            widest(p.aligned_a, 8, p.columns_a, p.lda, size),
            widest(p.aligned_b, 8, p.columns_b, p.ldb, size),
            widest(p.aligned_c, 8, p.n, p.ldc, out),
        )
        assert p.vectors == expected, p.key()


def test_work_and_traffic():
    p = Gemm(3, 4, 5, "TN", "f16")
    assert p.flops == 2 * 3 * 4 * 5
    assert p.bytes == 2 * (15 + 20 + 12)
    assert Gemm(0, 4, 5).flops == 0
    assert Gemm(2**22, 2**22, 2**22).flops == 2**67


def test_shapes_as_text():
    assert parse_shape("1,2,3") == (1, 2, 3)
    assert parse_shape(" 10 , 0,30 ") == (10, 0, 30)
    for text in ("", "1,2", "1,2,3,4", "1;2;3", "1,2,-3", "1,2,3.0", "1,,3", "a,b,c"):
        with pytest.raises(ShapeError, match="shape is"):
            parse_shape(text)


def test_blocks_with_scales_are_part_of_the_text() -> None:
    p = Gemm(300, 200, 260, "NT", "e4m3", block_a="1x128", block_b="128x128t")
    assert parse(p.key()) == p
    assert p.arrays == ("A", "B", "C", "scale_a", "scale_b")
    assert p.scale_shapes == {"scale_a": (300, 3), "scale_b": (3, 2)}
    assert "--block-a 1x128 --block-b 128x128t" in p.command_options


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"block_b": ""}, InputError, "block_b is ''; it must be one of 1x128, 128x128"),
        ({"block_a": "1x64"}, InputError, "block_a is '1x64'"),
        ({"dtype": "f16"}, DtypeError, "block_a is 1x128 with dtype f16"),
        ({"compute": "f32_fast_accum"}, DtypeError, "compute f32_fast_accum"),
        ({"out": "e4m3"}, DtypeError, "out e4m3"),
        ({"epilogue": "scale_rows"}, InputError, "epilogue has scale_rows"),
    ],
)
def test_blocks_with_scales_are_checked(fields, error, text) -> None:
    with pytest.raises(error, match=re.escape(text)):
        Gemm(
            **{"m": 8, "n": 8, "k": 8, "layout": "NT", "dtype": "e4m3", "block_a": "1x128", "block_b": "1x128"} | fields
        )
