"""One random kernel: registers, columns of input and output, and how its results compare."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from ptxgen.codegen.source import Argument, Step, TensorMap

from .draw import BITS, Draw, pack

#: a register's prefix by its width in bits
PREFIX = {1: "p", 8: "b", 16: "h", 32: "r", 64: "d"}


@dataclass(frozen=True)
class Column:
    """A range of a kernel's output: ``count`` values of one kind.

    ``rule``: ``""`` equal bit for bit; ``nan`` a NaN equals any NaN; else ``<ulp|rel|abs|log> <bound>``, the error of
    an approximation. ``label``: for messages.
    """

    offset: int
    count: int
    dtype: str
    rule: str = ""
    label: str = ""


@dataclass(frozen=True)
class Map:
    """A tensor map of the matrix at ``offset`` in the input or the output; a parameter after the two pointers."""

    where: str
    offset: int
    dtype: str
    extents: tuple[int, int]
    pitch: int
    box: tuple[int, int]
    swizzle: int


@dataclass
class Case:
    """One module: one entry, its input, the shape of its output. ``block`` and ``grid``: (x, y, z)."""

    name: str
    family: str
    text: str
    input: bytes
    output: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0
    columns: list[Column] = field(default_factory=list)
    maps: list[Map] = field(default_factory=list)
    more: bytes = b""

    def digest(self) -> str:
        """The hash of everything that determines the output."""
        h = hashlib.sha256(
            repr((self.text, self.output, self.grid, self.block, self.shared, self.maps, self.more)).encode()
        )
        h.update(self.input)
        return h.hexdigest()[:12]

    def parameters(self, source: int, out: int, encode: Callable[[TensorMap, int], bytes]) -> bytes:
        """The parameter buffer, for buffers at two addresses."""
        arguments = [("u64", source), ("u64", out)]
        maps: list[Argument] = [
            ("map", TensorMap(str(i), m.dtype, m.extents, (m.pitch,), m.box, m.swizzle))
            for i, m in enumerate(self.maps)
        ]
        step = Step(self.name, self.grid, self.block, self.shared, (*arguments, *maps))
        places = {str(i): (source if m.where == "in" else out) + m.offset for i, m in enumerate(self.maps)}
        return step.pack({}) + self.more + step.pack_maps(encode, places)


class Kernel:
    """Collects the text of one entry with parameters (input, output)."""

    def __init__(self, name: str, family: str, block: tuple[int, ...] = (64,), grid: tuple[int, ...] = (1,)) -> None:
        self.name, self.family = name, family
        self.draw = Draw(name)
        self.block = (*block, 1, 1)[0], (*block, 1, 1)[1], (*block, 1, 1)[2]
        self.grid = (*grid, 1, 1)[0], (*grid, 1, 1)[1], (*grid, 1, 1)[2]
        self.threads = self.block[0] * self.block[1] * self.block[2]
        self.total = self.threads * self.grid[0] * self.grid[1] * self.grid[2]
        self.lines: list[str] = []
        self.outside: list[str] = []  # before the entry
        self.declared: list[str] = []
        self.directives = ""
        self.counts = dict.fromkeys(PREFIX, 0)
        self.input = bytearray()
        self.output = 0
        self.columns: list[Column] = []
        self.shared = 0
        self.maps: list[Map] = []
        self.more = bytearray()  # parameters after the first two
        self.declared_parameters = ""
        self.labels = 0
        self.bases: dict[tuple[str, int], str] = {}
        self.values: dict[str, list[int]] = {}
        self.emit("ld.param.u64 %in, [in];", "ld.param.u64 %out, [out];", "mov.u32 %t, %tid.x;")
        if self.block[1] > 1:
            self.emit("mov.u32 %w, %tid.y;", f"mad.lo.u32 %t, %w, {self.block[0]}, %t;")
        if self.block[2] > 1:
            self.emit("mov.u32 %w, %tid.z;", f"mad.lo.u32 %t, %w, {self.block[0] * self.block[1]}, %t;")
        self.emit(
            "mov.u32 %w, %ctaid.x;" if self.total > self.threads else "mov.u32 %w, 0;",
            f"mad.lo.u32 %i, %w, {self.threads}, %t;",
        )

    # ---- text

    def emit(self, *lines: str) -> None:
        self.lines += lines

    def reg(self, bits: int) -> str:
        n = self.counts[bits]
        self.counts[bits] = n + 1
        return f"%{PREFIX[bits]}{n}"

    def reg_of(self, dtype: str) -> str:
        return self.reg(1 if dtype == "pred" else max(BITS[dtype], 16))

    def label(self) -> str:
        self.labels += 1
        return f"{self.name}_{self.labels}"

    def base(self, pointer: str, size: int) -> str:
        """A register with the address of the thread's element in a column at offset 0 of the input or the output."""
        reg = self.bases.get((pointer, size))
        if reg is None:
            reg = self.bases[pointer, size] = self.reg(64)
            # in the prologue, so that it is valid on every path
            self.lines.insert(self.prologue(), f"mad.wide.u32 {reg}, %i, {size}, %{pointer};")
        return reg

    def prologue(self) -> int:
        return next(i for i, line in enumerate(self.lines) if line.startswith("mad.lo.u32 %i")) + 1

    # ---- input

    def reserve_input(self, data: bytes) -> int:
        """Appends ``data`` to the input; returns its offset."""
        self.input += bytes(-len(self.input) % 16)
        at = len(self.input)
        self.input += data
        return at

    def load(self, dtype: str, values: list[int] | None = None, reg: str = "") -> str:
        """A register with one input value for each thread; edge values, and a new register, by default."""
        if values is None:
            values = [self.draw.value(dtype) for _ in range(self.total)]
        at = self.reserve_input(pack(values, dtype))
        size = BITS[dtype] // 8
        reg = reg or self.reg_of(dtype)
        if dtype == "pred":
            byte = self.reg(16)
            self.emit(f"ld.global.u8 {byte}, [{self.base('in', 1)}+{at}];", f"setp.ne.u16 {reg}, {byte}, 0;")
        else:
            width = "u8" if size == 1 else f"b{8 * size}"
            self.emit(f"ld.global.{width} {reg}, [{self.base('in', size)}+{at}];")
        self.values[reg] = values
        return reg

    def load_related(self, dtype: str, other: str, percent: int = 40) -> str:
        """As ``load``; some values are related to those of register ``other``."""
        return self.load(
            dtype,
            [
                self.draw.related(dtype, v) if self.draw.chance(percent) else self.draw.value(dtype)
                for v in self.values[other]
            ],
        )

    def parameter(self, dtype: str, value: bytes, declaration: str = "") -> str:
        """Adds a parameter and returns its name; ``declaration``: its text, with {} in place of the name."""
        size = BITS[dtype] // 8
        self.more += bytes(-len(self.more) % size) + value
        name = f"q{self.declared_parameters.count('.param')}"
        self.declared_parameters += ", .param " + (declaration.format(name) if declaration else f".{dtype} {name}")
        return name

    # ---- output

    def column(self, dtype: str, rule: str = "", label: str = "", count: int | None = None) -> Column:
        self.output += -self.output % 16
        count = self.total if count is None else count
        column = Column(self.output, count, dtype, rule, label)
        self.output += count * BITS[dtype] // 8
        self.columns.append(column)
        return column

    def store(self, reg: str, dtype: str, rule: str = "", label: str = "", into: Column | None = None) -> Column:
        """Writes a register, one value for each thread, to a new column or to a given one."""
        column = into or self.column("u16" if dtype == "pred" else dtype, rule, label)
        if dtype == "pred":
            half = self.reg(16)
            self.emit(f"selp.u16 {half}, 1, 0, {reg};")
            reg = half
        size = BITS[column.dtype] // 8
        self.emit(
            f"st.global.{'u8' if size == 1 else f'b{8 * size}'} [{self.base('out', size)}+{column.offset}], {reg};"
        )
        return column

    # ---- the end

    def case(self) -> Case:
        registers = [
            f".reg .{'pred' if bits == 1 else f'b{bits}'} %{PREFIX[bits]}<{n}>;" for bits, n in self.counts.items() if n
        ]
        maps = self.declared_parameters + "".join(f", .param .align 64 .b8 map{i}[128]" for i in range(len(self.maps)))
        text = "\n".join(
            [
                *self.outside,
                f".visible .entry {self.name}(.param .u64 in, .param .u64 out{maps}){self.directives}",
                "{",
                ".reg .b64 %in, %out; .reg .b32 %t, %i, %w;",
                *registers,
                *self.declared,
                *self.lines,
                "ret;",
                "}",
                "",
            ]
        )
        return Case(
            self.name,
            self.family,
            text,
            bytes(self.input),
            self.output,
            self.grid,
            self.block,
            self.shared,
            self.columns,
            self.maps,
            bytes(self.more),
        )
