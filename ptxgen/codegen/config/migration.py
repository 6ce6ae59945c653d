"""Translates configurations of earlier text forms to the present one.

Form 1 (until schema version 2 of the database and format 1 of exported files) had other axis names, and integers in
place of words. Form 2 (until schema version 3 and format 2) had the axes of all families in every configuration. In
form 3 (until schema version 5 and format 3) a family had axes with names of other families' axes. The tables below and
the ``Former`` of each family describe those forms; they do not change when an axis does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from ptxgen import plugins


@dataclass(frozen=True)
class Former:
    """How configurations of a family were written in earlier forms.

    ``code``: the integer of the family in form 1; ``axes``: its axes of form 2, separated by spaces; ``name``: its name
    in form 1, if it was another; ``renamed``: axis of form 2 or 3 -> present axis; ``words``: words of form 1 -> words
    of form 2, if it shared axes of another family in form 1."""

    code: int
    axes: str
    name: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


#: by the name of the family; ``families.registry`` adds them
FORMER: dict[str, Former] = {}
#: families that had no earlier forms, whose axes may have names that other axes had before
NEW: set[str] = set()

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
    "splitk": ("memset_red", "flag_red", "workspace", "last_cta", "distributed"),
    "bounds": ("none", "clamp", "predicate"),
    "mma_order": ("row_serpentine", "column_serpentine", "row_major"),
    "store_policy": ("default", "streaming"),
    "dsmem_completion": ("tx_bytes", "barrier"),
    "l2_evict_first": ("none", "a", "b", "ab"),
    "pdl": ("off", "on_exit", "on_start", "within_launch"),
}

#: axis of form 2 -> the text of its default
_DEFAULTS = {
    "ms": "8",
    "ns": "8",
    "ml": "64",
    "nl": "64",
    "u": "8",
    "ks": "1",
    "kl": "1",
    "kg": "1",
    "stages": "3",
    "cp_async_a": "1",
    "cp_async_b": "1",
    "kmajor_smem_a": "0",
    "kmajor_smem_b": "0",
    "vec_a": "1",
    "vec_b": "1",
    "vec_c": "1",
    "lanes_m": "4",
    "splitk": "memset_red",
    "epilogue_smem": "0",
    "bounds": "clamp",
    "lane_interleave": "0",
    "mma_order": "row_serpentine",
    "fragment_prefetch": "1",
    "prefetch_k": "0",
    "deferred_sts": "0",
    "raster_group": "1",
    "store_policy": "default",
    "min_ctas_per_sm": "1",
    "transposed_mma": "0",
    "math_warpgroups": "1",
    "pingpong": "0",
    "cluster_x": "1",
    "cluster_y": "1",
    "cluster_k": "1",
    "dsmem_completion": "tx_bytes",
    "persistent": "0",
    "epilogue_subtiles": "1",
    "epilogue_buffers": "1",
    "epilogue_aliases_ab": "0",
    "l2_evict_first": "none",
    "operand_path_a": "direct",
    "operand_path_b": "direct",
    "tma_rows": "0",
    "long_n": "0",
    "mma_m16": "0",
    "pdl": "off",
}

_PATHS = {0: "direct", 1: "pack", 2: "realign"}


def formers() -> dict[str, Former]:
    """By the name of the family."""
    plugins.load()
    return FORMER


def present_family(name: str) -> str:
    """The present name of a family of form 1."""
    return next((family for family, former in formers().items() if former.name == name), name)


def operand_paths(code: int) -> tuple[str, str] | None:
    """The words of the axes operand_path_a and operand_path_b for the bits of form 1's ``repack``: 1 A is packed, 2 B
    is packed, 4 A is realigned, 8 B is realigned. None: no such code."""
    a, b = (code & 1) + (code >> 2 & 1) * 2, (code >> 1 & 1) + (code >> 3 & 1) * 2
    return (_PATHS[a], _PATHS[b]) if 0 <= code < 16 and a in _PATHS and b in _PATHS else None


def renamed(name: str, family: str = "") -> str:
    """The present name of an axis of an earlier form; empty if it had the same name, or is unknown."""
    former = formers().get(family)
    if former is not None and RENAMED.get(name, name) in former.renamed:
        return former.renamed[RENAMED.get(name, name)]
    name = RENAMED.get(name, name if name == "operand_path" else "")
    return "operand_path_a, operand_path_b" if name == "operand_path" else name


def word_of(name: str, value: str) -> str:
    """The word of form 2 for an integer, or an old family's name, of form 1; empty if there is none."""
    words = WORDS.get(name, ())
    if name == "family":
        if (present := present_family(value)) != value:
            return present
        words = tuple(sorted(formers(), key=lambda family: FORMER[family].code))
    return words[int(value)] if re.fullmatch("[0-9]", value) and int(value) < len(words) else ""


@lru_cache(maxsize=1024)
def _translated(word: str) -> str:
    name, equals, value = word.partition("=")
    name = RENAMED.get(name, name)
    if name == "operand_path" and re.fullmatch("[0-9]{1,2}", value) and (paths := operand_paths(int(value))):
        return f"operand_path_a={paths[0]} operand_path_b={paths[1]}"
    return f"{name}{equals}{word_of(name, value) or value}"


def _own(word: str, former: Former) -> str:
    """A word of form 2 in the present form; empty for another family's axis at its default."""
    name, _, value = word.partition("=")
    if name in _DEFAULTS and name not in former.axes.split() and value == _DEFAULTS[name]:
        return ""
    return f"{former.renamed[name]}={value}" if name in former.renamed else word


def translate(text: str) -> str:
    """A configuration of an earlier form in the present one. Unknown words, and those of the present form, are
    unchanged."""
    given = text.replace(",", " ").split()
    formers()  # fills NEW
    if any(word.removeprefix("family=") in NEW for word in given if word.startswith("family=")):
        return " ".join(given)
    words = [word for old in given for word in _translated(old).split()]
    family = next((word.partition("=")[2] for word in words if word.startswith("family=")), word_of("family", "0"))
    former = formers().get(family)
    if former is not None:
        own = tuple(f"{word.partition('=')[0]}=" for word in former.words.values())
        if not any(word.startswith(own) for word in words):
            words = [former.words.get(word, word) for word in words]
        words = [present for word in words if (present := _own(word, former))]
    return " ".join(words)
