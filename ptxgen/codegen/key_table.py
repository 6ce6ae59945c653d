"""Numbers keys: a hash table finds the distinct keys, and each key gets its index in the ascending list of them.

Blocks insert their keys into a table in shared memory first, so that a key of many threads is inserted into the table
in global memory once per block. Both tables have open addressing: a slot is 0 if it is empty, or holds a key with its
sign bit inverted, stored by compare-and-swap. The key that this would map to 0 has a flag of its own. New keys of the
global table are appended to a list, which the host sorts; a binary search in the list gives the number of a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ptxgen.codegen.device_text import DeviceText
from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import Mask, ceil_div
from ptxgen.problem.device import Device

KEYS, TABLE, DISTINCT, COUNTS, NUMBERS = "keys", "table", "distinct", "counts", "numbers"
MOST_KEYS = 1 << 30  #: an array must have fewer keys
SLOT_BYTES = 8
SIGN = 1 << 63  #: the key that maps to 0, an empty slot


class Inserted(NamedTuple):
    """The sizes of a launch that inserts keys. ``keys``: the number of keys; ``slots``: the slots of the table, a power
    of two greater than twice the keys."""

    keys: int
    slots: int


class Numbered(NamedTuple):
    """The sizes of a launch that numbers keys. ``keys``: the number of keys; ``distinct``: the number of distinct
    keys."""

    keys: int
    distinct: int


@dataclass(frozen=True)
class KeyTable(DeviceText):
    """The kernels that number keys of ``bits`` bits. ``signed``: True if keys are signed integers."""

    bits: int
    signed: bool
    device: Device

    kernel: ClassVar[str] = "kernel/key_table.mako"
    threads: ClassVar[int] = 256
    BLOCK_KEYS: ClassVar[int] = 4096
    BLOCK_SLOTS: ClassVar[int] = 1024
    PROBES: ClassVar[int] = 8  #: slots of a block's table that are tried for a key before the global table

    @property
    def description(self) -> list[str]:
        """The lines of the module's header that say what the kernels compute."""
        return [f"numbers of keys of {self.bits} bits, {'signed' if self.signed else 'unsigned'}, by a hash table"]

    @property
    def type(self) -> str:
        """The PTX type of a key in memory."""
        return f"{'s' if self.signed else 'u'}{self.bits}"

    @property
    def insert_keys(self) -> ParameterList:
        numbers = Parameters("u32", ("count", "slot_mask"), lambda x: (x.keys, x.slots - 1))
        return ParameterList((given("u64", KEYS, TABLE, DISTINCT, COUNTS), numbers))

    @property
    def number_keys(self) -> ParameterList:
        numbers = Parameters("u32", ("count", "distinct_count"), lambda x: (x.keys, x.distinct))
        return ParameterList((given("u64", KEYS, DISTINCT, NUMBERS), numbers))

    @staticmethod
    def scratch(count: int) -> dict[str, int]:
        """The scratch arrays for ``count`` keys (table, list, counters), with their bytes."""
        return {TABLE: 8 * KeyTable.slots(count), DISTINCT: 8 * count, COUNTS: 8}

    @staticmethod
    def slots(count: int) -> int:
        """The number of slots of the global table for ``count`` keys."""
        return 1 << (2 * max(count, 1)).bit_length()

    def clear(self, count: int) -> tuple[Step, ...]:
        """The steps that clear the table and the counters. ``count``: the number of keys."""
        sizes = self.scratch(count)
        return tuple(Step("", (sizes[name], 1, 1), arguments=(("u64", name),)) for name in (TABLE, COUNTS))

    def insert(self, x: Inserted) -> Step:
        return self._step("insert_keys", ceil_div(x.keys, self.BLOCK_KEYS), self.insert_keys, x)

    def number(self, x: Numbered) -> Step:
        return self._step("number_keys", ceil_div(x.keys, self.threads), self.number_keys, x)

    def _step(self, entry: str, blocks: int, parameters: ParameterList, x: Inserted | Numbered) -> Step:
        return Step(entry, (blocks, 1, 1), (self.threads, 1, 1), 0, tuple(parameters.arguments(x)))

    @property
    def key_bytes(self) -> int:
        return self.bits // 8

    @property
    def compared_type(self) -> str:
        """The PTX type in which distinct keys are compared."""
        return "s64" if self.signed else "u64"

    block_slot_mask = Mask("BLOCK_SLOTS")

    @property
    def block_table_bytes(self) -> int:
        return SLOT_BYTES * self.BLOCK_SLOTS

    @property
    def cleared_slots(self) -> range:
        """The byte offsets of the slots of the block's table that a thread clears, relative to the thread's first
        slot."""
        return range(0, self.block_table_bytes, SLOT_BYTES * self.threads)
