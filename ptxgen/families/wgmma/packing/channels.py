"""Packing of images and filters that im2col maps cannot describe: a kernel copies them to rows of channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from ptxgen.codegen.launches.c_kernels import AUX_KERNEL_THREADS
from ptxgen.codegen.launches.launched import BatchRange, Launched
from ptxgen.codegen.launches.packing import ROW, MappedOperand, Packing
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.registers import Tile, width
from ptxgen.codegen.source import Step, TensorMap
from ptxgen.families.wgmma.operand_packing import copy_bytes
from ptxgen.lowering.im2col_descriptor import Copy, PackedCopy, im2col
from ptxgen.lowering.kernel_problem import KernelProblem

WORD = 4  #: bytes of shared memory that a thread writes at once
TILE = 2048  #: words that a block copies
WORDS = (8, 16, 32)  #: words of channels that a block may take
CHUNK = 16  #: bytes that a thread stores at once


class ChannelCopy:
    """Numbers of the kernel for one operand, whose elements have ``size`` bytes: a block copies ``words`` words of the
    channels at ``columns`` positions (pixels, or taps of a filter). In shared memory, the positions have a pitch of
    ``pitch`` words, so that loads and stores have no bank conflicts."""

    THREADS, CHUNK, WORD, ROW = AUX_KERNEL_THREADS, CHUNK, WORD, ROW
    #: parameters of a copy: channels and their stride; positions, and the extents of their middle and inner digits;
    #: strides of the three digits in elements, and in rows of the copy; bytes of a row; offset in the workspace in
    #: units of 128 bytes; tiles of channels
    NAMES = (
        "channels",
        "channel_stride",
        "positions",
        "middle_extent",
        "inner_extent",
        "outer_stride",
        "middle_stride",
        "inner_stride",
        "outer_rows",
        "middle_rows",
        "inner_rows",
        "row_bytes",
        "copy_offset128",
        "channel_tiles",
    )

    def __init__(self, name: str, copy: PackedCopy, size: int) -> None:
        self.name, self.size, self.vec = name, size, copy.vec
        #: whether channels are contiguous in the operand
        self.contiguous_channels = copy.contiguous_channels
        self.word_elements = WORD // size
        self.words = next((w for w in WORDS if w * self.word_elements >= copy.depth), WORDS[-1])
        self.columns, self.pitch = TILE // self.words, self.words + 1
        #: threads along the contiguous direction of the loads, and rows of them
        self.threads_across = self.words if self.contiguous_channels else self.columns // self.vec
        self.threads_down = AUX_KERNEL_THREADS // self.threads_across
        self.rounds = TILE // self.vec // AUX_KERNEL_THREADS
        #: chunks of a position, and positions that are stored at once
        self.chunks = self.words * WORD // CHUNK
        self.positions_at_once = AUX_KERNEL_THREADS // self.chunks
        self.bytes = WORD * self.columns * self.pitch
        halves = self.vec * size < WORD
        registers = 1 if halves else self.vec * size // WORD
        self.loaded = Tile(f"loaded_{name}", "b16" if halves else "b32", (self.rounds, self.word_elements, registers))
        self.load = "b16" if halves else width(registers, "b32")

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(f"{n}_{self.name}" for n in self.NAMES)

    def numbers(self, copy: PackedCopy, offset: int) -> tuple[int, ...]:
        """The values of ``parameters``."""
        return (
            copy.depth,
            copy.step,
            copy.row_count,
            copy.extents[1],
            copy.extents[2],
            *copy.steps,
            *copy.rows,
            copy.pitch * self.size,
            offset // ROW,
            self.tiles(copy),
        )

    def tiles(self, copy: PackedCopy) -> int:
        """Tiles of channels."""
        return -(-copy.pitch // (self.words * self.word_elements))

    def blocks(self, copy: PackedCopy) -> int:
        return self.tiles(copy) * -(-copy.row_count // self.columns)

    def words_of(self, r: int) -> list[tuple[str, str, int]]:
        """The words of a round: registers that hold them, the prmt selector that combines two registers ("": a move
        does), positions from the first."""
        out = []
        for q in range(self.vec):
            if self.size == WORD:
                out.append((self.loaded[r, 0, q], "", q))
            elif self.vec == 1:
                out.append((f"{{{self.loaded[r, 0, 0]}, {self.loaded[r, 1, 0]}}}", "", 0))
            else:
                pair = f"{self.loaded[r, 0, q // 2]}, {self.loaded[r, 1, q // 2]}"
                out.append((pair, "0x7632" if q % 2 else "0x5410", q))
        return out


class OperandCopy(Protocol):
    """Numbers of a packing kernel for one operand. ``bytes``: its part in shared memory."""

    name: str
    bytes: int

    @property
    def parameters(self) -> tuple[str, ...]: ...
    def numbers(self, copy: Any, offset: int) -> tuple[int, ...]: ...
    def blocks(self, copy: Any) -> int: ...


def image_copy(p: KernelProblem, name: str) -> Copy:
    """The copy of an operand that must be packed."""
    copy: Copy | None = im2col(p).copy(name) if im2col(p) is not None else None
    assert copy is not None
    return copy


@dataclass(frozen=True)
class ChannelPacking(Packing):
    """Images, filters or both as rows of channels."""

    template = "copy/pack_channels.mako"
    kernel = "pack_channels"
    packs_empty = True

    @cached_property
    def names(self) -> list[str]:
        window = im2col(self.problem)
        return [name for name in "ab" if window is not None and window.copy(name) is not None]

    @cached_property
    def operands(self) -> Sequence[OperandCopy]:
        size = self.problem.element.bytes
        copies = [(name, image_copy(self.problem, name)) for name in self.names]
        return [ChannelCopy(name, copy, size) for name, copy in copies if isinstance(copy, PackedCopy)]

    @property
    def summary(self) -> str:
        names = " and ".join(name.upper() for name in self.names)
        return f"; a kernel packs {names} to rows of channels first"

    @property
    def parameters(self) -> list[Parameters]:
        first = Parameters("u32", ("blocks_a",), lambda x: self._blocks(x.p)[:1])
        return [*([first] if len(self.operands) > 1 else []), *map(self._operand, self.operands)]

    def _operand(self, operand: OperandCopy) -> Parameters:
        """The parameters of an operand."""
        name = operand.name
        return Parameters(
            "u32", operand.parameters, lambda x: operand.numbers(image_copy(x.p, name), x.buffers.packed[name])
        )

    def _blocks(self, p: KernelProblem) -> list[int]:
        """The blocks for each operand."""
        return [x.blocks(image_copy(p, x.name)) for x in self.operands]

    def tensor_map(self, launched: Launched, x: MappedOperand, kind: str, direct: TensorMap) -> TensorMap:
        packed = launched.buffers.packed
        return replace(direct, operand="W", offset=packed[x.name]) if x.name in packed else direct

    def buffer_bytes(self, p: KernelProblem, run: BatchRange) -> tuple[dict[str, int], dict[str, int]]:
        return {name: copy_bytes(p, image_copy(p, name)) for name in self.names}, {}

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        blocks, shared = sum(self._blocks(launched.p)), max(x.bytes for x in self.operands)
        block = (AUX_KERNEL_THREADS, 1, 1)
        return (
            Step(f"{self.entry}_{self.kernel}", (blocks, 1, 1), block, shared, self.parameter_list.arguments(launched)),
        )
