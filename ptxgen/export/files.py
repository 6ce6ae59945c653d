"""Writes an exported library: a folder with cubins, tables, the manifest, C source and an example."""

from __future__ import annotations

from pathlib import Path

from ptxgen.codegen.render import render_file
from ptxgen.cuda_abi import MAP_ALIGNMENT, MAP_BYTES, PARAMETERS_AT
from ptxgen.errors import InputError
from ptxgen.export import c_source, manifest
from ptxgen.export.c_expression import comment
from ptxgen.export.choice import compiled
from ptxgen.export.general import VARIABLES
from ptxgen.export.library import Library
from ptxgen.export.operations import EPILOGUE_BITS, KIND, NATURAL_FILTERS, OPERATIONS, WORDS, enumerator
from ptxgen.problem.base import EPILOGUE_OPERANDS
from ptxgen.runtime.assemble import assemble
from ptxgen.tuning.exchange import replacing

#: the files of the folder that are rendered, and their templates
TEMPLATES = {
    "ptxgen_kernels.h": "export/ptxgen_kernels.h.mako",
    "ptxgen_kernels.c": "export/ptxgen_kernels.c.mako",
    "CMakeLists.txt": "export/CMakeLists.txt.mako",
    "example.c": "export/example.c.mako",
}

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


def write(library: Library, folder: Path, *, version: str, command: str, ptx: bool = False) -> list[Path]:
    """Writes ``library`` into ``folder`` and returns the files. ``ptx``: the PTX of each kernel, too. The header and
    the source are written last, and those of an earlier export are removed before its tables and manifest are replaced:
    a folder with them is complete.

    InputError: ``folder`` is a file. AssembleError, UnavailableError: a kernel cannot be assembled.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"folder is {folder}, a file; it must be a folder")
    kernels = folder / "kernels"
    files, assembled = [], {}
    trees, scores = compiled(library.model, [kernel.general for kernel in library.kernels])

    def store(path: Path, data: bytes) -> None:
        with replacing(path) as file:
            file.write(data)
        files.append(path)

    for module in library.modules:
        assembled[module.number] = assemble(module.source)
        store(kernels / f"{module.name}.cubin", assembled[module.number].cubin)
        if ptx:
            store(kernels / f"{module.name}.ptx", module.source.text.encode())
    for name in TEMPLATES:
        (folder / name).unlink(missing_ok=True)  # of an earlier export, whose tables are replaced
    if library.tables.size:
        store(kernels / "tables.bin", library.tables.bytes())
    store(folder / "manifest.json", manifest.text(library, assembled, version, command).encode())
    values = {
        "version": version,
        "command": command,
        "comment": comment,
        "device": library.device,
        "target": library.modules[0].source.target,
        "statuses": STATUSES,
        "words": WORDS,
        "filters": NATURAL_FILTERS,
        "enumerator": enumerator,
        "epilogue_bits": EPILOGUE_BITS,
        "arrays": tuple(dict.fromkeys(name for names in EPILOGUE_OPERANDS.values() for name in names)),
        "operations": tuple(OPERATIONS.values()),
        "modules": library.modules,
        "functions": library.functions,
        "tables": library.tables,
        "map_bytes": MAP_BYTES,
        "map_alignment": MAP_ALIGNMENT,
        "parameters_at": PARAMETERS_AT,
        "launches": c_source.functions(library),
        "choices": c_source.choices(library, scores),
        "trees": trees,
        "kinds": len(KIND),
        "variables": VARIABLES,
        "entries": c_source.entries(library),
        **c_source.example(library.problems[0]),
    }
    for name, template in reversed(TEMPLATES.items()):
        store(folder / name, render_file(template, **values).encode())
    return files
