"""Measures the bandwidth of a copy in device memory, which bounds problems that read their operands once."""

from __future__ import annotations

import statistics

from ptxgen.codegen.source import Source, Step
from ptxgen.problem.device import Device
from ptxgen.problem.operation import MeasuredCeiling
from ptxgen.runtime.driver import Driver, Timing

ENTRY = "copy"
THREADS, BLOCKS = 512, 4  #: threads per block; blocks per multiprocessor
VECTORS = 4  #: vectors of 16 bytes that a thread copies in an iteration
L2_MULTIPLE = 8  #: bytes of the copy over those of the L2 cache
TEXT = """\
.version {version}
.target {target}
.address_size 64

.visible .entry copy(.param .u64 from, .param .u64 to, .param .u32 count)
.maxntid {threads}, 1, 1
{{
    .reg .pred %more;
    .reg .b32 %thread, %block, %count, %x<{registers}>;
    .reg .b64 %from, %to, %at;

    // ---- each block copies consecutive bytes
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    ld.param.u32 %count, [count];
    mul.wide.u32 %at, %block, {bytes};
    cvt.u64.u32 %from, %count;
    mul.lo.u64 %at, %at, %from;
    mul.wide.u32 %to, %thread, 16;
    add.u64 %at, %at, %to;
    ld.param.u64 %from, [from];
    cvta.to.global.u64 %from, %from;
    add.u64 %from, %from, %at;
    ld.param.u64 %to, [to];
    cvta.to.global.u64 %to, %to;
    add.u64 %to, %to, %at;
LOOP:
    {copies}
    add.u64 %from, %from, {bytes};
    add.u64 %to, %to, {bytes};
    sub.u32 %count, %count, 1;
    setp.ne.u32 %more, %count, 0;
    @%more bra LOOP;
    ret;
}}
"""


def source_of(d: Device) -> Source:
    """The kernel ``ENTRY``. Each block copies ``THREADS * VECTORS`` vectors in each of ``count`` iterations; ``count``
    is a parameter of the kernel."""
    held = [", ".join(f"%x{4 * n + i}" for i in range(4)) for n in range(VECTORS)]
    lines = [f"ld.global.v4.u32 {{{x}}}, [%from+{16 * THREADS * n}];" for n, x in enumerate(held)]
    lines += [f"st.global.v4.u32 [%to+{16 * THREADS * n}], {{{x}}};" for n, x in enumerate(held)]
    words = {
        "version": d.ptx_version,
        "target": d.target,
        "threads": THREADS,
        "registers": 4 * VECTORS,
        "bytes": 16 * THREADS * VECTORS,
        "copies": "\n    ".join(lines),
    }
    return Source(TEXT.format_map(words), (ENTRY,), d.target)


def bandwidth(driver: Driver, timing: Timing, size: int) -> float:
    """The bandwidth of a copy of about ``size`` bytes: the bytes read and written per microsecond. LaunchError: out of
    memory."""
    blocks, step = driver.device.sms * BLOCKS, 16 * THREADS * VECTORS
    count = -(-size // (blocks * step))
    size = count * blocks * step
    kernel = driver.load(source_of(driver.device))
    first = driver.allocate(size)
    try:
        second = driver.allocate(size)
        try:
            driver.fill(first, size)
            launch = Step(ENTRY, (blocks, 1, 1), (THREADS, 1, 1), 0, (("u64", first), ("u64", second), ("u32", count)))
            parameters = launch.pack({})
            us = statistics.median(driver.time([lambda: driver.launch(kernel, launch, parameters)], timing))
        finally:
            driver.release(second)
    finally:
        driver.release(first)
    return 2 * size / us


def measured(driver: Driver, moved: float, timing: Timing) -> MeasuredCeiling | None:
    """The least time of ``moved`` bytes at the bandwidth of a copy. None: the device is emulated."""
    if driver.clock != "hardware":
        return None
    return MeasuredCeiling(
        moved / bandwidth(driver, timing, L2_MULTIPLE * driver.device.l2), float("nan"), float("nan")
    )
