"""Textures and surfaces: sampling, address modes, geometries, queries, and accesses by coordinates."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.emulator import Machine, launch, texture
from ptxgen.errors import Fault, InputError, MisalignedFault, OutOfBoundsFault, ParseError, RaceFault, UnsupportedError

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.global .texref ref;
.global .surfref surface;
.visible .entry k(.param .u64 tex, .param .u64 at, .param .u64 out)
{
.reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %d<8>; .reg .pred %p<2>; .reg .b16 %h<4>;
ld.param.u64 %d0, [tex]; ld.param.u64 %d1, [at]; ld.param.u64 %d2, [out];
mov.u32 %r0, %tid.x; mad.wide.u32 %d1, %r0, 16, %d1; mad.wide.u32 %d2, %r0, 16, %d2;
ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d1];
"""
TAIL = "st.global.v4.b32 [%d2], {%r1, %r2, %r3, %r4}; ret; }"
C = {1: "{%r1}", 2: "{%r1, %r2}", 3: "{%r1, %r2, %r3, %r4}", 4: "{%r1, %r2, %r3, %r4}"}


def sampled(t: object, body: str, *coordinates: object, dtype: type = np.float32, **options: object) -> np.ndarray:
    """Results of a texture read at coordinates, one column each, as [thread, 4]; BODY names the texture %d0."""
    columns = np.broadcast_arrays(*coordinates)
    at = np.zeros((columns[0].size, 4), np.uint32)
    for i, column in enumerate(columns):
        at[:, i] = np.ascontiguousarray(column).reshape(-1).view(np.uint32)
    out = np.zeros_like(at)
    launch(HEAD + body + TAIL, "k", 1, len(at), [t, at, out], **options)
    return out.view(dtype)


def tex(geometry: str, kinds: str = "f32.f32", count: int = 0) -> str:
    return f"tex.{geometry}.v4.{kinds} {C[4]}, [%d0, {C[count or int(geometry[-2])]}];"


X = np.linspace(-1.5, 6, 61).astype(np.float32)
ROW = np.array([3, -1, 4, 1, 5], np.float32)


def test_point_sampling_and_clamp():
    got = sampled(texture(ROW), tex("1d"), X)
    assert (got[:, 0] == ROW[np.clip(np.floor(X).astype(int), 0, 4)]).all()
    assert (got[:, 1:] == [0, 0, 1]).all()


def test_linear_filtering_has_weights_of_8_bits():
    x = np.random.default_rng(0).uniform(1, 4, 100).astype(np.float32)
    fixed = np.floor((x.astype(float) - 0.5) * 256 + 0.5).astype(int)
    i, a = fixed >> 8, (fixed & 255) / 256
    want = ((1 - a) * ROW[i] + a * ROW[i + 1]).astype(np.float32)
    got = sampled(texture(ROW, filter="linear"), tex("1d"), x)[:, 0]
    assert (got == want).all()
    assert abs(got - np.interp(x - 0.5, np.arange(5), ROW)).max() > 1e-4


@pytest.mark.parametrize(
    ("mode", "period"),
    [("wrap", [0, 1, 2, 3, 4]), ("mirror", [0, 1, 2, 3, 4, 4, 3, 2, 1, 0]), ("clamp", None), ("border", None)],
)
@pytest.mark.parametrize("filter", ["point", "linear"])
def test_address_modes(mode, period, filter):
    """Normalised coordinates, also negative ones and ones above 1."""
    cells = np.arange(-7, 13)
    u = ((cells + (0.5 if filter == "point" else 1)) / 5).astype(np.float32)

    def texel(i: np.ndarray) -> np.ndarray:
        if period is not None:
            return ROW[np.array(period)[i % len(period)]]
        return np.where((mode == "clamp") | ((i >= 0) & (i < 5)), ROW[np.clip(i, 0, 4)], 9)

    want = texel(cells) if filter == "point" else (texel(cells) + texel(cells + 1)) / 2
    t = texture(ROW, address=mode, normalised=True, filter=filter, border=(9, 9, 9, 9))
    assert (sampled(t, tex("1d"), u)[:, 0] == want).all()


