"""The candidate space of families with tiles of M, N and K."""

from __future__ import annotations

from ptxgen.families.common.candidates import CandidateSpace
from ptxgen.lowering.kernel_problem import KernelProblem


class TileSpace(CandidateSpace):
    """Candidates whose blocks compute tiles of C, with K slices."""

    tile: tuple[str, ...] = ("ml", "nl", "u")
    cell: tuple[str, ...] = ("kg", "splitk", "raster_group", "store_policy")
    derived: tuple[str, ...] = ("epilogue_smem", "vec_c")
    widened: tuple[str, ...] = ("vec_c",)

    def variables(self, p: KernelProblem) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
        """The groups of axes for the sampler, with accesses no wider than the alignment allows."""
        widest = dict(zip(("vec_a", "vec_b", "vec_c"), p.vectors, strict=True))
        variables = super().variables(p)
        return {names: [v for v in rows if v[0] <= widest.get(names[0], v[0])] for names, rows in variables.items()}
