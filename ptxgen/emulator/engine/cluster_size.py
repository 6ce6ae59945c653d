"""The cluster size of a launch."""

from __future__ import annotations

from typing import Any

from ptxgen.emulator.memory.address_map import MAX_CLUSTER_BLOCKS
from ptxgen.errors import InputError


def extents(directives: dict[str, tuple[int, ...]], requested: Any, entry: str) -> tuple[int, int, int]:
    """The cluster size of a launch: the size that the kernel declares, or the requested one. InputError: both are given
    and differ, a kernel with .explicitcluster has none, or the size is out of range."""
    declared = directives.get("reqnctapercluster")
    size = (
        None
        if requested is None
        else (*(requested if isinstance(requested, (tuple, list)) else (requested,)), 1, 1)[:3]
    )
    if declared is not None:
        declared = (*declared, 1, 1)[:3]
        if size is not None and size != declared:
            raise InputError(f"cluster is {size}; it must be {declared}, .reqnctapercluster of {entry}")
        size = declared
    if size is None:
        if "explicitcluster" in directives:
            raise InputError(f"cluster is None; it must be the cluster size, as {entry} is .explicitcluster")
        return 1, 1, 1
    x, y, z = (int(n) for n in size)
    most = min((MAX_CLUSTER_BLOCKS, *directives.get("maxclusterrank", ())))
    if min(x, y, z) < 1 or x * y * z > most:
        raise InputError(f"cluster is {(x, y, z)}; it must have 1 to {most} blocks")
    return x, y, z
