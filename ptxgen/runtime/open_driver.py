"""Opens a driver by name."""

from __future__ import annotations

from ptxgen.errors import DeviceError, UnavailableError
from ptxgen.runtime.driver import Driver


def open_driver(name: str = "auto") -> Driver:
    """The driver ``name``: ``cuda``, ``emulated``, or ``auto`` (CUDA if there is a GPU, else emulated).

    UnavailableError: ``name`` is ``cuda``, and cuda-bindings or a GPU is missing.
    """
    if name not in ("auto", "cuda", "emulated"):
        raise DeviceError(f"driver is {name!r}; it must be auto, cuda or emulated")
    if name != "emulated":
        from ptxgen.runtime.cuda import CudaDriver

        try:
            return CudaDriver()
        except UnavailableError:
            if name == "cuda":
                raise
    from ptxgen.runtime.emulated import EmulatedDriver

    return EmulatedDriver()
