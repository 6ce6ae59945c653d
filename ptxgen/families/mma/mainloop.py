"""The main loop of an mma.sync kernel: accumulators and the instructions of a step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.parts.multistage import MultistageMainloop, TilePart
from ptxgen.codegen.parts.operand_sums import GUARD, ONE, ONES, OperandSums, RowSums
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.vectorized import Log2
from ptxgen.families.common.issue_order import products
from ptxgen.families.common.matrix_instructions import COLUMNS, ROWS, Instruction, lacks_wait, operand
from ptxgen.families.mma.layout import MmaOperand
from ptxgen.lowering.complex_product import ComplexProduct


@dataclass(frozen=True)
class MmaMainloop(MultistageMainloop):
    """The main loop of mma.sync on fragments that ldmatrix or vector loads fill. ``rounding``: the instruction that
    rounds f32 to tf32, empty for other types."""

    a: MmaOperand
    b: MmaOperand
    instruction: Instruction
    rounding: str

    fragment_addr = "addr/ldmatrix_addr.mako"
    math = "math/mma_sync.mako"

    @property
    def operands(self) -> tuple[MmaOperand, MmaOperand]:
        return self.a, self.b

    #: the distances, by XOR, of the lanes of a warp that have the same columns
    row_distances = (4, 8, 16)

    @property
    def warp_rows(self) -> int:
        """The number of rows of the tile of a warp."""
        return self.a.thread

    #: log2 of the warps along N
    log2_across = Log2("b.warps")

    # ---- accumulators

    @cached_property
    def acc(self) -> Tile:
        return Tile("acc", self.instruction.sum, (self.a.tiles, self.b.tiles, self.instruction.sums * self.a.parts))

    @property
    def packed(self) -> bool:
        """True if an accumulator register holds two f16 sums."""
        return self.instruction.sums == 2

    @property
    def ms(self) -> int:
        """The number of rows of C that a lane holds."""
        return len(self.a.c_positions)

    @property
    def ns(self) -> int:
        """The number of columns of C that a lane holds."""
        return len(self.b.c_positions)

    @property
    def contiguous(self) -> int:
        """The number of adjacent columns of C that a lane holds."""
        return 2 * self.b.adjacent

    @property
    def group_depth(self) -> int:
        """The number of elements of K in a stage that belong to one group of warps."""
        return self.steps * self.instruction.depth

    @cached_property
    def row_sums(self) -> list[list[str]]:
        """For each row of a lane, its accumulators (or pairs of accumulators)."""
        columns, parts = range(0, self.ns, 2 if self.packed else 1), range(self.a.parts)
        return [[self.sum_at(i, j, part) for j in columns for part in parts] for i in range(self.ms)]

    def rounded(self, x: MmaOperand, k: int, part: TilePart) -> list[str]:
        """The fragment registers of step ``k`` that are rounded to tf32, for a part of the tile."""
        buffer, tiles = x.buffer(k), range(x.tiles // part.of(x.name))
        return [x.fragment[buffer, n, r] for n in tiles for r in range(x.registers)]

    def sum_at(self, i: int, j: int, part: int = 0) -> str:
        """The accumulator for row ``i`` and column ``j`` of a lane (for two columns if sums are packed), or for part
        ``part`` of it."""
        (_, tile_m, low), (_, tile_n, right) = self.a.c_positions[i], self.b.c_positions[j]
        return self.acc[tile_m, tile_n, low if self.packed else (2 * low + right) * self.a.parts + part]

    # ---- instructions

    @cached_property
    def products(self) -> list[tuple[int, int]]:
        """The (tile along M, tile along N) of each product of a step, in order."""
        return products(self.a.tiles, self.b.tiles, self.config.mma_order)

    def has_loop(self, part: TilePart) -> bool:
        """True if a K loop of its own multiplies this part of the tile."""
        rows, columns = self.a.tiles // part.a * ROWS, self.b.tiles // part.b * COLUMNS
        return not lacks_wait(self.a.bytes, self.config.fragment_prefetch, rows, columns)

    def products_of(self, part: TilePart) -> list[tuple[int, int]]:
        """The entries of ``products`` in a part of the tile."""
        if part == self.WHOLE:
            return self.products
        return products(self.a.tiles // part.a, self.b.tiles // part.b, self.config.mma_order)

    @cached_property
    def inverted(self) -> dict[str, Tile]:
        """The registers of inverted fragments, by operand; empty if no product needs them."""
        if not self.instruction.inverts:
            return {}
        return {x.name: Tile(f"inverted_{x.name}", "b32", (x.tiles, x.registers)) for x in self.operands}

    def inversions(self, k: int, part: TilePart) -> list[str]:
        """The instructions that invert the fragments of step ``k``."""
        return [
            f"not.b32 {self.inverted[x.name][n, r]}, {x.fragment[x.buffer(k), n, r]};"
            for x in self.operands
            if self.inverted
            for n in range(x.tiles // part.of(x.name))
            for r in range(x.registers)
        ]

    def issued(self, k: int, part: TilePart) -> list[tuple[list[str], str, str]]:
        """The instructions that add step ``k`` to a part of the tile, each as (sums, operand A, operand B)."""
        tiles = self.products_of(part)
        if not self.inverted:
            return [each for i, j in tiles for each in self.issues(i, j, k)]
        made = [self.issues(i, j, k)[0] for i, j in tiles]
        products = []
        for inverts_a in (False, True):
            for (i, j), (sums, a, b) in zip(tiles, made, strict=True):
                inverted = [self.inverted[n].all for n in "ab"]
                size_a, size_b = self.a.registers, self.b.registers
                own_a = operand(inverted[0][i * size_a : (i + 1) * size_a]) if inverts_a else a
                own_b = b if inverts_a else operand(inverted[1][j * size_b : (j + 1) * size_b])
                products.append((sums, own_a, own_b))
        return products

    def operand_sums(self, element: str) -> OperandSums:
        """The sums of rows of A: products with ones, whose columns are all the same. The first of four lanes stores
        them. ``element``: the type of A."""
        i, a = self.instruction, self.a
        sums = Tile("a_sum", i.sum, (a.tiles, i.sums))
        ones = [ONE] * i.registers_b
        additions = []
        for k in range(self.steps):
            steps = [
                each
                for n in range(a.tiles)
                for each in i.step(
                    [sums[n, r] for r in range(i.sums)],
                    [a.fragment[a.buffer(k), n, r] for r in range(a.registers)],
                    ones,
                )
            ]
            additions.append([f"{GUARD}{i.name} {operand(to)}, {x}, {y}, {operand(to)};" for to, x, y in steps])
        rows = [(row, sums[n, 2 * e]) for row, n, e in a.c_positions]
        return RowSums(sums, additions, rows, self.b.thread, 3, self.acc_zero, (i.ptx_type, ONES[element]))

    def issues(self, i: int, j: int, k: int) -> list[tuple[list[str], str, str]]:
        """The instructions that add step ``k`` to tile (i, j), each as (sums, operand A, operand B)."""
        rows = [self.a.fragment[self.a.buffer(k), i, n] for n in range(self.a.registers)]
        columns = [self.b.fragment[self.b.buffer(k), j, n] for n in range(self.b.registers)]
        return self.instruction.step([self.acc[i, j, n] for n in range(self.instruction.sums)], rows, columns)

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        out = [(self.acc, "accumulators: tile along M, tile along N, the lane's elements of 16 x 8")]
        for x in self.operands:
            name = x.name.upper()
            out.append((x.fragment, f"fragments of {name}: buffer, tile, register"))
            if x.raw:
                out.append((x.raw, f"fragments of {name} as loaded, two tiles interleaved"))
            out.append((x.fragment_ptrs, f"shared-memory address of this lane's fragments of {name}"))
            if not x.asynchronous:
                out.append((x.staging, f"{name} between global and shared memory"))
            if x.name in self.inverted:
                out.append((self.inverted[x.name], f"fragments of {name} with inverted bits"))
        return out


@dataclass(frozen=True)
class ScaledMmaMainloop(MmaMainloop):
    """The main loop of mma.sync on operands with block scales. The last stage holds the remainder of K, so that no step
    has elements of two blocks."""

    remainder_last = True


@dataclass(frozen=True)
class ComplexMmaMainloop(MmaMainloop):
    """The main loop of mma.sync on the parts of complex elements: four instructions per step and tile. Each fragment
    element and each sum has a register for its real part and one for its imaginary part."""

    algebra: ComplexProduct

    @property
    def negations(self) -> list[int]:
        """The parts of elements of A that are negated."""
        return list(self.algebra.negated)

    @cached_property
    def negated(self) -> Tile:
        """The registers of negated parts of fragments of A."""
        return Tile("negated", "f64", (len(self.negations), self.a.tiles, self.a.registers))

    def _part(self, x: MmaOperand, k: int, tile: int, part: int) -> list[str]:
        """The registers of one part (real or imaginary) of a tile's fragment."""
        return [x.fragment[x.buffer(k), tile, r * x.parts + part] for r in range(x.registers)]

    def _factor(self, k: int, tile: int, part: int, negative: bool) -> list[str]:
        """The registers of one part of a tile's fragment of A, or of its negative."""
        if not negative:
            return self._part(self.a, k, tile, part)
        n = self.negations.index(part)
        return [self.negated[n, tile, r] for r in range(self.a.registers)]

    def inversions(self, k: int, part: TilePart) -> list[str]:
        """The instructions that negate parts of fragments."""
        lines = []
        for n, each in enumerate(self.negations):
            for tile in range(self.a.tiles // part.a):
                for r, register in enumerate(self._part(self.a, k, tile, each)):
                    lines += [
                        f"mov.b64 {{%sign_low, %sign_high}}, {register};",
                        "xor.b32 %sign_high, %sign_high, 0x80000000;",
                        f"mov.b64 {self.negated[n, tile, r]}, {{%sign_low, %sign_high}};",
                    ]
        return ["{", ".reg .b32 %sign_low, %sign_high;", *lines, "}"]

    def issued(self, k: int, part: TilePart) -> list[tuple[list[str], str, str]]:
        products = []
        for each in self.algebra.products:
            for i, j in self.products_of(part):
                sums = [self.acc[i, j, n * self.a.parts + each.sum] for n in range(self.instruction.sums)]
                rows = self._factor(k, i, each.a, each.negated)
                products += self.instruction.step(sums, rows, self._part(self.b, k, j, each.b))
        return products

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [*super().register_table, (self.negated, "negated parts of fragments of A")]


@dataclass(frozen=True)
class JoinedPartsMainloop(ComplexMmaMainloop):
    """The main loop of mma.sync on complex elements with one instruction for each eight rows of a step and tile.

    With a = (x, y) and b = (u, v), the instruction multiplies the real matrix of rows (x, -y) and (y, x) by the column
    (u, v), whose results are the parts of the product. Loads bring (x, y) and (u, v) in the order of the operands.
    """

    def issued(self, k: int, part: TilePart) -> list[tuple[list[str], str, str]]:
        factors: list[list[list[str]]] = []  #: tile of A, column of the real matrix -> registers
        columns = sorted(self.algebra.products, key=lambda x: (x.b, x.sum))
        for i in range(self.a.tiles // part.a):
            factors.append([self._factor(k, i, x.a, x.negated) for x in columns])
        out = []
        for i, j in self.products_of(part):
            second = [self.b.fragment[self.b.buffer(k), j, n] for n in range(self.b.registers * self.b.parts)]
            for half in range(ROWS // self.instruction.m):
                first = [x[r] for r in range(half, self.a.registers, 2) for x in factors[i]]
                sums = [self.acc[i, j, (2 * half + e) * self.a.parts + n] for n in range(self.a.parts) for e in (0, 1)]
                out.append((sums, operand(first), operand(second)))
        return out
