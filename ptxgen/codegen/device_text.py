"""The lines on the device in the header of a PTX module."""

from __future__ import annotations

from ptxgen.problem.device import Device


class DeviceText:
    """The base class of kernels that have a device but no plan."""

    device: Device

    @property
    def target(self) -> str:
        return self.device.target

    @property
    def ptx_version(self) -> str:
        return self.device.ptx_version
