"""Fills the gaps in the texts of kernels."""

from __future__ import annotations

from collections.abc import Mapping


def filled(text: str, blocks: Mapping[str, list[str]], words: Mapping[str, str]) -> str:
    """The text with its gaps filled: a line that has only «name» is replaced by the lines of the block ``name``, with
    the same indentation; «name» within a line is replaced by the word ``name``."""
    out = []
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("«") and bare.endswith("»") and bare[1:-1] in blocks:
            indent = line[: len(line) - len(line.lstrip())]
            out += [indent + each for each in blocks[bare[1:-1]]]
            continue
        for name, word in words.items():
            line = line.replace(f"«{name}»", word)
        out.append(line)
    return "\n".join(out) + "\n"
