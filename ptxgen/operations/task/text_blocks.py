"""Texts of kernels with gaps."""

from __future__ import annotations

from collections.abc import Mapping


def filled(text: str, blocks: Mapping[str, list[str]], words: Mapping[str, str]) -> str:
    """A text with its gaps filled: a line that has «name» alone becomes the lines of a block, indented as it is, and
    «name» within a line a word."""
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
