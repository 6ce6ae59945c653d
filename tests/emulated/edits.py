"""Edits of one token of a PTX text, and what ptxas says of the edited texts.

    PYTHONPATH=. python tests/emulated/edits.py [--count N] [--seed N] [FILE.ptx ...]

compares the emulated device with ptxas on N edits of each text: those in ``edited_ptx`` unless files are named. It prints the
edits on which they differ, and the shares on which they agree. With ``--record`` the judgments are stored in
``edits.json.xz``, which the tests compare with; ptxas is not needed there.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TEXTS = Path(__file__).with_name("edited_ptx")
PATH = Path(__file__).with_name("edits.json.xz")

TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"[^\"\n]*\"|0[fFdD][0-9a-fA-F]{8,16}|\d+\.\d+(?:[eE][+-]?\d+)?|0[xX][0-9a-fA-F]+|\d+"
    r"|(?:%[\w$]|[$A-Za-z_])[\w$]*(?:(?:\.|::)\w+)*|\.[A-Za-z_]\w*(?:::\w+)*|<<|>>|\S",
    re.DOTALL,
)
HUGE = (
    "4294967296",
    "99999999999",
    "0xFFFFFFFFFFFFFFFF",
    "99999999999999999999",
    "340282366920938463463374607431768211456",
)
NONSENSE = (
    "banana",
    "0",
    "8",
    "8.",
    "99.9",
    "7.95",
    "sm_",
    "sm_1",
    "sm_9x",
    "sm_90a banana",
    "sm_90a, banana",
    "-1",
    "8.0.1",
    "32",
)


@dataclass(frozen=True)
class Edit:
    """Characters `start` to `end` of a text are replaced by `new`."""

    start: int
    end: int
    new: str

    def apply(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


@dataclass(frozen=True)
class Token:
    start: int
    end: int
    text: str


def tokens(text: str) -> list[Token]:
    matches = (Token(m.start(), m.end(), m[0]) for m in TOKEN.finditer(text))
    return [t for t in matches if t.text[:2] not in ("//", "/*") and t.text[0] != '"']


def parts(whole: list[Token]) -> list[Token]:
    """The tokens, those of instruction names split at their dots."""
    out = []
    for token in whole:
        pieces = re.findall(r"\.?[^.]+", token.text) if token.text[0].isalpha() else [token.text]
        at = token.start
        for piece in pieces:
            out.append(Token(at, at + len(piece), piece))
            at += len(piece)
    return out


class Editor:
    """Draws edits of one text."""

    def __init__(self, text: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.whole = tokens(text)
        self.parts = parts(self.whole)
        self.registers = sorted({t.text for t in self.whole if t.text[0] == "%"})

    def pick(self, among: list[Token]) -> Token:
        return among[self.random.randrange(len(among))]

    def word(self, among: tuple[str, ...] | list[str]) -> str:
        return among[self.random.randrange(len(among))]

    def draw(self) -> Edit:
        among = self.whole if self.random.randrange(2) else self.parts
        token = self.pick(among)
        kinds: list[Callable[[Token, list[Token]], Edit]] = [
            lambda t, _: Edit(t.start, t.end, ""),
            lambda t, _: Edit(t.end, t.end, t.text if t.text[0] == "." else " " + t.text),
            lambda t, several: Edit(t.start, t.end, self.pick(several).text),
            lambda t, _: Edit(t.end, t.end, self.word((";", ","))),
            self.register,
            self.register,
            self.constant,
            self.constant,
            lambda t, _: self.huge(),
            lambda t, _: self.header(),
        ]
        return kinds[self.random.randrange(len(kinds))](token, among)

    def register(self, token: Token, among: list[Token]) -> Edit:
        """A register of any class in the place of a register."""
        token = self.pick([t for t in self.whole if t.text in self.registers])
        return Edit(token.start, token.end, self.word(self.registers))

    def constant(self, token: Token, among: list[Token]) -> Edit:
        """A number of the text in the place of a number."""
        numbers = [t for t in self.whole if t.text[0].isdigit()]
        token = self.pick(numbers)
        return Edit(token.start, token.end, self.pick(numbers).text)

    def huge(self) -> Edit:
        token = self.pick([t for t in self.whole if t.text[0].isdigit()])
        return Edit(token.start, token.end, self.word(HUGE))

    def header(self) -> Edit:
        at = [i for i, t in enumerate(self.whole) if t.text in (".version", ".target")]
        token = self.whole[at[self.random.randrange(len(at))] + 1]
        return Edit(token.start, token.end, self.word(NONSENSE))


def edits(text: str, count: int, seed: int) -> list[Edit]:
    editor = Editor(text, seed)
    return [editor.draw() for _ in range(count)]


def assembles(text: str, folder: Path) -> bool:
    """True if ptxas accepts a text."""
    path = folder / "edited.ptx"
    path.write_text(text)
    command = ["ptxas", "-O0", "-arch=sm_90a", "-o", str(folder / "edited.cubin"), str(path)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def refusal(text: str) -> str:
    """The error of the emulated device at a text: while it loads, or while its kernels are compiled; empty if there is none."""
    from ptxgen.emulator.engine.module import Module
    from ptxgen.emulator.memory.global_memory import GlobalMemory
    from ptxgen.emulator.options import Options
    from ptxgen.errors import ParseError, UnsupportedError

    try:
        module = Module(text, GlobalMemory())
        for entry in module.entries.values():
            entry.program(Options(engine="numpy"))
    except (ParseError, UnsupportedError) as error:
        return str(error) or type(error).__name__
    return ""


def recorded() -> dict[str, list[tuple[Edit, bool]]]:
    """The recorded edits of each text, and whether ptxas accepts the edited text."""
    data = json.loads(lzma.decompress(PATH.read_bytes()))
    return {name: [(Edit(*edit), accepted) for *edit, accepted in rows] for name, rows in data.items()}


def shares(verdicts: Counter[tuple[bool, bool]]) -> tuple[float, float]:
    """The shares of the accepted texts that are accepted, and of the rejected texts that are rejected.

    `verdicts`: counts of (ptxas accepts, the emulated device accepts).
    """
    accepted = verdicts[True, True] / max(1, verdicts[True, True] + verdicts[True, False])
    rejected = verdicts[False, False] / max(1, verdicts[False, False] + verdicts[False, True])
    return accepted, rejected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=200, help="edits of each text (200)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="store the judgments of ptxas")
    args = parser.parse_args()
    if shutil.which("ptxas") is None:
        sys.exit("ptxas is not on the PATH; it must be, to judge the texts")
    rows: dict[str, list[tuple[int, int, str, bool]]] = {}
    verdicts: Counter[tuple[bool, bool]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for path in args.files or sorted(TEXTS.glob("*.ptx")):
            text = path.read_text()
            if not assembles(text, Path(folder)):
                print(f"{path}: ptxas rejects the text without edits")
                continue
            rows[path.stem] = []
            for edit in edits(text, args.count, args.seed):
                edited = edit.apply(text)
                accepted, why = assembles(edited, Path(folder)), refusal(edited)
                rows[path.stem].append((edit.start, edit.end, edit.new, accepted))
                verdicts[accepted, not why] += 1
                if accepted != (not why):
                    line = edited[: edit.start].count("\n")
                    print(
                        f"{path.name}:{line + 1}: ptxas {'accepts' if accepted else 'rejects'}: {edited.splitlines()[line]}"
                    )
                    print(f"    {text[edit.start : edit.end]!r} -> {edit.new!r}  {why}")
    total = sum(verdicts.values())
    print(f"{total} edits; of {verdicts[True, True] + verdicts[True, False]} texts that ptxas accepts,", end=" ")
    print("{:.1%} are accepted; of the others, {:.1%} are rejected".format(*shares(verdicts)))
    if args.record:
        PATH.write_bytes(lzma.compress(json.dumps(rows, separators=(",", ":")).encode(), preset=9))


if __name__ == "__main__":
    main()
