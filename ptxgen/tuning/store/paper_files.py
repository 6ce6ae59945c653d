"""Shipped documents of commands that print tables and figures of papers: ``tuning_db/<device>/paper/NAME.json``, as
``--json`` or ``--save`` wrote them on the device."""

from __future__ import annotations

from pathlib import Path

from ptxgen.errors import InputError
from ptxgen.settings import shipped_dir

FOLDER = "paper"


def path_of(device: str, name: str) -> Path:
    """The path of a document, which need not exist."""
    return shipped_dir() / device / FOLDER / f"{name}.json"


def existing(device: str, name: str, remedy: str) -> Path:
    """The path of a shipped document. ``remedy``: a sentence for the error, with the command that makes the document.
    InputError: the device has no such document."""
    path = path_of(device, name)
    if not path.exists():
        known = sorted(p.parents[1].name for p in shipped_dir().glob(f"*/{FOLDER}/{name}.json"))
        rule = f"it must be one with shipped times: {', '.join(known)}" if known else "no device has shipped times"
        raise InputError(f"device is {device!r}; {rule}. {remedy}")
    return path
