"""The statistics of a launch, or its fault, as plain data and as text."""

from __future__ import annotations

from typing import Any

from ptxgen.emulator.stats import Access, Stats
from ptxgen.errors import Fault, Faults, Place, shortened

Document = dict[str, Any]


def faults_fields(fault: Fault) -> list[Document]:
    """The faults of a launch: the listed ones, or the one that ended it."""
    return [fault_fields(each) for each in (fault.faults if isinstance(fault, Faults) else (fault,))]


def fault_fields(fault: Fault) -> Document:
    """The message of a fault and its position."""
    return {
        "kind": type(fault).__name__,
        "message": fault.message,
        "entry": fault.entry,
        "kernel": fault.kernel,
        **place_fields(fault.place),
        "address": fault.address,
        "variable": fault.variable or None,
        "other": None if fault.other is None else {"access": fault.other.name, **place_fields(fault.other)},
        "mentioned": [place_fields(place) for place in fault.mentioned],
        "count": fault.count,
    }


def place_fields(place: Place) -> Document:
    """A position in the PTX and in the source."""
    return {
        "line": place.line,
        "instruction": place.instruction,
        "source": place.source or None,
        "frames": [frame._asdict() for frame in place.frames],
        "block": place.block,
        "thread": place.thread,
    }


def access_fields(a: Access) -> Document:
    return {
        "requests": round(a.requests),
        "bytes": round(a.bytes),
        "distinct": round(a.distinct),
        "sectors": round(a.sectors),
        "wavefronts": round(a.wavefronts),
        "conflicts": round(a.wavefronts - a.ideal),
    }


def stats_fields(stats: Stats) -> Document:
    """The counts of a launch, as plain data."""
    classes = sorted(stats.warp_instructions, key=lambda c: (-stats.warp_instructions[c], c))
    return {
        "seconds": stats.seconds,
        "blocks": stats.blocks,
        "threads": stats.threads,
        "warp_instructions": {c: stats.warp_instructions[c] for c in classes},
        "lane_instructions": {c: stats.lane_instructions[c] for c in classes},
        "opcodes": dict(sorted(stats.opcodes.items(), key=lambda item: (-item[1], item[0]))),
        "shared": access_fields(stats.shared),
        "global_load": access_fields(stats.global_load),
        "global_store": access_fields(stats.global_store),
        "barriers": stats.barriers,
        "atomics": stats.atomics,
        "mma": stats.mma,
        "notes": stats.notes,
    }


def fault_text(fault: Fault, file: str) -> str:
    """The text that the command prints for a fault; ``file``: the name of the PTX file."""
    return fault.report(file) if isinstance(fault, Faults) else f"{type(fault).__name__}: {fault.report(file)}"


def text(document: Document) -> str:
    """The text that the command prints for a launch without a fault."""
    s = document["statistics"]
    name = shortened(document["kernel"])
    lines = [f"{name}: {s['blocks']} blocks, {s['threads']} threads, emulated in {s['seconds']:.3f} s", ""]
    width = max([len(c) for c in s["warp_instructions"]] + [len("instructions")])
    lines.append(f"{'instructions':<{width}} {'warps':>12} {'threads':>14}")
    for name, count in s["warp_instructions"].items():
        lines.append(f"{name:<{width}} {count:>12} {s['lane_instructions'][name]:>14}")
    warps, threads = sum(s["warp_instructions"].values()), sum(s["lane_instructions"].values())
    lines += [f"{'total':<{width}} {warps:>12} {threads:>14}", ""]
    shared = s["shared"]
    if shared["requests"]:
        lines.append(
            f"shared memory  {shared['requests']} warp accesses, {shared['wavefronts']} wavefronts, "
            f"{shared['conflicts']} of them for bank conflicts"
        )
    for name, words in (("global_load", "global loads "), ("global_store", "global stores")):
        a = s[name]
        if a["requests"]:
            used = f" sectors, {a['distinct'] / (32 * a['sectors']):.0%} of them used" if a["sectors"] else " sectors"
            lines.append(f"{words}  {a['requests']} warp accesses, {a['bytes']} bytes, {a['sectors']}{used}")
    counts = (
        ("barriers", "warp arrivals at barriers"),
        ("atomics", "atomic thread accesses"),
        ("mma", "matrix products"),
    )
    lines += [f"{words}  {s[name]}" for name, words in counts if s[name]]
    lines += [f"note: {note}" for note in s["notes"]]
    lines += [f"saved {a['saved']}" for a in document["arguments"] if a["saved"] is not None]
    return "\n".join(lines).rstrip()
