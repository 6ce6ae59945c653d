"""The fused operations of the epilogue and their operands in global memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ptxgen.codegen.parts.part import Part
from ptxgen.expr.node import variable
from ptxgen.expr.ptx import Temporaries, statements
from ptxgen.expr.value_types import PRED
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.epilogue_ops import COLUMN, ROW, SCALE, EpilogueOp, EpilogueStep


@dataclass(frozen=True)
class FusedOps(Part):
    """The fused operations of an epilogue. ``template``: their slot; ``operands``: by name, the PTX type of a load and
    the bytes of an element; ``operations``: in order; ``type``: of their arithmetic; ``sm``: the target;
    ``scalar_bias``: all elements of C add the same bias; ``batched_bias``: each batch item has a bias of its own,
    stored consecutively; ``grouped``: an item's operands begin at offsets that its descriptor holds."""

    template: str
    operands: dict[str, tuple[str, int]]
    operations: tuple[EpilogueOp, ...]
    type: str
    sm: int
    scalar_bias: bool
    batched_bias: bool
    grouped: bool = False

    @classmethod
    def of(cls, p: KernelProblem, batched: bool, sm: int, template: str = "epilogue/fused_ops.mako") -> FusedOps:
        """The fused operations of ``p``. ``template``: the slot, if there are any."""
        types = {name: p.sink.array_dtype(name) for name in p.sink.arrays} if p.sink.epilogue else {}
        operands = {
            name: ("b16" if element.bytes == 2 else element.name, element.bytes) for name, element in types.items()
        }
        return cls(
            template if p.sink.epilogue else "epilogue/identity.mako",
            operands,
            p.sink.operations,
            p.sink.arithmetic,
            sm,
            p.sink.scalar_bias and "bias" in operands,
            batched and p.sink.batched_bias and "bias" in operands,
            grouped(p),
        )

    @property
    def scales(self) -> tuple[EpilogueOp, ...]:
        """The operations before beta C is added."""
        return tuple(op for op in self.operations if op.place == SCALE)

    @property
    def others(self) -> tuple[EpilogueOp, ...]:
        """The operations after beta C is added."""
        return tuple(op for op in self.operations if op.place != SCALE and not op.gated)

    @property
    def gates(self) -> tuple[EpilogueStep, ...]:
        """The steps that make one element of C of two sums."""
        return tuple(step for op in self.operations if op.gated for step in op.steps)

    @property
    def steps(self) -> tuple[EpilogueStep, ...]:
        return tuple(step for op in self.operations for step in op.steps)

    @property
    def offsets(self) -> dict[str, range]:
        """Array -> the offset of each element."""
        return {name: range(0, size << 16, size) for name, (_, size) in self.operands.items()}

    @property
    def bias_extent(self) -> str:
        """The elements of the bias of a batch item."""
        if self.scalar_bias:
            return "1"
        return "%M" if any(op.name == "bias_row" for op in self.operations) else "%N"

    @property
    def bias_bytes(self) -> int:
        """Bytes of an element of the bias."""
        return self.operands["bias"][1]

    @property
    def of_items(self) -> list[str]:
        """The arrays of which each batch item has its own."""
        return ["bias"] if self.batched_bias else []

    @property
    def aux_registers(self) -> str:
        """Further registers of elements: a pair of aux."""
        return ", %aux_val<2>" if "aux" in self.operands else ""

    @property
    def names(self) -> dict[str, str]:
        """Array -> what an element is called in comments."""
        return {name: "residual" if name == "residual" else f"element of {name}" for name in self.operands}

    @property
    def residual(self) -> EpilogueStep:
        """The step that adds the residual."""
        return self.step_of("residual")

    def step_of(self, array: str) -> EpilogueStep:
        """The step that reads an array."""
        return next(step for step in self.steps if step.array == array)

    @property
    def vectors(self) -> tuple[EpilogueStep, ...]:
        """The steps after beta C is added that read an element for each row or column of C."""
        return tuple(step for op in self.others for step in op.steps if step.spans in (ROW, COLUMN))

    @property
    def activations(self) -> tuple[EpilogueOp, ...]:
        """The operations on each sum alone, and those that read aux."""
        return tuple(op for op in self.others if all(step.array in ("", "aux") for step in op.steps))

    def lines(self, step: EpilogueStep, x: str, operand: str = "", guard: str = "") -> list[str]:
        """The instructions of a step on the register of a sum. ``operand``: the register of the element."""
        return self._lines(step, x, operand, guard, self._temporaries(step))

    def is_skipped(self, step: EpilogueStep, guard: str) -> bool:
        """True if a branch skips the step where the guard does not hold: without a branch between vectors, ptxas
        interleaves all of them, and spills if a step holds several values."""
        used = self._temporaries(step)
        self._lines(step, "%x", "%operand", "", used)
        return bool(guard) and used.counts.total() > 0

    def _temporaries(self, step: EpilogueStep) -> Temporaries:
        """The temporary registers of a step: ``%elem``, too, unless it holds the element of an array."""
        return Temporaries("fused", {**({} if step.array else {self.type: ["%elem"]}), PRED: ["%is_negative"]})

    def _lines(self, step: EpilogueStep, x: str, operand: str, guard: str, used: Temporaries) -> list[str]:
        names = {variable("x", self.type): x, variable("operand", self.type): operand}
        options: dict[str, bool] = {"guards_all": True, "fast": True}
        root = step.expression(self.type)
        return statements([root], names, [x], sm=self.sm, temporaries=used, guard=guard, **options).lines

    @property
    def declarations(self) -> list[str]:
        """Declarations of the registers that the instructions of all steps need besides %elem and %is_negative."""
        counts: Counter[str] = Counter()
        for step in self.steps:
            used = self._temporaries(step)
            self._lines(step, "%x", "%operand", "", used)
            counts |= used.counts
        return [f".reg .{ptx_type} %fused_{ptx_type}_<{n}>;" for ptx_type, n in sorted(counts.items())]
