"""Imports every module that registers instructions, so that the instruction table is complete."""

from ptxgen.emulator.ops import (  # noqa: F401
    atomic,
    barrier,
    bits,
    bulk_copy,
    call,
    compare,
    convert,
    cp_async,
    floating_point,
    integer,
    ldmatrix,
    load_store,
    mbarrier,
    mma,
    move,
    proxy_fences,
    remote_store,
    system,
    tensor_copy,
    video,
    warp,
    wgmma,
    wmma,
)
from ptxgen.emulator.ops.registry import find
from ptxgen.emulator.sync import clusters  # noqa: F401

__all__ = ["find"]
