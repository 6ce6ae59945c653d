"""Sources of kernels without their PTX texts, in the disk cache by problem and configuration.

A process that finds the source of a plan, and the machine code by the source's digest, renders nothing. The cache is
optional: errors of the file system and damaged files are ignored. Processes that have called plugins, or registered
operations, epilogue operations, operators or families, do not use the cache, because its key (the digest of the
package) does not change with them.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ptxgen import disk_cache, plugins
from ptxgen.expr import instructions
from ptxgen.families.common.array_cache import package_key
from ptxgen.problem import epilogue_ops, operation
from ptxgen.runtime.assemble import CachedSource
from ptxgen.settings import settings

if TYPE_CHECKING:
    from ptxgen.codegen.plan import Plan

MOST = 8192  #: files; if there are more, the older half is removed
EVERY = "0"  #: when a key ends in this digit (one in sixteen), ``write`` also limits the number of files


def key(plan: Plan) -> str:
    """The cache key of a plan's source. Empty: the source is not cached."""
    return key_of(plan.source_problem, plan.problem, plan.config.full_text(), plan.device)


def key_of(*facts: object) -> str:
    """The cache key of a source that depends on the package and on the ``repr`` of ``facts`` alone. Empty: the source
    is not cached."""
    if plugins.called() or any(registry.has_registered() for registry in (operation, epilogue_ops, instructions)):
        return ""
    return package_key(*facts)


def read(key: str) -> CachedSource | None:
    """The source that ``write`` stored. None: there is none, or its file is damaged."""
    path = _file(key)
    if not key or disk_cache.unsafe(path.parent):
        return None
    try:
        return CachedSource.from_dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write(key: str, source: CachedSource) -> None:
    """Stores a source. If several processes write one key at once, readers find one whole file."""
    path = _file(key)
    if not key or disk_cache.unsafe(path.parent):
        return
    with suppress(OSError):
        disk_cache.create(path.parent)
        disk_cache.replace(path, json.dumps(asdict(source)).encode())
        if key.endswith(EVERY):
            disk_cache.remove_oldest(path.parent, MOST)


def _file(key: str) -> Path:
    return settings().cache / "sources" / f"{key}.json"
