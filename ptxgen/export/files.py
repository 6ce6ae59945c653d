"""Writes an exported library: a folder with cubins, tables, the manifest, C source and an example."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from ptxgen.codegen.render import render_file
from ptxgen.cuda_abi import MAP_ALIGNMENT, MAP_BYTES, PARAMETERS_AT
from ptxgen.errors import InputError
from ptxgen.export import c_source, manifest
from ptxgen.export.c_expression import comment
from ptxgen.export.choice import compiled
from ptxgen.export.general import VARIABLES
from ptxgen.export.library import Library
from ptxgen.export.operations import enumerator, epilogue_bits, exported, in_c, words
from ptxgen.problem.epilogue_ops import arrays_of
from ptxgen.runtime.assemble import assemble
from ptxgen.tuning.store.exchange import replacing

#: the files of the folder that are rendered, and their templates
TEMPLATES = {
    "ptxgen_kernels.h": "export/ptxgen_kernels.h.mako",
    "ptxgen_kernels.c": "export/ptxgen_kernels.c.mako",
    "CMakeLists.txt": "export/CMakeLists.txt.mako",
    "example.c": "export/example.c.mako",
}
MANIFEST, KERNELS = "manifest.json", "kernels"
TABLES = f"{KERNELS}/tables.bin"

#: the values of ptxgen_status, and their meanings
STATUSES = (
    ("PTXGEN_SUCCESS", "success"),
    ("PTXGEN_INVALID_ARGUMENT", "an argument is missing, out of range or not aligned"),
    ("PTXGEN_NOT_EXPORTED", "no exported kernel computes this problem"),
    ("PTXGEN_WORKSPACE_TOO_SMALL", "the workspace is smaller than the call needs"),
    ("PTXGEN_NO_DRIVER", "libcuda.so.1 cannot be loaded, or lacks a function"),
    ("PTXGEN_NO_FILE", "a file of the folder is missing, or tables.bin has another size"),
    ("PTXGEN_WRONG_DEVICE", "the GPU is not one that the kernels were exported for"),
    ("PTXGEN_OUT_OF_MEMORY", "out of host memory"),
    ("PTXGEN_DRIVER_ERROR", "a call of the CUDA driver failed: see ptxgen_driver_result"),
)


def member_arrays() -> tuple[str, ...]:
    """The names of the arrays besides a, b and c in a call: arrays of epilogue operations, then of operations."""
    epilogues = (name for op in epilogue_bits() for name in arrays_of(op))
    operations = (name for operation in map(in_c, exported()) for name in operation.form.arrays)
    return tuple(dict.fromkeys((*epilogues, *operations)))


def require_own(folder: Path, names: Iterable[str] = TEMPLATES) -> set[str]:
    """The files of an earlier export into ``folder``, which its manifest lists. ``names``: the files to write besides
    the manifest. InputError: one of them would replace a file that is not of an earlier export, or ``folder`` is a
    file."""
    for place in (folder, folder / KERNELS):
        if place.exists() and not place.is_dir():
            raise InputError(f"folder is {folder}; {place} is a file; it must be a folder")
    own = manifest.files_of(folder / MANIFEST)
    for name in (MANIFEST, *names):
        if name not in own and os.path.lexists(folder / name):
            raise InputError(
                f"folder is {folder}; its file {name} is not of an earlier export; remove it, or name another folder"
            )
    return own


def write(library: Library, folder: Path, *, version: str, command: str, ptx: bool = False) -> list[Path]:
    """Writes ``library`` into ``folder`` and returns the files. ``ptx``: the PTX of each kernel, too.

    Files of an earlier export are replaced, or removed. Before a file changes, the sources of that export are removed
    and the manifest lists the files of both; the sources are written last: a folder with them is complete, and a folder
    with half an export can be exported into again.

    InputError: a file that no earlier export wrote would be replaced, or ``folder`` is a file. AssembleError,
    UnavailableError: a kernel cannot be assembled. After these errors
    the folder is as before.
    """
    assembled = {module.number: assemble(module.source) for module in library.modules}
    trees, scores = compiled(library.model, library.scored())
    kernels: dict[str, bytes] = {}
    for module in library.modules:
        kernels[f"{KERNELS}/{module.name}.cubin"] = assembled[module.number].cubin
        if ptx:
            kernels[f"{KERNELS}/{module.name}.ptx"] = module.source.text.encode()
    if library.tables.size:
        kernels[TABLES] = library.tables.bytes()
    names = [*kernels, *TEMPLATES]
    listing = manifest.text(library, assembled, version, command, names).encode()
    values = {
        "version": version,
        "version_number": version_number(*version_numbers(version)),
        "version_numbers": version_numbers(version),
        "command": command,
        "comment": comment,
        "device": library.device,
        "target": library.modules[0].source.target,
        "statuses": STATUSES,
        "words": words(),
        "enumerator": enumerator,
        "epilogue_bits": epilogue_bits(),
        "arrays": member_arrays(),
        "operations": library.operations,
        "modules": library.modules,
        "functions": library.functions,
        "tables": library.tables,
        "map_bytes": MAP_BYTES,
        "map_alignment": MAP_ALIGNMENT,
        "parameters_at": PARAMETERS_AT,
        "launches": c_source.functions(library),
        "choices": c_source.choices(library, scores),
        "trees": trees,
        "class_fields": max(operation.class_fields for operation in library.operations),
        "task_inputs": max(1, *(len(operation.arguments) for operation in library.operations)),
        "task_lists": max(1, *(len(operation.arguments) for operation in library.operations)),
        "variables": VARIABLES,
        "entries": c_source.entries(library),
        **c_source.example(library.problems[0]),
    }
    sources = {name: render_file(template, **values).encode() for name, template in reversed(TEMPLATES.items())}
    own = require_own(folder, names)
    for name in TEMPLATES:
        (folder / name).unlink(missing_ok=True)
    _store(folder / MANIFEST, manifest.incomplete(version, {*own, *names}).encode())
    for name, content in kernels.items():
        _store(folder / name, content)
    for name in own - {MANIFEST, *names}:
        (folder / name).unlink(missing_ok=True)
    for name, content in {MANIFEST: listing, **sources}.items():
        _store(folder / name, content)
    return [folder / name for name in (*kernels, MANIFEST, *sources)]


def version_number(major: int, minor: int, patch: int) -> int:
    """The version as one integer; later versions have greater ones."""
    return major * 10000 + minor * 100 + patch


def version_numbers(version: str) -> tuple[int, int, int]:
    """The major, minor and patch numbers in the text of a version; a missing number is 0."""
    digits = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", version)
    major, minor, patch = (int(x or 0) for x in (digits.groups() if digits else (0, 0, 0)))
    return major, minor, patch


def _store(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)
