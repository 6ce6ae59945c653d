"""A device that executes PTX on the CPU, exactly, and tells what a kernel does wrong.

``launch`` runs one kernel of one text on NumPy arrays and ``tensormap`` describes them to its tensor copies;
``Machine`` is a device for a driver.
"""

from ptxgen.emulator.engine.machine import Machine, launch
from ptxgen.emulator.engine.module import Entry, Module
from ptxgen.emulator.memory.tensormap import TensorMap, tensormap
from ptxgen.emulator.options import Options
from ptxgen.emulator.stats import Access, Stats

__all__ = ["Access", "Entry", "Machine", "Module", "Options", "Stats", "TensorMap", "launch", "tensormap"]
