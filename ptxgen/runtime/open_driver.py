"""Opens a driver by name."""

from __future__ import annotations

from ptxgen.errors import DeviceError, UnavailableError
from ptxgen.runtime.driver import Driver
from ptxgen.settings import GPU_DRIVER, LIBRARIES, driver_names


def open_driver(name: str = "auto", index: int = 0) -> Driver:
    """The driver ``name``: ``cuda`` (GPU ``index``), ``cuda:1`` (GPU 1), ``emulated``, or ``auto`` (``cuda`` if there
    is a GPU, else ``emulated``). ``pycuda`` and ``cuda-bindings`` in place of ``cuda`` name the library of the driver.

    UnavailableError: the machine has no GPU, or the library is missing. DeviceError: ``name`` is none of these, or no
    GPU has the index.
    """
    match = GPU_DRIVER.fullmatch(name)
    if match is None and name not in ("auto", "emulated"):
        raise DeviceError(f"driver is {name!r}; it must be {driver_names()}")
    if name != "emulated":
        from ptxgen.runtime.cuda import CudaDriver

        library, number = match.groups() if match else ("", None)
        try:
            return CudaDriver(index if number is None else int(number), library if library in LIBRARIES else "")
        except UnavailableError:
            if name != "auto":
                raise
    from ptxgen.runtime.emulated import EmulatedDriver

    return EmulatedDriver()
