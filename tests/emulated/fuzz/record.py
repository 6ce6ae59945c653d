"""Runs every module on a GPU and records the outputs.

    PYTHONPATH=.:tests/emulated python -m fuzz.record FOLDER [--commit NAME]

writes ``h200.xz``, which is stored in this folder, and ``probes.json``, which is read by people. Any GPU of sm_90 will do;
the recording names all that took part. Each module runs twice. Modules that fail or whose two outputs differ are reported
and not recorded. Recorded outputs of unchanged modules are reused.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from . import generate, probes, recording
from .generate import File
from .kernel import Case

#: seconds without a result after which a kernel counts as endless
PATIENCE = 20


def known() -> tuple[dict[str, bytes], list[str]]:
    """The recorded outputs of modules that have not changed, and the devices that they ran on."""
    if not recording.PATH.exists():
        return {}, []
    old = recording.read()
    outputs = {c.name: old.outputs[c.name] for c in recorded_cases() if old.digests.get(c.name) == c.digest()}
    return outputs, old.facts["device"].split(", ")


def recorded_cases() -> tuple[Case, ...]:
    """The modules whose outputs are recorded."""
    return (*generate.cases(), *generate.directed())


def files() -> tuple[File, ...]:
    probe_files = tuple(File(f"probe_{c.name}", generate.HEADER + c.text, (c,)) for c in probes.cases())
    return (*generate.files(), generate.directed_file(), *probe_files)


def source(file: File) -> Any:
    from ptxgen.codegen.source import Source

    return Source(file.text, tuple(c.name for c in file.cases), "sm_90a", max(c.shared for c in file.cases))


def work(skip: set[str], result: Path) -> None:
    """Runs the remaining modules; writes (name, None) before and (name, outputs of both runs) after each module."""
    from ptxgen.codegen.source import Step
    from ptxgen.runtime.cuda import CudaDriver

    driver = CudaDriver()
    most = max(max(len(c.input), c.output) for f in files() for c in f.cases) + 256
    a, b = driver.allocate(most), driver.allocate(most)
    with result.open("ab") as out:
        for file in files():
            left = [c for c in file.cases if c.name not in skip]
            if not left:
                continue
            kernel = driver.load(source(file))
            for case in left:
                pickle.dump((case.name, None), out)
                out.flush()
                got = []
                for _ in range(2):
                    # constants of the module are fresh each time; buffers are, too
                    driver.upload(a, np.frombuffer(case.input or b"\0", np.uint8))
                    driver.fill(b, -(-max(case.output, 1) // 4) * 4)
                    driver.launch(
                        kernel,
                        Step(case.name, case.grid, case.block, case.shared),
                        case.parameters(a, b, driver.tensor_map),
                    )
                    driver.synchronize()
                    data = np.zeros(max(case.output, 1), np.uint8)
                    driver.download(b, data)
                    got.append(data.tobytes()[: case.output])
                pickle.dump((case.name, got), out)
                out.flush()


def results(path: Path) -> Iterator[tuple[str, Any]]:
    if not path.exists():
        return
    with path.open("rb") as f:
        while True:
            try:
                yield pickle.load(f)
            except (EOFError, pickle.UnpicklingError):
                return


def run(folder: Path, old: set[str]) -> tuple[dict[str, list[bytes]], dict[str, str]]:
    """Outputs by module, and the failed modules; after a failure a new process runs the remaining modules."""
    result = folder / "results"
    done: dict[str, list[bytes]] = {}
    failed: dict[str, str] = {}
    total = sum(1 for f in files() for c in f.cases if c.name not in old)
    while len(done) + len(failed) < total:
        skip = folder / "skip"
        skip.write_text("\n".join([*old, *done, *failed]))
        before = len(done) + len(failed)
        log_file = folder / "log"
        with log_file.open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "fuzz.record", "--work", str(skip), str(result)], stdout=log, stderr=log
            )
            size, since, why = -1, time.monotonic(), ""
            while process.poll() is None:
                time.sleep(0.05)
                now = result.stat().st_size if result.exists() else 0
                if now != size:
                    size, since = now, time.monotonic()
                elif time.monotonic() - since > PATIENCE * (1 if size > 0 else 6):
                    process.kill()
                    why = "never ends"
        begun = None
        for name, got in results(result):
            begun = name if got is None else None
            if got is not None:
                done[name] = got
        if begun is not None and begun not in failed:
            failed[begun] = why or log_file.read_text().strip()[-500:]
            print(begun, "failed:", failed[begun], flush=True)
        elif len(done) + len(failed) == before:
            raise SystemExit(f"no progress: {log_file.read_text()[-2000:]}")
    return done, failed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--commit", default="")
    parser.add_argument("--all", action="store_true", help="also run the modules that are recorded")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    from ptxgen.runtime.assemble import assemble
    from ptxgen.runtime.cuda import CudaDriver

    began = time.time()
    old, devices = ({}, []) if args.all else known()
    every = [f for f in files() if any(c.name not in old for c in f.cases)]
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda f: assemble(source(f)), every))
    print(f"assembled {len(every)} files in {time.time() - began:.1f} s", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        done, failed = run(Path(temporary), set(old))
    print(f"ran {len(done)} modules in {time.time() - began:.1f} s, {len(failed)} failed", flush=True)
    unstable = [name for name, (one, two) in done.items() if one != two]
    print("differ from run to run:", *unstable)
    driver = CudaDriver()
    facts = {
        "version": generate.VERSION,
        "device": ", ".join(dict.fromkeys([*devices, driver.device.name])),
        "driver": driver.version,
        "assembler": driver.assembler,
        "commit": args.commit,
        "failed": failed,
        "unstable": unstable,
    }
    outputs = {**old, **{name: got[0] for name, got in done.items() if name not in unstable}}
    recording.write(args.folder / "h200.xz", facts, recorded_cases(), outputs)
    answers = {
        c.name: [
            [
                col.label,
                col.dtype,
                np.frombuffer(done[c.name][0], recording.raw_dtype(col), col.count, col.offset).tolist(),
            ]
            for col in c.columns
        ]
        for c in probes.cases()
        if c.name in done
    }
    (args.folder / "probes.json").write_text(json.dumps({"facts": facts, "answers": answers}))
    print((args.folder / "h200.xz").stat().st_size, "bytes")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(set(Path(sys.argv[2]).read_text().split("\n")), Path(sys.argv[3]))
    else:
        main()
