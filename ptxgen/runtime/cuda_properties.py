"""Device attributes from the CUDA driver."""

from __future__ import annotations

from typing import Any

from ptxgen.problem.device import Device, describe


def device(cuda: Any, found: Any) -> Device:
    """The attributes of a GPU. ``cuda``: the module ``pycuda.driver``; ``found``: its device object."""
    facts = cuda.device_attribute
    major, minor = found.compute_capability()
    return describe(
        found.name(),
        10 * major + minor,
        sms=found.get_attribute(facts.MULTIPROCESSOR_COUNT),
        clock=found.get_attribute(facts.CLOCK_RATE) // 1000,
        l2=found.get_attribute(facts.L2_CACHE_SIZE),
        shared_block=found.get_attribute(facts.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        shared_sm=found.get_attribute(facts.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        threads_sm=found.get_attribute(facts.MAX_THREADS_PER_MULTIPROCESSOR),
        blocks_sm=found.get_attribute(facts.MAX_BLOCKS_PER_MULTIPROCESSOR),
        registers_sm=found.get_attribute(facts.MAX_REGISTERS_PER_MULTIPROCESSOR),
        shared_reserved=found.get_attribute(facts.RESERVED_SHARED_MEMORY_PER_BLOCK),
    )
