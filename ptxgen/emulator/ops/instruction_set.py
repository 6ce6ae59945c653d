"""Imports every module that registers instructions, so that the instruction table is complete."""

from ptxgen.emulator.ops import (  # noqa: F401
    atomic,
    b128,
    barrier,
    bits,
    bulk_copy,
    call,
    call_stack,
    cluster,
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

__all__ = ["find"]
