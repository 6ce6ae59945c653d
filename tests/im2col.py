"""Random im2col maps, a kernel that copies one box of pixels, and the expected contents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ptxgen.codegen.source import PixelBox, Source, Step, TensorMap
from ptxgen.runtime.driver import Driver

TYPES = {"u8": np.uint8, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32}
THREADS = 128

#: one box to shared memory, and from there to ``out`` unchanged; place: channel, pixel (innermost first), image
KERNEL = """.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry columns(.param .u64 C, .param .u32 bytes, .param .u32 c, .param .u32 w, .param .u32 h, .param .u32 d,
    .param .u32 n, .param .u32 s, .param .u32 r, .param .u32 q, .param .align 64 .b8 map[128])
.maxntid 128, 1, 1
{
    .reg .b64 %map, %out, %at;
    .reg .b32 %bytes, %c, %w, %h, %d, %n, %t, %smem, %bar, %i, %from, %word;
    .reg .b16 %s, %r, %q, %high;
    .reg .pred %p;
    .shared .align 8 .b64 bar;
    ld.param.u64 %out, [C];
    cvta.to.global.u64 %out, %out;
    ld.param.u32 %bytes, [bytes];
    ld.param.u32 %c, [c];  ld.param.u32 %w, [w];  ld.param.u32 %h, [h];  ld.param.u32 %d, [d];  ld.param.u32 %n, [n];
    ld.param.u32 %t, [s];  mov.b32 {%s, %high}, %t;
    ld.param.u32 %t, [r];  mov.b32 {%r, %high}, %t;
    ld.param.u32 %t, [q];  mov.b32 {%q, %high}, %t;
    mov.b64 %map, map;
    cvta.param.u64 %map, %map;
    mov.u32 %t, %tid.x;
    mov.u32 %smem, smem;
    mov.u32 %bar, bar;
    setp.ne.u32 %p, %t, 0;
    @%p bra READY;
    mbarrier.init.shared::cta.b64 [%bar], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], %bytes;
    cp.async.bulk.tensor.RANKd.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%smem], [%map, {PLACE}], [%bar], {OFFSETS};
READY:
    bar.sync 0;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0;
    @!%p bra WAIT;
    shl.b32 %i, %t, 2;
COPY:
    setp.ge.u32 %p, %i, %bytes;
    @%p bra DONE;
    add.u32 %from, %smem, %i;
    ld.shared.u32 %word, [%from];
    cvt.u64.u32 %at, %i;
    add.u64 %at, %out, %at;
    st.global.u32 [%at], %word;
    add.u32 %i, %i, 512;
    bra COPY;
