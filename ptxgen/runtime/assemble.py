"""Assembles PTX with ptxas and caches the machine code on disk.

A cache entry is two files named after the source's digest, the target and the version of ptxas: the cubin, and a JSON
file with registers, spills, the log and the cubin's checksum. An incomplete or damaged entry is assembled
again. The checksum does not protect against other users, so a folder that other users can write is not used.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ptxgen import disk_cache
from ptxgen.codegen.source import Source
from ptxgen.errors import AssembleError, InputError, UnavailableError
from ptxgen.install_advice import install
from ptxgen.settings import settings

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_SPILLS = re.compile(r"(\d+) bytes spill stores")
_REGISTERS = re.compile(r"Used (\d+) registers")
_VERSION = re.compile(r"\bV(\d+(?:\.\d+)+)")


@dataclass(frozen=True)
class Assembled:
    """The machine code of a source. ``registers`` (per thread) and ``spills`` (bytes of spill stores) are by entry;
    ``log``: the output of ptxas."""

    cubin: bytes
    registers: dict[str, int]
    spills: dict[str, int]
    log: str


@dataclass(frozen=True)
class CachedSource(Source):
    """A source without its PTX text. The digest of the text identifies the machine code in the disk cache."""

    digest: str = ""

    @classmethod
    def of(cls, source: Source) -> CachedSource:
        own = {f.name: getattr(source, f.name) for f in fields(Source)}
        return cls(**{**own, "text": ""}, digest=source.digest)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> CachedSource:
        """The source whose ``dataclasses.asdict`` is ``values``, read from JSON."""
        lists = {name: tuple(values[name]) for name in ("entries", "pdl_entries")}
        return cls(**{**values, **lists})


def find_ptxas() -> Path | None:
    """The path of ptxas: PTXGEN_PTXAS, else the nvidia-cuda-nvcc wheel, else the PATH. None: there is none.

    InputError: PTXGEN_PTXAS is not an executable file.
    """
    chosen = settings().ptxas
    if chosen is not None:
        if not _is_executable(chosen):
            raise InputError(f"PTXGEN_PTXAS is {chosen}; it must be an executable file")
        return chosen
    wheel = _wheel_ptxas()
    if wheel is not None:
        return wheel
    path = shutil.which("ptxas")
    return Path(path) if path else None


@functools.cache
def version(ptxas: Path) -> str:
    """The release of a ptxas, for example ``13.0.88``. UnavailableError: it does not run, or prints no release."""
    try:
        output = subprocess.run([ptxas, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as e:
        raise UnavailableError(f"{ptxas} does not run: {e}") from e
    match = _VERSION.search(output)
    if not match:
        raise UnavailableError(f"{ptxas} --version does not print a release; its output is {output.strip()[:200]!r}")
    return match[1]


def assemble(source: Source, target: str | None = None) -> Assembled:
    """The machine code of ``source`` for ``target`` (for example ``sm_90``; default: the target of the source), cached
    on disk.

    Thread-safe: ptxas runs as a child process. AssembleError: ptxas rejected the text (``log`` has its messages), or
    the source has no text and the cache does not have its machine code. UnavailableError: there is no ptxas.
    RuntimeWarning: other users can write the cache folder, so it is not used.
    """
    ptxas = find_ptxas()
    if ptxas is None:
        raise UnavailableError(f"there is no ptxas; {install('nvidia-cuda-nvcc>=13.0,<14')}, or set PTXGEN_PTXAS")
    target = target or source.target
    stem = _stem(ptxas, source.digest, target)
    assembled = _read(stem)
    if assembled is None and isinstance(source, CachedSource):
        raise AssembleError(f"the disk cache has no machine code of {source.digest}, whose text is not known")
    if assembled is None:
        assembled = _run(ptxas, source, target)
        _write(stem, assembled)
    return assembled


def cached(digest: str, target: str) -> Assembled | None:
    """The machine code of the PTX text with this digest. None: the disk cache has none from the current ptxas."""
    ptxas = find_ptxas()
    return None if ptxas is None else _read(_stem(ptxas, digest, target))


def _stem(ptxas: Path, digest: str, target: str) -> Path:
    return settings().cache / "cubin" / f"{digest}-{target}-{version(ptxas)}"


def _wheel_ptxas() -> Path | None:
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for layout in ("cu[0-9]*/bin/ptxas", "cuda_nvcc/bin/ptxas"):
            for path in sorted(Path(folder).glob(layout), reverse=True):
                if _is_executable(path):
                    return path
    return None


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _run(ptxas: Path, source: Source, target: str) -> Assembled:
    # Pipes take the text and the cubin: creating and removing files would take milliseconds.
    command = [str(ptxas), f"-arch={target}", "-v", "/dev/stdin", "-o", "/dev/stdout"]
    try:
        done = subprocess.run(command, input=source.text.encode(), capture_output=True, check=False)
    except OSError as e:
        raise UnavailableError(f"{ptxas} does not run: {e}") from e
    log = done.stderr.decode(errors="replace").strip().replace("/dev/stdin", "kernel.ptx")
    if done.returncode or not done.stdout:
        first = next((line for line in log.splitlines() if " error" in line or " fatal" in line), log[:200])
        reason = first or f"it ended with status {done.returncode} and no message"
        raise AssembleError(f"ptxas rejected the kernel for {target}: {reason}", log)
    return Assembled(done.stdout, *_parse_log(log), log)


def _parse_log(log: str) -> tuple[dict[str, int], dict[str, int]]:
    """Registers and spilled bytes by entry, from the output of ``ptxas -v``."""
    registers: dict[str, int] = {}
    spills: dict[str, int] = {}
    entry = function = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = function = match[1]
        elif match := _PROPERTIES.search(line):
            function = match[1]
        elif (match := _SPILLS.search(line)) and function == entry:
            spills[entry] = int(match[1])
        elif match := _REGISTERS.search(line):
            registers[entry] = int(match[1])
    return registers, spills


def _files(stem: Path) -> tuple[Path, Path]:
    # with_suffix would remove the last number of the release
    return stem.with_name(stem.name + ".cubin"), stem.with_name(stem.name + ".json")


def _read(stem: Path) -> Assembled | None:
    """The machine code in a cache entry. None: the entry is absent or damaged, or other users can write the folder,
    which gives a warning."""
    if reason := disk_cache.unsafe(stem.parent):
        warnings.warn(f"compiled kernels are not cached: {reason}", RuntimeWarning, stacklevel=3)
        return None
    code, facts_file = _files(stem)
    try:
        facts = json.loads(facts_file.read_text())
        cubin = code.read_bytes()
        if hashlib.sha256(cubin).hexdigest() != facts["sha256"]:
            return None
        counts = [{str(k): int(v) for k, v in facts[name].items()} for name in ("registers", "spills")]
        return Assembled(cubin, counts[0], counts[1], str(facts["log"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(stem: Path, assembled: Assembled) -> None:
    """Stores ``assembled`` in the cache. Errors of the file system are ignored, because the cache is optional."""
    if disk_cache.unsafe(stem.parent):
        return
    facts = {
        "sha256": hashlib.sha256(assembled.cubin).hexdigest(),
        "registers": assembled.registers,
        "spills": assembled.spills,
        "log": assembled.log,
    }
    code_file, facts_file = _files(stem)
    try:
        disk_cache.create(stem.parent)
        disk_cache.replace(code_file, assembled.cubin)
        disk_cache.replace(facts_file, json.dumps(facts, sort_keys=True).encode())
    except OSError:
        pass
