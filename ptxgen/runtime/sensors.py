"""Energy and clock of a GPU, by NVIDIA's management library. Owns pynvml, the module of nvidia-ml-py."""

from __future__ import annotations

from typing import Any, Protocol

from ptxgen.errors import UnavailableError
from ptxgen.install_advice import install_extra


class Sensors(Protocol):
    """What a device tells about itself while kernels run."""

    def millijoules(self) -> float:
        """The energy that the device has used. The counter moves in steps of up to 100 ms."""
        ...

    def megahertz(self) -> float:
        """The clock of the multiprocessors."""
        ...


class GpuSensors:
    """The sensors of the GPU at a PCI address, as ``0000:1b:00.0``. UnavailableError: nvidia-ml-py is missing, or the
    GPU does not tell its energy, as one that is divided by MIG."""

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