DONE:
    ret;
}
"""


def source(rank: int) -> Source:
    place, offsets = ("c", *"whd"[: rank - 2], "n"), "srq"[: rank - 2]
    text = KERNEL.replace("RANK", str(rank)).replace("PLACE", ", ".join(f"%{x}" for x in place))
    return Source(text.replace("OFFSETS", ", ".join(f"%{x}" for x in offsets)), ("columns",), "sm_90a", 1 << 16)


@dataclass(frozen=True)
class Case:
    """``place``: channel, pixel (innermost first), image; ``offsets``: of a filter tap, innermost first."""

    map: TensorMap
    place: tuple[int, ...]
    offsets: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.map.extents[::-1]

    def image(self, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        if self.map.dtype == "tf32":
            return rng.standard_normal(self.shape).astype(np.float32)
        return rng.integers(1, 200, self.shape).astype(TYPES[self.map.dtype])

    def columns(self, x: np.ndarray) -> np.ndarray:
        """The box by definition: pixels × channels."""
        m = self.map
        assert m.pixel_box is not None
        channels, pixels = m.box
        out = np.zeros((pixels, channels), x.dtype)
        spatial = m.extents[1:-1]
        axes = [
            list(range(low, e - 1 + high + 1, step))
            for e, low, high, step in zip(
                spatial, m.pixel_box.lower, m.pixel_box.upper, m.pixel_box.strides, strict=True
            )
        ]
        first = [axis.index(p) for axis, p in zip(axes, self.place[1:-1], strict=True)]
        at = 0
        for axis, i in list(zip(axes, first, strict=True))[::-1]:
            at = at * len(axis) + i
        per_image = int(np.prod([len(a) for a in axes]))
        number = self.place[-1] * per_image + at
        wide = max(min(m.extents[0] - self.place[0], channels), 0)
        for row in range(pixels):
            image, rest = divmod(number + row, per_image)
            pixel = []
            for axis, offset in zip(axes, self.offsets, strict=True):
                rest, i = divmod(rest, len(axis))
                pixel.append(axis[i] + offset)
            if image < m.extents[-1] and all(0 <= p < e for p, e in zip(pixel, spatial, strict=True)):
                out[row, :wide] = x[(image, *pixel[::-1])][self.place[0] : self.place[0] + wide]
        return out

    def run(self, driver: Driver, kernel: object, x: np.ndarray) -> np.ndarray:
        """The box that the kernel copies, pixels × channels, its swizzle undone."""
        m = self.map
        channels, pixels = m.box
        size = pixels * channels * x.dtype.itemsize
        place = [self.place[0], *(*self.place[1:-1], 0, 0)[:3], self.place[-1]]
        numbers = [size, *(v & 0xFFFFFFFF for v in place), *(*self.offsets, 0, 0)[:3]]
        step = Step(
            "columns", (1, 1, 1), (THREADS, 1, 1), size, (("u64", "C"), *(("u32", v) for v in numbers), ("map", m))
        )
        image, out = driver.allocate(x.nbytes), driver.allocate(size)
        driver.upload(image, x)
        driver.launch(kernel, step, step.pack({"C": out}) + step.pack_maps(driver.tensor_map, {"A": image}))
        driver.synchronize()
        got = np.empty(size, np.uint8)
        driver.download(out, got)
        driver.release(image)
        driver.release(out)
        at = np.arange(size)
        got = got[at ^ ((at >> 7) & (m.swizzle // 16 - 1)) << 4]
        return got.view(x.dtype).reshape(pixels, channels)


def rounded(x: np.ndarray) -> np.ndarray:
    """The values rounded to tf32, ties to even."""
    bits = x.view(np.uint32)
    return (bits + 0xFFF + (bits >> 13 & 1) & 0xFFFFE000).view(np.float32)


def cases(seed: int, count: int, limit: int = 256) -> Iterator[Case]:
    """Images of one to three directions, filters with padding, strides and dilation; channels that end within a box,
    pixels past the last image."""
    rng = np.random.default_rng(seed)
    made = 0
    while made < count:
        rank = int(rng.choice([3, 4, 4, 4, 5]))
        dtype = str(rng.choice(list(TYPES)))
        unit = 16 // np.dtype(TYPES[dtype]).itemsize
        span = int(rng.choice([32, 64, 128]))
        channels = span // 16 * unit
        held = int(rng.integers(1, 2 * channels // unit + 2)) * unit
        spatial = tuple(int(v) for v in rng.integers(1, {3: 200, 4: 24, 5: 8}[rank], rank - 2))
        taps, steps, dilation = (tuple(int(v) for v in rng.integers(1, n, rank - 2)) for n in (6, 4, 4))
        low, high = (tuple(int(rng.integers(0, t + 2)) for t in taps) for _ in range(2))
        reach = tuple((t - 1) * d for t, d in zip(taps, dilation, strict=True))
        lower, upper = tuple(-p for p in low), tuple(p - r for p, r in zip(high, reach, strict=True))
        least, most = {3: (-32768, 32767), 4: (-128, 127), 5: (-16, 15)}[rank]
        ends = [e - 1 + u for e, u in zip(spatial, upper, strict=True)]
        inside = all(least <= v <= most for v in (*lower, *upper))
        if not inside or any(end < first for end, first in zip(ends, lower, strict=True)):
            continue
        images = int(rng.integers(1, 5))
        pixels = 8 * int(rng.integers(1, limit // 8 + 1))
        pitches = [held * np.dtype(TYPES[dtype]).itemsize]
        for e in spatial:
            pitches.append(pitches[-1] * e)
        axes = [range(a, b + 1, s) for a, b, s in zip(lower, ends, steps, strict=True)]
        place = (
            unit * int(rng.integers(0, held // unit + 3)) if rng.random() < 0.3 else channels * int(rng.integers(2)),
            *(int(rng.choice(axis)) for axis in axes),
            int(rng.integers(0, images + (rng.random() < 0.1))),
        )
        offsets = tuple(int(rng.integers(t)) * d for t, d in zip(taps, dilation, strict=True))
        pixel_box = PixelBox(lower, upper, steps)
        described = TensorMap("A", dtype, (held, *spatial, images), tuple(pitches), (channels, pixels), span, pixel_box)
        made += 1
        yield Case(described, place, offsets)
