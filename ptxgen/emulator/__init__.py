"""A device that executes PTX on the CPU, exactly, and tells what a kernel does wrong.

``launch`` runs one kernel of one text on NumPy arrays and ``tensormap`` describes them to its tensor copies;
``Machine`` is a device for a driver.
"""

from .machine import Machine, launch
from .module import Entry, Module
from .options import Options
from .stats import Access, Stats
from .tensormap import TensorMap, tensormap

__all__ = ["Access", "Entry", "Machine", "Module", "Options", "Stats", "TensorMap", "launch", "tensormap"]
