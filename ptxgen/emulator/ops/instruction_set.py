"""Imports every module that registers instructions, so that the instruction table is complete."""

from ptxgen.emulator.ops.arithmetic import bits, compare, floating_point, integer, video  # noqa: F401
from ptxgen.emulator.ops.asynchronous import bulk_copy, cp_async, remote_store, tensor_copy, tensor_map  # noqa: F401
from ptxgen.emulator.ops.control import branch, call, call_stack, system  # noqa: F401
from ptxgen.emulator.ops.data_movement import convert, load_store, move, texture  # noqa: F401
from ptxgen.emulator.ops.matrix import ldmatrix, mma, mma_sparse, wgmma, wmma  # noqa: F401
from ptxgen.emulator.ops.registry import find
from ptxgen.emulator.ops.synchronisation import atomic, b128, barrier, cluster, mbarrier, proxy_fences, warp  # noqa: F401

__all__ = ["find"]
