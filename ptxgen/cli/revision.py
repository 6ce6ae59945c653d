"""The version of the program, and the commit of its checkout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from ptxgen import __version__


def commit() -> str:
    """The abbreviated commit of the checkout, followed by ``+`` if files are modified. Without a checkout: the contents
    of the file ``.commit``; empty: there is no such file."""
    here = Path(__file__).resolve().parents[2]
    if (here / ".git").exists() and (git := shutil.which("git")):
        command = [git, "-C", str(here), "describe", "--always", "--dirty=+", "--exclude=*"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode == 0 and result.stdout.strip():
            return result.stdout.strip()
    commit_file = here / ".commit"
    return commit_file.read_text().strip() if commit_file.exists() else ""


def revision() -> str:
    """The commit of the checkout, else the version."""
    return commit() or f"v{__version__}"


def version() -> str:
    """The text with the version, and with the commit in a checkout."""
    revision = commit()
    return f"ptxgen {__version__}" + (f" ({revision})" if revision else "")
