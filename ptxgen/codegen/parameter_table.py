"""The meanings of kernel parameters, for the header of a module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

#: pattern of parameter names -> meaning, for the parameters of several families
COMMON = {
    "[ABC]": "address",
    "W": "address of the workspace, a multiple of 256; not read if the launch needs none",
    "bias|residual|aux|scale_[ab]": "address of the epilogue operand",
    "sums|column_sums|a_sums": "address of the array of sums",
    "scale_[ab]_(rows|k|items)": "bytes from the scales of a block of rows, of K, or of an item to those of the next",
    "offsets": "address of the ends of the items along the jagged axis",
    "batch_stride_[abc]": "bytes from one batch item to the next",
    "first_item": "number of the first batch item of the launch",
    "items": "number of items of the launch",
    "table": "address of the descriptor table of the items",
    "tile_list": "offset in the workspace of the list of the tiles that have pairs, in bytes",
    "(mn|k)_table_[ab]": "address of the offset table along M or N, along K",
    "(guard|high)_[ab]": "words that show which coordinates are outside the image",
    "(rows|columns)_c": "address of the offset table of rows, of columns of C",
    "[MNK]": "extent",
    "ld[abc]": "leading dimension in elements",
    "k_slice": "length of a slice of K, a multiple of u",
    "tile_iters": "iterations of the K loop of a tile",
    "full_tiles": "tiles that blocks compute whole",
    "tail_iters": "iterations of the K loop of the other tiles, which blocks share",
    "share_iters": "those of the share of a block",
    "input[0-9]+": "address of an array that the expressions read",
    "(step_)?ld_input[0-9]+": "its leading dimension in elements",
    "scalar[0-9]+": "number that the expressions read",
    "C_[0-9]+": "address of the list of another value",
    "count": "address of the number of selected results",
    "capacity": "elements that each list has room for",
    "group_(rows|columns)": "rows and columns of C, whose elements keys select",
    "rejected": "address of the number of pairs whose keys are out of range",
    "sink_offset": "offset in the workspace of what the sink stores there, in bytes",
    "mirror_parts": "number of the first state of a result (j, i), after those of (i, j)",
    "alpha": "factor of the product",
    "beta": "factor of C, which is not read if beta is 0",
    "(alpha|beta)_im": "its imaginary part",
    "(copy_)?offset128_[abc]": "offset of the packed operand in the workspace, in units of 128 bytes",
    "(magic|shift)_.*": "multiplier, shift that divide by the number of this name",
}


def parameter_table(names: Iterable[str], own: Mapping[str, str]) -> list[str]:
    """The lines of the table, one for each group of adjacent parameters with the same meaning: ``M, N, K: extent``.
    ``own``: the meanings of a family's own parameters, in the form of ``COMMON``. Parameters without a known meaning
    are listed by name."""
    groups: list[tuple[str, list[str]]] = []
    for name in names:
        meaning = next((m for table in (own, COMMON) for p, m in table.items() if re.fullmatch(p, name)), "")
        if not groups or groups[-1][0] != meaning:
            groups.append((meaning, []))
        groups[-1][1].append(name)
    return [", ".join(names) + (f": {meaning}" if meaning else "") for meaning, names in groups]
