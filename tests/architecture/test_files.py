"""What the project's files must not contain."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from .source import ROOT, imports, modules

SERIALISERS = {"pickle", "marshal", "shelve", "joblib", "dill", "cloudpickle"}
#: folders of single machines
FOREIGN = re.compile("/" + "(work|root|farm|home/[a-z]+|Users/[A-Za-z]+)/")


def files() -> list[Path]:
    """The project's own files: those that git tracks, or (without git) all in its folders."""
    asked = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run(asked, capture_output=True, check=False) if (ROOT / ".git").exists() else None
    if output is not None and output.returncode == 0:
        return [p for name in output.stdout.decode().split("\0") if name and (p := ROOT / name).is_file()]
    folders = ("ptxgen", "templates", "tests", "scripts", "docs", "tuning_db")
    return [p for folder in folders for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts]


def texts() -> list[tuple[Path, str]]:
    out = []
    for path in files():
        try:
            out.append((path, path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue  # compressed measurements
    assert len(out) > 50
    return out


def test_no_file_uses_pickle() -> None:
    used = [f"{m} imports {name}" for m in modules() for _, name in imports(m) if name.split(".")[0] in SERIALISERS]
    assert not used
    assert not [m for m, path in modules().items() if "allow_pickle=True" in path.read_text()]


def test_no_file_contains_a_path_of_one_machine() -> None:
    paths = [f"{p.relative_to(ROOT)}: {m[0]}" for p, text in texts() if (m := FOREIGN.search(text))]
    assert not paths


def test_scripts_are_executable_and_state_their_purpose() -> None:
    for path in [*(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run"]:
        if path.name.startswith((".", "__pycache__")):
            continue
        lines = path.read_text().splitlines()
        assert lines[0].startswith("#!/usr/bin/env "), path
        assert path.stat().st_mode & 0o111, f"{path} is not executable"
        assert lines[1].startswith(("# ", '"""')), f"{path} does not describe its purpose"
