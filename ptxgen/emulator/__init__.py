"""A device that executes PTX on the CPU with exact results and reports undefined behaviour.

``launch`` runs one kernel of one PTX text on NumPy arrays. ``tensormap`` makes the tensor map of an array.
``Machine`` is the device for a driver: memory, modules, launches.
"""

from ptxgen.emulator.engine.machine import Machine, launch
from ptxgen.emulator.engine.module import Entry, Module
from ptxgen.emulator.memory.tensormap import TensorMap, tensormap
from ptxgen.emulator.memory.texture import Texture, texture
from ptxgen.emulator.options import Options
from ptxgen.emulator.stats import Access, Stats

__all__ = [
    "Access",
    "Entry",
    "Machine",
    "Module",
    "Options",
    "Stats",
    "TensorMap",
    "Texture",
    "launch",
    "tensormap",
    "texture",
]
