"""Device memory as an array that other libraries read."""

from __future__ import annotations


class DeviceArray:
    """Contiguous device memory with the CUDA array interface. ``typestr``: the element type in NumPy's notation, as
    ``<f4``."""

    def __init__(self, address: int, shape: tuple[int, ...], typestr: str) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": shape,
            "typestr": typestr,
            "strides": None,
        }
