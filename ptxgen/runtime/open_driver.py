"""Opens a driver by name."""

from __future__ import annotations

import re

from ptxgen.errors import DeviceError, UnavailableError
from ptxgen.runtime.driver import Driver


def open_driver(name: str = "auto", index: int = 0) -> Driver:
    """The driver ``name``: ``cuda`` (GPU ``index``), ``cuda:1`` (GPU 1), ``emulated``, or ``auto`` (``cuda`` if there
    is a GPU, else ``emulated``).

    UnavailableError: ``name`` is ``cuda``, and cuda-bindings or a GPU is missing. DeviceError: there is no such GPU.
    """
    match = re.fullmatch(r"cuda:([0-9]{1,3})", name)
    if match is None and name not in ("auto", "cuda", "emulated"):
        raise DeviceError(f"driver is {name!r}; it must be auto, cuda, cuda:N with the index of a GPU, or emulated")
    if name != "emulated":
        from ptxgen.runtime.cuda import CudaDriver

        try:
            return CudaDriver(int(match[1]) if match else index)
        except UnavailableError:
            if name != "auto":
                raise
    from ptxgen.runtime.emulated import EmulatedDriver

    return EmulatedDriver()
