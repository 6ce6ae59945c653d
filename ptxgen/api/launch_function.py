"""Launch functions: they launch the kernels of a runner on addresses and a stream."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ptxgen.api import driver_state, recording
from ptxgen.codegen.source import Step
from ptxgen.runtime.runner import Runner


def make_launch(
    bound: Runner, alpha: float = 1.0, beta: float = 0.0, swapped: bool = False, epilogue_args: tuple[int, ...] = ()
) -> Callable[..., None]:
    """A function that launches on addresses of A, B and C on a stream. ``swapped``: it receives B before A;
    ``epilogue_args``: addresses of the epilogue operands; its parameter ``own``: address of a caller's workspace."""
    steps = bound.prepare(alpha, beta)
    spec, kernel, on, needs = bound.launch, bound.kernel, bound.driver, bound.launch.workspace > 0
    workspaces = driver_state.state_of(on).workspaces
    streams = workspaces.streams
    clear = Step("", (spec.workspace, 1, 1), arguments=(("u64", "W"),))

    def launch_one(
        a: int, b: int, c: int, stream: int, epilogue_args: tuple[int, ...] = epilogue_args, own: int | None = None
    ) -> None:
        if swapped:
            a, b = b, a
        if stream > 1 and on.capturing(stream):
            workspaces.for_capture(stream, bound)
        on.launch(kernel, only, pack(a, b, c, 0, epilogue_args), stream)

    def launch(
        a: int, b: int, c: int, stream: int, epilogue_args: tuple[int, ...] = epilogue_args, own: int | None = None
    ) -> None:
        if swapped:
            a, b = b, a
        workspace = allocation = None
        if stream > 1 and on.capturing(stream):  # the legacy default stream, 1, cannot be captured
            workspace = workspaces.for_capture(stream, bound)
        if needs and own is None:
            workspace = workspace or streams.get(stream) or workspaces.for_stream(stream)
            allocation = workspace.acquire(spec)
            w = allocation.address
        else:
            w = own or 0
            if needs and spec.zeroed:
                on.launch(kernel, clear, w.to_bytes(8, sys.byteorder), stream)
        for step in steps:
            on.launch(kernel, step.step, step.parameters(a, b, c, w, epilogue_args), stream)
        if allocation is not None and workspace is not None:
            workspace.put_back(spec, allocation)

    if len(steps) == 1 and not needs:
        only, pack = steps[0].step, steps[0].parameters
        return recording.observed(bound.problem, on, launch_one)
    return recording.observed(bound.problem, on, launch)
