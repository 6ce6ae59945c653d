"""Translates configurations of earlier text forms to today's.

Form 1 (until schema version 2 of the database and format 1 of exported files) had other axis names, and integers in
place of words. The tables below describe that form; they do not change when an axis does.
"""

from __future__ import annotations

import re
from functools import lru_cache

#: axis of form 1 -> axis of form 2
RENAMED = {
    "copy_a": "cp_async_a",
    "copy_b": "cp_async_b",
    "keep_a": "kmajor_smem_a",
    "keep_b": "kmajor_smem_b",
    "wm": "lanes_m",
    "split": "splitk",
    "stage_c": "epilogue_smem",
    "lanes": "lane_interleave",
    "order": "mma_order",
    "ahead": "fragment_prefetch",
    "request": "prefetch_k",
    "hold": "deferred_sts",
    "raster": "raster_group",
    "stream": "store_policy",
    "resident": "min_ctas_per_sm",
    "swap": "transposed_mma",
    "wg": "math_warpgroups",
    "cluster": "cluster_x",
    "yc": "cluster_y",
    "kc": "cluster_k",
    "report": "dsmem_completion",
    "chunks": "epilogue_subtiles",
    "buffers": "epilogue_buffers",
    "reuse": "epilogue_aliases_ab",
    "evict": "l2_evict_first",
    "repack": "operand_path",
    "rows": "tma_rows",
}

#: axis of form 2 -> the words of the integers 0, 1, … of form 1
WORDS = {
    "family": ("simt", "mma", "wgmma", "skinny", "depthwise"),
    "splitk": ("memset_red", "flag_red", "workspace", "last_cta", "distributed"),
    "bounds": ("none", "clamp", "predicate"),
    "mma_order": ("row_serpentine", "column_serpentine", "row_major"),
    "store_policy": ("default", "streaming"),
    "dsmem_completion": ("tx_bytes", "barrier"),
    "l2_evict_first": ("none", "a", "b", "ab"),
    "pdl": ("off", "on_exit", "on_start", "within_launch"),
}

#: families of form 1 that had another name
FAMILIES = {"stream": "skinny", "slide": "depthwise"}

#: what words of form 1 mean for the family skinny, which had no axes of its own
_SKINNY = {
    "transposed_mma=0": "long_n=0",
    "transposed_mma=1": "long_n=1",
    "tma_rows=0": "mma_m16=0",
    "tma_rows=16": "mma_m16=1",
}

_PATHS = {0: "direct", 1: "pack", 2: "realign"}


def operand_paths(code: int) -> tuple[str, str] | None:
    """The words of the axes operand_path_a and operand_path_b for the bits of form 1's ``repack``: 1 A is packed, 2 B
    is packed, 4 A is realigned, 8 B is realigned. None: no such code."""
    a, b = (code & 1) + (code >> 2 & 1) * 2, (code >> 1 & 1) + (code >> 3 & 1) * 2
    return (_PATHS[a], _PATHS[b]) if 0 <= code < 16 and a in _PATHS and b in _PATHS else None


def renamed(name: str) -> str:
    """What an axis of form 1 is called in form 2; empty if it had the same name, or is unknown."""
    name = RENAMED.get(name, name if name == "operand_path" else "")
    return "operand_path_a, operand_path_b" if name == "operand_path" else name


def word_of(name: str, value: str) -> str:
    """The word of form 2 for an integer, or an old family's name, of form 1; empty if there is none."""
    if name == "family" and value in FAMILIES:
        return FAMILIES[value]
    words = WORDS.get(name, ())
    return words[int(value)] if re.fullmatch("[0-9]", value) and int(value) < len(words) else ""


@lru_cache(maxsize=1024)
def _translated(word: str) -> str:
    name, equals, value = word.partition("=")
    name = RENAMED.get(name, name)
    if name == "operand_path" and re.fullmatch("[0-9]{1,2}", value) and (paths := operand_paths(int(value))):
        return f"operand_path_a={paths[0]} operand_path_b={paths[1]}"
    return f"{name}{equals}{word_of(name, value) or value}"


def translate(text: str) -> str:
    """A configuration of form 1 in form 2. What is unknown, or of form 2 already, stays as it is."""
    words = [word for old in text.replace(",", " ").split() for word in _translated(old).split()]
    if "family=skinny" in words:
        words = [_SKINNY.get(word, word) for word in words]
    return " ".join(words)