def test_geometries():
    """3D filtering, layers, and offsets in texels."""
    rng = np.random.default_rng(0)
    volume = rng.integers(0, 100, (3, 4, 5)).astype(np.float32)
    x, y, z = (np.array(v, np.float32) for v in ([1.5, 2, 4.5, 1], [1.5, 2, 3.5, 1], [1.5, 2, 2.5, 1]))
    got = sampled(texture(volume, filter="linear"), tex("3d", count=4), x, y, z)[:, 0]
    half = volume[0:2, 0:2, 0:2].mean()
    assert (got == [volume[1, 1, 1], volume[1:3, 1:3, 1:3].mean(), volume[2, 3, 4], half]).all()
    layer = np.array([0, 2, 7, 1], np.uint32)
    got = sampled(texture(volume, layered=True), tex("a2d", count=4), layer, x, y)[:, 0]
    assert (got == volume[np.minimum(layer, 2), np.floor(y).astype(int), np.floor(x).astype(int)]).all()
    got = sampled(texture(volume[0], layered=True), tex("a1d", "f32.s32", 2), layer, np.array([0, 1, 2, 3], np.uint32))
    assert (got[:, 0] == volume[0][np.minimum(layer, 3), [0, 1, 2, 3]]).all()
    offset = f"mov.u32 %r5, 1; mov.u32 %r6, -1; tex.2d.v4.f32.f32 {C[4]}, [%d0, {C[2]}], {{%r5, %r6}};"
    assert sampled(texture(volume[0]), offset, np.float32(1.5), np.float32(2.5))[0, 0] == volume[0, 1, 2]


def test_cube():
    """Each axis direction hits the centre of its face."""
    faces = np.arange(6 * 9, dtype=np.float32).reshape(6, 3, 3)
    x, y, z = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]], np.float32).T
    got = sampled(texture(faces, cube=True), tex("cube", count=4), x, y, z)[:, 0]
    assert (got == faces[:, 1, 1]).all()
    got = sampled(texture(faces, cube=True), tex("cube", count=4), np.float32(1), np.float32(0.9), np.float32(-0.9))
    assert got[0, 0] == faces[0, 0, 2]  # s = -z, t = -y


def test_types():
    """Integers as they are, or as fractions; half precision; channels; a predicate."""
    x = np.arange(4, dtype=np.float32) + 0.5
    u8 = np.array([[0, 1, 2, 255], [3, 4, 5, 6], [7, 8, 9, 10], [128, 0, 0, 0]], np.uint8)
    got = sampled(texture(u8, channels=4), tex("1d", "u32.f32"), x, dtype=np.uint32)
    assert (got == u8).all()
    got = sampled(texture(u8, channels=4, fractions=True), tex("1d"), x)
    assert (got == u8 / np.float32(255)).all()
    s16 = np.array([-32768, -32767, 5, 32767], np.int16)
    assert (sampled(texture(s16), tex("1d", "s32.f32"), x, dtype=np.int32)[:, 0] == s16).all()
    got = sampled(texture(s16, fractions=True), tex("1d").replace("}, [", "}|%p1, ["), x)[:, 0]
    assert (got == np.maximum(s16 / np.float32(32767), -1)).all()
    half = np.array([1.5, -2, 65504, 0.1], np.float16)
    assert (sampled(texture(half), tex("1d"), x)[:, 0] == half.astype(np.float32)).all()
    fetched = sampled(texture(ROW), tex("1d", "f32.s32"), np.array([-1, 0, 4, 5], np.int32))[:, 0]
    assert (fetched == [0, 3, 5, 0]).all()


def test_gather_queries_and_references():
    image = np.arange(12, dtype=np.float32).reshape(3, 4)
    body = f"tld4.r.2d.v4.f32.f32 {C[4]}, [%d0, {C[2]}];"
    got = sampled(texture(image), body, np.float32(2), np.float32(1))
    assert (got[0] == [5, 6, 2, 1]).all()
    queries = "txq.width.b32 %r1, [%d0]; txq.height.b32 %r2, [%d0]; txq.channel_order.b32 %r3, [%d0]; txq.depth.b32 %r4, [%d0];"
    assert (sampled(texture(image), queries, np.float32(0), dtype=np.uint32)[0] == [4, 3, 0x10B0, 0]).all()
    t = texture(image + 1)
    body = tex("2d").replace("%d0", "ref")
    got = sampled(texture(image), body, np.float32(2), np.float32(1), variables={"ref": t})
    assert got[0, 0] == image[1, 2] + 1


