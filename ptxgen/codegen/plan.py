"""Plans: the parts that a kernel is composed of, and the launches that compute a problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Protocol

from ptxgen.codegen.config.config import SPLIT_DISTRIBUTED, SPLIT_LAST_CTA, Config
from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.launches.c_kernels import CKernels, Slicing
from ptxgen.codegen.launches.launcher import GemmLauncher, Grid
from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.launches.sink_kernels import SinkKernels
from ptxgen.codegen.parameter_table import parameter_table
from ptxgen.codegen.parts.addressing import CAddressing
from ptxgen.codegen.parts.algebra import Reducer
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.batch import Batch
from ptxgen.codegen.parts.c_access import CAccess
from ptxgen.codegen.parts.fused_ops import FusedOps
from ptxgen.codegen.parts.group_reduction import GroupReduction
from ptxgen.codegen.parts.operand_sums import OperandSums
from ptxgen.codegen.parts.parameters import KernelParameters, ScalarGroup, scalar_groups
from ptxgen.codegen.parts.part import Part, Reduction
from ptxgen.codegen.parts.pdl import Pdl
from ptxgen.codegen.parts.result_values import ResultValues
from ptxgen.codegen.parts.row_states import RowStates
from ptxgen.codegen.parts.selected_lists import SelectedLists
from ptxgen.codegen.parts.tile_walk import TileWalk
from ptxgen.codegen.preparation import Preparation
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Launch
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.base import ARRAYS_LIKE_C, ELEMENTWISE_OPERANDS
from ptxgen.problem.device import DEVICES, Device


class TileScheduler(Protocol):
    """The part that determines which tile of C and which slice of K a block computes."""

    @property
    def grid_text(self) -> str:
        """The text that explains the axes of the grid, for the header."""


class Kernel(Protocol):
    """An object that a template reads as ``plan``. ``kernel``: the path of the template."""

    kernel: ClassVar[str]


class Plan:
    """The plan by which ``config``, which must be legal, computes problems of the class of ``problem`` on ``device``.

    The kernel serves every shape of the same types, layout and alignment class. ``geometry``: the numbers that follow
    from the problem and the configuration.
    """

    #: the template of the schedule
    kernel = ""
    #: the template that includes the schedule: a module, or a part of another kernel
    frame: ClassVar[str] = "kernel/base.mako"
    #: for a family outside the package: a folder of templates that is searched before the package's
    templates: Path | None = None
    #: alignment of dynamic shared memory in bytes
    shared_alignment = 16

    # the parts, which a family composes
    batch: Batch
    fused_ops: FusedOps
    scheduler: TileScheduler
    mainloop: Part
    c: CAccess
    epilogue: Part
    values: ResultValues
    walk: TileWalk
    states: RowStates
    groups: GroupReduction
    sink_kernels: SinkKernels
    selected: SelectedLists
    c_kernels: CKernels
    packing: Packing
    parameters: KernelParameters
    launcher: GemmLauncher

    def __init__(
        self, problem: KernelProblem, config: Config, device: Device, geometry: Geometry, registers: int = -1
    ) -> None:
        self.problem, self.config, self.device = problem, config, device
        self.registers = registers  #: registers per thread of the loaded kernel; -1: unknown
        self._arguments = problem, config, device, geometry
        self.source_problem: Any = problem  #: the problem that ``problem`` was lowered from, for the header
        self.geometry = geometry
        self.target, self.ptx_version = device.target, device.ptx_version
        self.entry = problem.name
        self.threads, self.shared = int(self.geometry.threads), int(self.geometry.shared)
        self.pdl = Pdl(config)
        self.reduction = Reduction.of(config)
        self.arithmetic = Arithmetic.of(problem)
        self.reducer = Reducer.of(problem, self.arithmetic, device.sm)
        self.sink_kernels = SinkKernels(problem, self.entry)
        self.operand_sums = OperandSums()
        self._compose()

    # ---- overridden by families

    def _compose(self) -> None:
        """Sets the parts of the plan as attributes."""
        raise NotImplementedError

    @property
    def numbers(self) -> str:
        """The text for the header that lists the numbers that are parameters of the main kernel."""
        *names, last = self.source_problem.RUNTIME_PARAMETERS, *(s.name for s in self.problem.scalars)
        return f"{', '.join(names)} and {last}" if names else last

    @property
    def accesses(self) -> str:
        """The text for the header on the widths of global accesses."""
        c = self.config
        return f"accesses of {c.vec_a}, {c.vec_b}, {self.c.vec} elements of A, B, C"

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        """The required alignment in bytes of the addresses, row pitches and item strides of A, B and C."""
        a, b, c = (x.element.bytes for x in (*self.problem.operands, *self.problem.outputs))
        return a, b, c

    #: the operands whose lengths of rows must also be multiples of ``access_bytes``
    whole_rows: ClassVar[tuple[str, ...]] = ("A", "B", "C")

    @property
    def preconditions(self) -> list[str]:
        """The lines of the header on what a problem must fulfil, besides types and layout."""
        p, c = self.source_problem, self.config
        elements = [x.element.bytes for x in (*self.problem.operands, *self.problem.outputs)]
        needed = list(zip("ABC", self.access_bytes, elements, strict=True))
        lines = [f"{p.STEPS} of A, B, C in multiples of {', '.join(str(n) for _, n, _ in needed)} bytes"]
        rows = [name for name, n, one in needed if n > one and name in self.whole_rows and p.ROWS]
        lines[0] += f", and {p.ROWS} of {', '.join(rows)} likewise" if rows else ""
        like_c = ELEMENTWISE_OPERANDS if "store_gated" in self.problem.needs else ARRAYS_LIKE_C
        if more := [name for name in p.arrays if name in like_c]:
            lines.append(f"{' and '.join(more)} with the strides and the alignment of C")
        if "bounds" in c.names and not c.bounds:
            lines.append(f"M, N, K in multiples of {c.ml}, {c.nl}, {c.u}")
        return lines

    @property
    def parameter_meanings(self) -> Mapping[str, str]:
        """Pattern of names -> meaning, for the family's own parameters."""
        return {}

    @property
    def parameter_table(self) -> list[str]:
        """The lines of the header on the parameters of the main kernel; none if the template declares the
        parameters."""
        declared: KernelParameters | None = vars(self).get("parameters")
        return parameter_table(declared.rows.names, self.parameter_meanings) if declared is not None else []

    @property
    def block_tile(self) -> str:
        """The text for the header with the extents of a block's tile of C."""
        return f"{self.config.ml} x {self.config.nl}"

    @property
    def other_kernels(self) -> Sequence[Kernel]:
        """Further kernels of the module, with their own templates, which follow the main kernel."""
        return ()

    @property
    def bodies(self) -> Sequence[Plan]:
        """Plans whose kernels are rendered as parts of this kernel (``MixedTiles``)."""
        return ()

    @property
    def configs(self) -> list[str]:
        """The texts of the kernel's configurations, for the header."""
        return [str(self.config)]

    @property
    def directives(self) -> list[str]:
        """The kernel's performance-tuning directives."""
        return [f".maxntid {self.threads}, 1, 1", f".minnctapersm {self.config.min_ctas_per_sm}"]

    # ---- parts

    @cached_property
    def scalars(self) -> list[ScalarGroup]:
        """The scalar parameters, in groups of one type."""
        return scalar_groups(self.problem.scalars)

    @cached_property
    def scalars_after_sums(self) -> list[ScalarGroup]:
        """The sink's scalar parameters that are applied after partial sums are added, in groups of one type."""
        return scalar_groups(self.problem.sink.scalars_after_sums)

    @property
    def joined_partials(self) -> list[str]:
        """The instructions that join the partial sums of a slice to those of the preceding slices."""
        x: Any = self
        pairs = zip(x.epilogue.stored, self.c.addend.all, strict=False)
        return [line for sum, other in pairs for line in self.reducer.join(sum, other)]

    # ---- the tile of a thread

    @cached_property
    def row_steps(self) -> list[tuple[int, int]]:
        """For each row of C of a thread: its distance in rows from the first, and from the preceding one."""
        x: Any = self
        rows = [x.a.offset(i) for i in range(x.mainloop.ms)]
        return list(zip(rows, [0, *(row - before for before, row in pairwise(rows))], strict=True))

    @property
    def half_row(self) -> int:
        """The distance of the second half of a thread's rows from its first row."""
        x: Any = self
        return int(x.a.offset(x.mainloop.ms // 2))

    @property
    def half_column(self) -> int:
        x: Any = self
        return int(x.b.offset(x.mainloop.ns // 2))

    @property
    def slice_offsets(self) -> range:
        """The byte offset of each vector of a thread's accumulators in the sums of a slice."""
        x: Any = self
        step = self.threads * x.mainloop.acc_vector_bytes
        return range(0, len(x.mainloop.acc_vectors) * step, step)

    @cached_property
    def smem_sums(self) -> list[list[tuple[str, int]]]:
        """For each row of a thread's sums, its stores to shared memory: operand and byte offset of each."""
        x: Any = self
        pitch, size = x.epilogue.row_pitch, self.arithmetic.bytes
        return [
            [(registers, (row * pitch + x.b.offset(j)) * size) for j, registers in x.epilogue.sum_vectors]
            for row, _ in self.row_steps
        ]

    def _c_access(self, addressing: CAddressing, vec: int, preinitialises: bool = False) -> CAccess:
        """The ``CAccess`` for vectors of ``vec`` elements, or of fewer elements whose sums have 16 bytes."""
        vec = min(vec, 16 // self.arithmetic.bytes)
        vector_red = self.device.has_vector_red and self.arithmetic.type == "f32"
        streaming = bool(self.config.store_policy)
        return CAccess(self.problem, self.arithmetic, addressing, vec, vector_red, streaming, preinitialises)

    def _gemm_launcher(self, scheduler: Grid, parameters: KernelParameters) -> GemmLauncher:
        """The launcher of the plan. All parts that claim workspace must be set before the call."""
        return GemmLauncher(
            self.entry,
            self.threads,
            self.shared,
            scheduler,
            parameters,
            self.packing,
            self.c_kernels,
            self.sink_kernels,
            self.parts,
        )

    def _c_kernels(self, scheduler: Slicing) -> CKernels:
        return CKernels(self.entry, self.reduction, self.arithmetic, self.batch, self.c, scheduler)

    @property
    def parts(self) -> list[Part]:
        """The parts of the plan, in the order in which they claim workspace."""
        return [part for part in vars(self).values() if isinstance(part, Part)]

    @property
    def slice_ops(self) -> str:
        """The slot of fused operations in the auxiliary kernel that adds the sums of slices."""
        return self.fused_ops.template if self.reduction.stores_partials else "epilogue/identity.mako"

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        """The register arrays of the whole kernel, each with its meaning."""
        return [row for part in self.parts for row in part.register_table]

    @property
    def shared_map(self) -> list[str]:
        """The lines of the shared-memory map, one for each region."""
        return [line for part in self.parts for line in part.shared_map] or ["none"]

    # ---- launches

    def with_registers(self, registers: int) -> Plan:
        """The plan of the loaded kernel. ``registers``: its registers per thread; -1: unknown. The PTX text is the
        same; launches may have another number of blocks."""
        if registers <= 0 or not any(part.counts_resident for part in self.parts):
            return self
        plan = type(self)(*self._arguments, registers)
        plan.source_problem = self.source_problem
        return plan

    @property
    def preparations(self) -> tuple[Preparation, ...]:
        """The preparations whose arrays the launches read, in the order in which they run."""
        return tuple(x.prepared for x in self.problem.operands if x.prepared is not None)

    def launch(self, problem: KernelProblem, sizes: Mapping[str, int] | None = None) -> Launch:
        """The launch that computes ``problem``, which must be of this plan's class. ``sizes``: the sizes that the
        preparations have computed, by name; None: their upper limits."""
        p = problem.like(self.problem)
        if sizes is None:
            sizes = {name: n for each in self.preparations for name, n in each.limits(p).items()}
        return self._launch_prepared(p, sizes) if sizes else self._launch(p)

    def _launch_prepared(self, problem: KernelProblem, sizes: Mapping[str, int]) -> Launch:
        """The launch of a plan whose preparations compute ``sizes``."""
        raise NotImplementedError

    def _launch(self, problem: KernelProblem) -> Launch:
        """The launch of a plan without sizes. ``problem``: in the form that the plan computes."""
        return self.launcher.launch(problem)

    def pdl_entries(self, entries: Sequence[str]) -> tuple[str, ...]:
        """The kernels of ``entries`` that may start before the previous kernel of the stream has ended."""
        return self.pdl.entries(entries, lambda: self.launch(self.problem).steps)

    @cached_property
    def command(self) -> str:
        name = self.device.name if self.device.name in DEVICES else f"{self.device.name}.json"
        return f"python -m ptxgen emit {self.source_problem.command_options} --device {name} --config '{self.config}'"


def neutral(config: Config) -> Config:
    """The representative of all configurations that generate the same PTX as ``config``: they differ in the number of
    slices, which is a parameter of the kernel unless blocks wait for each other."""
    return config if config.splitk in (SPLIT_LAST_CTA, SPLIT_DISTRIBUTED) else config.replace(kg=min(config.kg, 2))
