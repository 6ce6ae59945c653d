"""The manifest of an exported library: JSON that describes every kernel and every launch."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ptxgen.codegen.source import ArrayPart, Step, TensorMap
from ptxgen.export.library import ExportedProblem, Library, Module
from ptxgen.lowering.table import Table
from ptxgen.runtime.assemble import Assembled

#: version of the schema that docs/export.md describes; readers refuse greater versions
FORMAT = 1
#: a file of an export, by its name in the folder
_FILE = re.compile(r"kernels/\w+\.(cubin|ptx|bin)|ptxgen_kernels\.[ch]|CMakeLists\.txt|example\.c", re.ASCII)


def text(library: Library, assembled: Mapping[int, Assembled], version: str, command: str, files: Iterable[str]) -> str:
    """The manifest. ``assembled``: the machine code of each module, by number; ``files``: all other files of the
    export, by their names in its folder."""
    document = {
        **_head(version, files),
        "command": command,
        "device": asdict(library.device),
        "target": library.modules[0].source.target,
        "modules": [_module(library, module, assembled[module.number]) for module in library.modules],
        "tables": {"file": "kernels/tables.bin" if library.tables.size else None, "bytes": library.tables.size},
        "kernels": [
            {
                "module": kernel.module.number,
                "problem": kernel.problem.key(),
                "config": kernel.general.config.values(),
                "ones": list(kernel.general.ones),
            }
            for kernel in library.kernels
        ],
        "tasks": [{"function": f"ptxgen_{t.form.name}", "text": t.notes[0]} for t in library.tasks],
        "problems": [_problem(library, p) for p in library.problems],
    }
    return json.dumps(document, indent=1) + "\n"


def incomplete(version: str, files: Iterable[str]) -> str:
    """The manifest of a folder whose files are being replaced: only ``files``, those that are or will be there."""
    return json.dumps(_head(version, files), indent=1) + "\n"


def files_of(path: Path) -> set[str]:
    """The names of the files of an export: its manifest, at ``path``, and the files that the manifest lists, except
    names that no export writes. Empty: ``path`` is not the manifest of an export."""
    try:
        document = json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return set()
    if not isinstance(document, dict) or not isinstance(document.get("ptxgen"), str):
        return set()
    listed = document.get("files")
    names = filter(_FILE.fullmatch, map(str, listed if isinstance(listed, list) else ()))
    return {path.name, *names}


def _head(version: str, files: Iterable[str]) -> dict[str, Any]:
    return {"format": FORMAT, "ptxgen": version, "files": sorted(files)}


def _module(library: Library, module: Module, code: Assembled) -> dict[str, Any]:
    functions = [f for f in library.functions if f.module == module.number]
    return {
        "file": f"kernels/{module.name}.cubin",
        "sha256": hashlib.sha256(code.cubin).hexdigest(),
        "digest": module.source.digest,
        "shared": module.source.shared,
        "functions": [
            {
                "number": f.number,
                "entry": f.entry,
                "registers": code.registers.get(f.entry),
                "spills": code.spills.get(f.entry),
                "dependent": f.dependent,
            }
            for f in functions
        ],
    }


def _problem(library: Library, p: ExportedProblem) -> dict[str, Any]:
    return {
        "problem": p.problem.key(),
        "fields": p.problem.as_dict(),
        "config": p.config.values(),
        "source": p.selection.source,
        "kernel": None if p.kernel is None else p.kernel.number,
        "us": None if p.selection.us != p.selection.us else p.selection.us,
        "swapped": p.swapped,
        "workspace": p.launch.workspace,
        "zeroed": p.launch.zeroed,
        "launches": [_step(library, p.modules, step) for step in p.launch.steps],
        "function": f"ptxgen_{p.operation.form.name}",
        "alpha_zero": None
        if p.empty is None
        else {
            "workspace": p.empty.launch.workspace,
            "zeroed": p.empty.launch.zeroed,
            "launches": [_step(library, [p.empty.module], step) for step in p.empty.launch.steps],
        },
    }


def _step(library: Library, modules: Sequence[Module], step: Step) -> dict[str, Any]:
    """The JSON of a launch. If ``function`` is null, the launch sets the first ``grid[0]`` bytes of its parameter, an
    array, to zero."""
    return {
        "function": library.function(modules, step.entry).number if step.entry else None,
        "grid": list(step.grid),
        "block": list(step.block),
        "shared": step.shared,
        "parameters": [_parameter(library, ptx_type, value) for ptx_type, value in step.arguments],
    }


def _parameter(library: Library, ptx_type: str, value: object) -> dict[str, Any]:
    """The JSON of a kernel parameter: its type, and its value or the name of a value that the caller supplies."""
    if isinstance(value, TensorMap):
        return {"type": "tensor_map", "map": asdict(value)}
    if isinstance(value, Table):
        return {"type": "u64", "table": library.tables.offsets[value]}
    if isinstance(value, ArrayPart):
        return {"type": ptx_type, "name": value.array, "offset": value.offset}
    return {"type": ptx_type, "name" if isinstance(value, str) else "value": value}
