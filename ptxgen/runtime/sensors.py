"""Reads energy and clock of a GPU by NVIDIA's management library. Only this module imports pynvml (nvidia-ml-py)."""

from __future__ import annotations

from typing import Any, Protocol

from ptxgen.errors import UnavailableError
from ptxgen.install_advice import install_extra


class Sensors(Protocol):
    """The sensors of a device that can be read while kernels run."""

    def millijoules(self) -> float:
        """The energy in millijoules that the device has used so far. The counter is updated at intervals of up to 100
        ms."""
        ...

    def megahertz(self) -> float:
        """The clock rate of the multiprocessors in MHz."""
        ...


class GpuSensors:
    """The sensors of the GPU at a PCI address, as ``0000:1b:00.0``. UnavailableError: nvidia-ml-py is missing, or the
    GPU does not report its energy (for example a GPU divided by MIG)."""

    def __init__(self, address: str) -> None:
        self._nvml = nvml = require_package()
        try:
            nvml.nvmlInit()
            self._gpu = nvml.nvmlDeviceGetHandleByPciBusId(address.encode())
            self.millijoules(), self.megahertz()
        except nvml.NVMLError as error:
            raise UnavailableError(
                f"observe is given; the GPU at {address} does not tell its energy: {error}"
            ) from error

    def millijoules(self) -> float:
        return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._gpu))

    def megahertz(self) -> float:
        return float(self._nvml.nvmlDeviceGetClockInfo(self._gpu, self._nvml.NVML_CLOCK_SM))


def require_package() -> Any:
    """The module ``pynvml``. UnavailableError: it is not installed."""
    try:
        import pynvml
    except ImportError as error:
        raise UnavailableError(f"energy, power and clock need nvidia-ml-py: {install_extra('energy')}") from error
    return pynvml
