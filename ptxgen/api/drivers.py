"""The driver of a call: that of the GPU that holds its arrays, or that of host arrays."""

from __future__ import annotations

import sys
from functools import cache

from ptxgen import settings
from ptxgen.api.arrays import View
from ptxgen.errors import DeviceError, UnavailableError
from ptxgen.runtime.cuda_graph import current_device
from ptxgen.runtime.driver import Driver
from ptxgen.runtime.open_driver import open_driver


@cache
def driver() -> Driver:
    """The driver that computes on host arrays: that of the first GPU that the process used, or of the current GPU if it
    has used none; the emulated device if there is no GPU. PTXGEN_DRIVER sets another one."""
    return open_driver(settings.settings().driver, current_gpu() if _first_gpu is None else _first_gpu)


_first_gpu: int | None = None  #: the GPU of the first arrays that were not in host memory


def driver_of(v: View) -> Driver:
    """The driver of the device in whose memory an array is. UnavailableError: the array is on a GPU, and the driver is
    the emulated device."""
    return driver() if v.host else gpu_driver(v.device)


def gpu_driver(index: int | None) -> Driver:
    """The driver of the GPU ``index``; None: of the first GPU that the process used. UnavailableError: the driver is
    the emulated device, which takes arrays in host memory."""
    global _first_gpu
    if _first_gpu is None:
        _first_gpu = index
    on = driver()
    if on.name != "cuda":
        raise UnavailableError(
            f"the arrays are on a GPU, and the driver is the emulated device, which takes arrays in host memory:"
            f" {_why_emulated()}"
        )
    return on if index in (None, on.index) else _gpu(index)


def _why_emulated() -> str:
    """The reason why the driver is the emulated device, and how to change that."""
    if settings.settings().driver == "emulated":
        return "PTXGEN_DRIVER is emulated; unset it"
    try:
        open_driver("cuda")
    except UnavailableError as error:
        return str(error)
    return "start the process again"  # the GPU was not there when the driver was opened


@cache
def _gpu(index: int | None) -> Driver:
    """The driver of a GPU other than that of ``driver()``."""
    return open_driver(f"cuda:{index}")


def current_gpu() -> int:
    """The index of the current GPU: that of PyTorch if it uses one, else that of the thread's CUDA context."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    return current_device()


def require_device(on: Driver, **named: View) -> None:
    """DeviceError: an array is not on the GPU of the driver ``on``, which is the GPU of the first operand."""
    for name, v in named.items():
        if v.device not in (None, on.index):
            raise DeviceError(
                f"{name} is on GPU {v.device} and the first operand on GPU {on.index}; they must be on one GPU"
            )
