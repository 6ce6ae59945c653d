"""Warnings of selection, each once per process."""

from __future__ import annotations

import logging
from functools import lru_cache

_log = logging.getLogger("ptxgen.tuning.selection")
_log.addHandler(logging.NullHandler())


@lru_cache(maxsize=4096)
def warn(message: str) -> None:
    """Logs a message once per process; it is printed only if logging is set up."""
    _log.warning("%s", message)
