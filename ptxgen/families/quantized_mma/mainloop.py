"""The main loop of a quantized_mma kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile, braces
from ptxgen.codegen.vectorized import Last, Log2, log2
from ptxgen.families.common.dequantize import Dequantizer
from ptxgen.families.common.matrix_instructions import Instruction
from ptxgen.families.quantized_mma.geometry import ELEMENT, LANES, QUAD, QuantizedMmaGeometry
from ptxgen.families.quantized_mma.layout import Activations, Join, Load, Weights


class Chunk(NamedTuple):
    """The elements of K that a lane multiplies at once. ``loads``: loads of activations; ``words``: for each word of
    weights (word, pairs that it is converted to, offsets); ``products``: the instructions of products."""

    loads: list[Load]
    words: list[tuple[str, list[str], list[str]]]
    products: list[str]


class Step(NamedTuple):
    """A step of a warp along K. ``loads``: loads of weights, and of scales of a group that begins with the step;
    ``following``: the same loads for the next K iteration; ``zero_points``: (offsets of a row, its zero point) for a
    group that begins with the step; ``joins``: words composed of narrower loads; ``chunks``: its chunks; ``scales``:
    the instructions that convert the scales of a group that ends with the step."""

    number: int
    loads: list[Load]
    following: list[Load]
    zero_points: list[tuple[list[str], str]]
    joins: list[Join]
    chunks: list[Chunk]
    scales: list[str]


@dataclass(frozen=True)
class QuantizedMmaMainloop(Part):
    """The main loop of quantized_mma kernels. ``weights``, ``activations``: the operands of a lane; ``instruction``:
    the mma.sync instruction; ``dequantizer``: converts words of weights to pairs of elements."""

    config: Config
    geometry: QuantizedMmaGeometry
    weights: Weights
    activations: Activations
    instruction: Instruction
    dequantizer: Dequantizer

    # ---- threads

    @property
    def ms(self) -> int:
        return self.config.ms

    @property
    def ns(self) -> int:
        return self.config.ns

    @property
    def warps_along(self) -> int:
        """The number of warps along N."""
        return int(self.geometry.along)

    log2_warps_along = Log2("warps_along")
    last_warp_along = Last("warps_along")

    @property
    def last_lane(self) -> int:
        return QUAD - 1

    @property
    def log2_quad(self) -> int:
        return log2(QUAD)

    @property
    def log2_lanes(self) -> int:
        return log2(LANES)

    #: lanes along N, and along M
    lanes = LANES

    @cached_property
    def steps(self) -> list[Step]:
        """The steps of a K iteration."""
        w = self.weights
        return [
            Step(
                n,
                self.guarded(w.loads(n)),
                w.loads(n, following=True),
                w.zero_points(n),
                w.joins(n),
                [self.chunk(n, i) for i in range(self.chunks)],
                w.step_scales(n),
            )
            for n in range(w.steps)
        ]

    @property
    def prefetched_steps(self) -> list[Step]:
        """The steps whose weights are loaded one iteration ahead."""
        return self.steps if self.prefetches else []

    @property
    def loaded_steps(self) -> list[Step]:
        """The steps whose weights are loaded at the start of their iteration."""
        return [] if self.prefetches else self.steps

    @property
    def row_loads(self) -> list[Load]:
        """The loads of the scales and zero points of whole rows."""
        return [] if self.scaled else self.weights.group_loads()

    @property
    def row_zero_points(self) -> list[tuple[list[str], str]]:
        """For zero points of whole rows: (offsets of a row, its zero point)."""
        return [] if self.scaled else self.weights.row_zero_points()

    @property
    def row_scales(self) -> list[str]:
        """The instructions that convert the scales of whole rows to f32."""
        return self.weights.converted_scales()

    @property
    def prefetches(self) -> bool:
        return bool(self.config.fragment_prefetch)

    log2_u = Log2("config.u")

    @property
    def warp_elements(self) -> int:
        """The number of elements of K that a warp has in a K iteration."""
        return self.weights.step_depth * self.weights.steps

    @property
    def warp_bytes(self) -> int:
        """The number of bytes of a row of activations that a warp has in a K iteration."""
        return self.warp_elements * ELEMENT

    @property
    def scaled(self) -> bool:
        """True if scale groups are shorter than a row."""
        return self.weights.group > 0

    log2_group = Log2("weights.group")

    # ---- products

    @cached_property
    def acc(self) -> Tile:
        """The sums, by tile of 16 weight rows and tile of 8 activation rows."""
        return Tile("acc", "f32", (self.ns // 2, self.activations.tiles, self.instruction.sums))

    @cached_property
    def group_sum(self) -> Tile:
        """The sums of one scale group, by tile of 16 weight rows and tile of 8 activation rows."""
        return Tile("group_sum", "f32", self.acc.shape)

    @cached_property
    def pair(self) -> Tile:
        """The converted weights of a chunk in pairs, by row of weights."""
        return Tile("pair_b", "b32", (self.ns, self.activations.chunk // 2))

    @property
    def chunks(self) -> int:
        """The number of chunks of a step."""
        return self.activations.depth // self.activations.chunk

    def chunk(self, step: int, n: int) -> Chunk:
        """Chunk ``n`` of a step."""
        loads = self.activations.loads(step, n)
        guarded = self.guarded(loads) if self.activations.stages is None else loads
        return Chunk(guarded, self.words(step, n), self.products(step, n))

    def words(self, step: int, chunk: int) -> list[tuple[str, list[str], list[str]]]:
        """The words of weights of a chunk, as (word, pairs that it is converted to, offsets)."""
        each = self.dequantizer.elements
        per_chunk = self.activations.chunk // each
        out = []
        for i in range(self.ns):
            for w in range(per_chunk):
                pairs = [self.pair[i, w * each // 2 + n] for n in range(each // 2)]
                word = self.weights.raw[step, i, chunk * per_chunk + w]
                out.append((word, pairs, self.weights.row_offsets(i)))
        return out

    def products(self, step: int, chunk: int) -> list[str]:
        """The instructions that multiply the fragments of a chunk."""
        sums = self.group_sum if self.scaled else self.acc
        a, lines = self.activations, []
        for k in range(0, a.chunk // 2, 2):
            first = self.weights.begins(step) and chunk == 0 and k == 0
            for n in range(self.ns // 2):
                rows = (2 * n, 2 * n + 1)
                left = braces([self.pair[i, pair] for pair in (k, k + 1) for i in rows])
                for j in range(a.tiles):
                    into = braces([sums[n, j, i] for i in range(self.instruction.sums)])
                    before = braces(["%zero"] * self.instruction.sums) if first else into
                    right = braces([a.operands[j, k], a.operands[j, k + 1]])
                    lines.append(f"{self.instruction.name} {into}, {left}, {right}, {before};")
        return lines

    @property
    def scaled_sums(self) -> list[tuple[str, str, str]]:
        """The scaling at the end of a scale group, as (total, sum of the group, scale)."""
        return [
            (self.acc[n, j, i], self.group_sum[n, j, i], self.weights.scale[2 * n + i // 2])
            for n in range(self.ns // 2)
            for j in range(self.activations.tiles)
            for i in range(self.instruction.sums)
        ]

    @property
    def scaled_totals(self) -> list[tuple[str, str]]:
        """The scaling at the end of K, as (total, scale)."""
        return [(total, scale) for total, _, scale in self.scaled_sums]

    @cached_property
    def row_sums(self) -> list[list[str]]:
        """For each row of C of a lane, its sums."""
        return [[self.acc[j // 2, i // 2, 2 * (j % 2) + i % 2] for j in range(self.ns)] for i in range(self.ms)]

    # ---- the remainder of K

    @property
    def guarded_places(self) -> list[int]:
        """The places, in elements of K from the lane's first, at which K may end between the loads of a lane. 0 alone
        if all loads end together."""
        if self.weights.places == [0]:
            return [0]
        direct = self.activations.stages is None
        return sorted({*self.weights.places, *(self.activations.places if direct else [])})

    @property
    def guards(self) -> int:
        """The number of guard predicates."""
        return len(self.guarded_places)

    def guarded(self, loads: list[Load]) -> list[Load]:
        """The loads with guards for the remainder of K."""
        places = self.guarded_places
        return [x._replace(guard=f"@%in_k{places.index(x.place) if len(places) > 1 else 0} ") for x in loads]

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        w, a = self.weights, self.activations
        rows = [
            (self.acc, "accumulators: tile of 16 columns of C, tile of 8 rows, of a lane"),
            (w.raw, "loads of B: step, row, word"),
            (self.pair, "elements of B: row, pair along K of a chunk"),
            (a.raw, "loads of A: row, pair along K of a chunk"),
            (w.scales, "loads of scales: group, row"),
            (w.scale, "scales of the rows"),
        ]
        if a.strided:
            rows.append((a.strided_pairs, "elements of A that are four apart: row, pair"))
        if self.scaled:
            rows.append((self.group_sum, "sums of a group, likewise"))
        if w.access.zeros:
            rows += [(w.zeros, "loads of zero points: group, row"), (w.zero_offset, "offsets of the rows")]
        if w.narrow:
            rows.append((w.pieces, "loads of B narrower than a word"))
        if a.vec == 1:
            rows.append((a.halves, "elements of A"))
        return rows
