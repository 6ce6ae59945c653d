"""Generated text and its launch: the digest, and parameter offsets of PTX."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from ptxgen.codegen.source import Source, Step, TensorMap, digest
from ptxgen.cuda_abi import MAP_ALIGNMENT, MAP_BYTES, PARAMETERS_AT
from ptxgen.emulator import Machine

TEXT = """
.version 8.1   // a comment
.target sm_90
/* several
   lines */ .visible .entry k()
{
    // nothing
    mov.u32 %r1, 5;   /* five */
    ret;
}
"""


def test_digest_ignores_comments_only():
    same = """.version 8.1
    .target sm_90

    .visible   .entry k()
    { // opened
    mov.u32 %r1, 5; // five /* not opened
    ret; }"""
    plain = digest(TEXT)
    assert len(plain) == 16
    assert int(plain, 16) >= 0
    assert digest(same.replace("; }", ";\n}")) == plain
    assert digest(TEXT.replace("five", "six").replace("nothing", "") + "\n\n// the end") == plain
    assert digest(TEXT.replace("5;", "6;")) != plain
    assert digest(TEXT.replace("    ret;\n", "")) != plain
    assert digest(TEXT.replace(".version", "// .version")) != plain
    assert Source(TEXT, ("k",), "sm_90").digest == plain


def test_parameter_offsets_follow_ptx():
    """Every sequence of types, against the offsets that the emulated device gives the same parameters."""
    rng = np.random.default_rng(0)
    kinds = {"u64": "<u8", "u32": "<u4", "s32": "<i4", "f32": "<f4", "f64": "<f8", "b16": "<u2"}
    for _ in range(200):
        types = [str(rng.choice(list(kinds))) for _ in range(rng.integers(1, 12))]
        text = (
            ".version 8.1\n.target sm_90\n.address_size 64\n.visible .entry k("
            + ", ".join(f".param .{t} p{i}" for i, t in enumerate(types))
            + ")\n{\n    ret;\n}\n"
        )
        parameters = Machine().load(text)["k"].parameters
        step = Step("k", (1, 1, 1), arguments=tuple((t, i + 1) for i, t in enumerate(types)))
        packed = step.pack({})
        assert len(packed) == parameters[-1].offset + parameters[-1].size
        for i, (t, p) in enumerate(zip(types, parameters, strict=True)):
            assert np.frombuffer(packed, kinds[t], 1, p.offset)[0] == i + 1


def test_caller_arguments_are_looked_up():
    step = Step("k", (1, 1, 1), arguments=(("u64", "A"), ("u32", 7), ("f64", "alpha"), ("f32", "beta")))
    assert step.format == "@QIdf"
    assert step.pack({"A": 1 << 40, "alpha": 0.1, "beta": -2.0}) == struct.pack("@QIdf", 1 << 40, 7, 0.1, -2.0)
    with pytest.raises(KeyError):
        step.pack({"A": 1})


def test_tensor_maps_follow_with_their_alignment():
    maps = [TensorMap(name, "f16", (64, 64), (128,), (64, 8), 128) for name in "AB"]
    step = Step("k", (1, 1, 1), arguments=(("u64", "C"), ("u32", 7), *(("map", m) for m in maps)))
    assert step.maps == tuple(maps)
    plain = step.pack({"C": 5})
    assert plain[:12] == struct.pack("@QI", 5, 7)
    assert (len(plain) + PARAMETERS_AT) % MAP_ALIGNMENT == 0
    seen = []

    def encode(m: TensorMap, address: int) -> bytes:
        seen.append((m.operand, address))
        return bytes([address]) * MAP_BYTES

    assert step.pack_maps(encode, {"A": 1, "B": 2, "C": 3}) == b"\x01" * MAP_BYTES + b"\x02" * MAP_BYTES
    assert seen == [("A", 1), ("B", 2)]
    assert Step("k", (1, 1, 1), arguments=(("u32", 7),)).pack({}) == struct.pack("@I", 7)
