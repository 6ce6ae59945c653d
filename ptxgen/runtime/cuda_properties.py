"""Device attributes from the CUDA driver."""

from __future__ import annotations

from typing import Any

from ptxgen.problem.device import Device, describe


def device(cuda: Any, gpu: Any) -> Device:
    """The ``Device`` of a GPU. ``cuda``: ``pycuda.driver`` or ``cuda_bindings``; ``gpu``: a device object of
    ``cuda``."""
    facts = cuda.device_attribute
    major, minor = gpu.compute_capability()
    return describe(
        gpu.name(),
        10 * major + minor,
        sms=gpu.get_attribute(facts.MULTIPROCESSOR_COUNT),
        clock=gpu.get_attribute(facts.CLOCK_RATE) // 1000,
        l2=gpu.get_attribute(facts.L2_CACHE_SIZE),
        shared_block=gpu.get_attribute(facts.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        shared_sm=gpu.get_attribute(facts.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        threads_sm=gpu.get_attribute(facts.MAX_THREADS_PER_MULTIPROCESSOR),
        blocks_sm=gpu.get_attribute(facts.MAX_BLOCKS_PER_MULTIPROCESSOR),
        registers_sm=gpu.get_attribute(facts.MAX_REGISTERS_PER_MULTIPROCESSOR),
        shared_reserved=gpu.get_attribute(facts.RESERVED_SHARED_MEMORY_PER_BLOCK),
    )
