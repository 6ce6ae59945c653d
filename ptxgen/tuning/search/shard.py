"""Shards: several machines divide a list of problems without communication."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from ptxgen.errors import InputError
from ptxgen.problem.registry import Problem


@dataclass(frozen=True)
class Shard:
    """Part number ``index``, from 1, of a list of problems divided into ``count`` parts."""

    index: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard written as ``text``, for example 2/8. InputError: the text has another form."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
        index, count = (int(x) for x in match.groups()) if match else (0, 0)
        if not 1 <= index <= count:
            raise InputError(f"shard is {text!r}; it must be i/n with i from 1 to n, as 2/8")
        return cls(index, count)

    def contains(self, problem: Problem) -> bool:
        """True if the problem belongs to this shard. Only the key of the problem decides, alike on every machine and in
        every version of Python."""
        number = int.from_bytes(hashlib.sha256(problem.key().encode()).digest()[:8], "big")
        return number % self.count == self.index - 1


__all__ = ["Shard"]
