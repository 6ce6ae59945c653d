"""Launches of a vendor's library in place of ptxgen's kernel, where it is measured or predicted to be faster."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from ptxgen import settings
from ptxgen.api import choice, driver_state, launches
from ptxgen.arguments import word
from ptxgen.codegen.source import Launch
from ptxgen.errors import LaunchError, UnavailableError
from ptxgen.problem.operation import VendorKernel, vendor_of
from ptxgen.problem.registry import Problem
from ptxgen.runtime.driver import Driver
from ptxgen.runtime.packed_step import Addresses
from ptxgen.runtime.runner import Runner
from ptxgen.tuning.choice.vendor import may_be_faster

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

#: number of launches in this process, by name and version of the library
LAUNCHES: Counter[str] = Counter()


@dataclass(frozen=True, eq=False)
class FasterVendor:
    """A kernel of a vendor's library. ``version``: name and version of the library; ``algorithm``: the text that
    selects its algorithm."""

    kernel: VendorKernel
    version: str
    algorithm: str


def require_mode(vendor: str | None) -> str:
    """``vendor``, or the value of ``PTXGEN_VENDOR`` if it is None. InputError: it is unknown."""
    return settings.setting("vendor") if vendor is None else word("vendor", vendor, settings.VENDORS)


@lru_cache(maxsize=launches.MAX_CALLS)
def faster(problem: Problem, on: Driver) -> FasterVendor | None:
    """The vendor's kernel for a problem; None: ptxgen's kernel is as fast, or the library cannot be used."""
    library = vendor_of(problem, on.clock)
    if library is None or library.calls is None or not may_be_faster(problem, on.device, choice.database()):
        return None
    selected = choice.chosen(problem, on)
    theirs = None if selected is None else selected.vendor
    if theirs is None:
        return None
    try:
        kernel = library.calls.kernel(on, problem, theirs.algorithm)
    except (LaunchError, UnavailableError) as error:
        _log.warning("%s is not used for %s: %s", theirs.version, problem.key(), error)
        return None
    return FasterVendor(kernel, theirs.version, theirs.algorithm)


def in_place_of(
    launch: Callable[..., None],
    bound: Runner,
    names: tuple[str, ...],
    alpha: complex,
    beta: complex,
    vendor: str | None,
) -> Callable[..., None]:
    """The launch function of the vendor's kernel if it is faster and may be used; else ``launch``, that of ptxgen's
    kernel. The vendor's function still calls ``launch`` for a caller's workspace, whose size is that of ptxgen's
    kernel, and during a graph capture if the library allocates memory."""
    library = (
        faster(bound.problem, bound.driver) if alpha == 1 and beta == 0 and require_mode(vendor) == "auto" else None
    )
    if library is None:
        return launch
    kernel, on = library.kernel, bound.driver
    workspaces, spec, version = (
        driver_state.state_of(on).workspaces,
        Launch((), library.kernel.workspace),
        library.version,
    )

    def launch_vendor(addresses: Addresses, stream: int, own: int | None = None) -> None:
        captured = stream > 1 and on.capturing(stream)
        if own is not None or (captured and kernel.allocates):
            launch(addresses, stream, own)
            return
        workspace = workspaces.for_capture(stream, library) if captured else None
        named = dict(zip(names, addresses, strict=False))
        LAUNCHES[version] += 1
        if not spec.workspace:
            kernel.launch(named, 0, stream)
            return
        workspace = workspace or workspaces.for_stream(stream)
        allocation = workspace.acquire(spec)
        kernel.launch(named, allocation.address, stream)
        workspace.put_back(spec, allocation)

    return launch_vendor


def bind(bound: Runner, addresses: Mapping[str, int], alpha: complex, beta: complex, vendor: str | None) -> Any:
    """``Runner.bind`` for operands of host calls: binds the vendor's kernel if it is faster and may be used."""
    names = bound.problem.arrays
    call = bound.bind(addresses, alpha, beta)
    launch = in_place_of(lambda *_: call(), bound, names, alpha, beta, vendor)
    return partial(launch, tuple(addresses[name] for name in names), 0)
