"""The cluster size of a launch."""

from __future__ import annotations

from typing import Any

from ptxgen.emulator.memory.address_map import MOST
from ptxgen.errors import InputError


def extents(directives: dict[str, tuple[int, ...]], asked: Any, entry: str) -> tuple[int, int, int]:
    """The shape of a launch's clusters: what the kernel declares, or what the launch asks for."""
    declared = directives.get("reqnctapercluster")
    size = None if asked is None else (*(asked if isinstance(asked, (tuple, list)) else (asked,)), 1, 1)[:3]
    if declared is not None:
        declared = (*declared, 1, 1)[:3]
        if size is not None and size != declared:
            raise InputError(f"cluster is {size}, .reqnctapercluster of {entry} asks for {declared}")
        size = declared
    if size is None:
        if "explicitcluster" in directives:
            raise InputError(f"{entry} is .explicitcluster: the launch must give the cluster's size")
        return 1, 1, 1
    x, y, z = (int(n) for n in size)
    most = min((MOST, *directives.get("maxclusterrank", ())))
    if min(x, y, z) < 1 or x * y * z > most:
        raise InputError(f"cluster is {(x, y, z)}; it must have 1 to {most} blocks")
    return x, y, z
