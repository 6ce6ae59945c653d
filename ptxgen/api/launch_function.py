"""Launch functions: they launch the kernels of a runner on addresses and a stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from ptxgen.api import driver_state, recording, vendor_calls
from ptxgen.codegen.source import Step
from ptxgen.runtime.packed_step import Addresses
from ptxgen.runtime.runner import Runner


def make_launch(
    bound: Runner,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    names: tuple[str, ...] = (),
    scalars: Mapping[str, float] | None = None,
    use: str | None = None,
) -> Callable[..., None]:
    """A function that launches the kernels of ``bound`` on a tuple of addresses and a stream. ``names``: the arrays at
    these addresses (default: those of the problem, in its order); ``scalars``: as in ``Runner.prepare``; ``use``: auto:
    the function launches the vendor's library if that is faster; never: it does not; None: as ``PTXGEN_VENDOR`` says.
    The function's parameter ``own`` is the address of a caller's workspace."""
    names, needs = names or bound.problem.arrays, bound.launch.workspace > 0
    steps = bound.prepare(alpha, beta, (*names, "W") if needs else names, scalars)
    spec, kernel, on = bound.launch, bound.kernel, bound.driver
    workspaces = driver_state.state_of(on).workspaces
    streams = workspaces.streams
    clear = Step("", (spec.workspace, 1, 1), arguments=(("u64", "W"),))

    def launch_one(addresses: Addresses, stream: int, own: int | None = None) -> None:
        if stream > 1 and on.capturing(stream):
            workspaces.for_capture(stream, bound)
        on.launch(kernel, only, pack(addresses), stream)

    def launch(addresses: Addresses, stream: int, own: int | None = None) -> None:
        workspace = allocation = None
        if stream > 1 and on.capturing(stream):  # the legacy default stream, 1, cannot be captured
            workspace = workspaces.for_capture(stream, bound)
        if needs:
            if own is None:
                workspace = workspace or streams.get(stream) or workspaces.for_stream(stream)
                allocation = workspace.acquire(spec)
                own = allocation.address
            elif spec.zeroed:
                on.launch(kernel, clear, own.to_bytes(8, sys.byteorder), stream)
            addresses = (*addresses, own)
        for step, parameters in steps:
            on.launch(kernel, step, parameters(addresses), stream)
        if allocation is not None and workspace is not None:
            workspace.put_back(spec, allocation)

    if len(steps) == 1 and not needs:
        ((only, pack),) = steps
        chosen = vendor_calls.in_place_of(launch_one, bound, names, alpha, beta, use)
    else:
        chosen = vendor_calls.in_place_of(launch, bound, names, alpha, beta, use)
    return recording.observed(bound.problem, on, chosen)
