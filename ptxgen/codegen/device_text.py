"""What the header of a module says of the device that it is for."""

from __future__ import annotations

from ptxgen.problem.device import Device


class DeviceText:
    """Kernels for a device, without a plan."""

    device: Device

    @property
    def target(self) -> str:
        return self.device.target

    @property
    def ptx_version(self) -> str:
        return self.device.ptx_version