def test_surfaces():
    """x is in bytes; outside, .zero drops, .clamp takes the nearest, and .trap is a fault."""
    image = np.arange(12, dtype=np.uint32).reshape(3, 4)
    x, y = np.array([0, 4, 12, 16, -4], np.int32), np.array([0, 1, 2, 1, 2], np.int32)
    load = "suld.b.2d.b32.MODE %r1, [%d0, {%r1, %r2}];"
    assert (
        sampled(texture(image), load.replace("MODE", "zero"), x, y, dtype=np.uint32)[:, 0] == [0, 5, 11, 0, 0]
    ).all()
    assert (
        sampled(texture(image), load.replace("MODE", "clamp"), x, y, dtype=np.uint32)[:, 0] == [0, 5, 11, 7, 8]
    ).all()
    queries = (
        "suq.width.b32 %r1, [surface]; suq.height.b32 %r2, [surface]; suld.b.2d.b32.trap %r3, [surface, {%r4, %r4}];"
    )
    got = sampled(texture(image), queries, x, dtype=np.uint32, variables={"surface": texture(image[1:])})
    assert (got[:, :3] == [4, 2, 4]).all()
    with pytest.raises(OutOfBoundsFault, match="x is 16, of 4 bytes; the surface has 16 bytes"):
        sampled(texture(image), load.replace("MODE", "trap"), x, y)
    with pytest.raises(MisalignedFault, match="x is 2 bytes; it must be a multiple of the 4"):
        sampled(texture(image), load.replace("MODE", "trap"), np.int32(2), np.int32(0))
    store = "sust.b.2d.v2.b8.zero [%d0, {%r1, %r2}], {%h0, %h1};"
    sampled(texture(image), f"cvt.u16.u32 %h0, %r0; mov.b16 %h1, 7; {store}", x, y)
    assert (image[[0, 1, 2], [0, 1, 3]] == (7 << 8) + np.arange(3)).all()
    assert image[1, 0] == 4


def test_faults():
    with pytest.raises(Fault, match="is not the handle of a texture"):
        sampled(ROW, tex("1d"), np.float32(0))
    with pytest.raises(Fault, match=r"the texture is 1d, the instruction \.2d"):
        sampled(texture(ROW), tex("2d"), np.float32(0), np.float32(0))
    with pytest.raises(Fault, match=r"texels, u8, are read as integers; the instruction has \.f32"):
        sampled(texture(np.zeros(4, np.uint8)), tex("1d"), np.float32(0))
    body = f"sust.b.1d.b32.trap [%d0, {{%r1}}], %r0; {tex('1d')}"
    with pytest.raises(RaceFault, match=r"reads as a texture global memory that line .* wrote in this launch"):
        sampled(texture(np.zeros(4, np.float32)), body, np.int32(0))
    with pytest.raises(ParseError, match="it has 2 elements; it must have 4"):
        sampled(texture(ROW), tex("1d").replace(C[4], "{%r1, %r2}"), np.float32(0))
    with pytest.raises(InputError, match="without normalised coordinates it must be 'clamp' or 'border'"):
        texture(ROW, address="wrap")
    with pytest.raises(InputError, match="linear filtering of u8"):
        texture(np.zeros(4, np.uint8), filter="linear")


def test_what_is_refused():
    """Valid PTX that is not emulated is named as such."""
    text = HEAD + tex("1d") + TAIL
    for old, new, rule in [
        (".texref ref;", ".texref ref = { channel_order = 1 };", "initial values of ref"),
        ("[%d0, {", "[%d0, %d1, {", "a sampler beside a texture"),
    ]:
        with pytest.raises(UnsupportedError, match=rule):
            Machine().load(text.replace(old, new))
