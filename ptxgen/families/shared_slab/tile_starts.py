"""The preparation of shared_slab kernels with several tiles of K: the first nonzero of each row in each tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given
from ptxgen.codegen.preparation import Preparation, Stage, Stages
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import WARP, ceil_div
from ptxgen.lowering.kernel_problem import KernelProblem

INDEX = 4  #: bytes of a row pointer


def tiles_of(p: KernelProblem, tile_k: int) -> int:
    """The number of tiles of ``tile_k`` rows of B; 1 if B has no rows."""
    return int(max(ceil_div(p.extents.k, tile_k), 1))


@dataclass(frozen=True)
class TileStarts(Preparation):
    """The preparation of the array ``tile_starts``: for each row of A the first nonzero in each tile of ``tile_k``
    columns, and the end of the row. The columns of each row must not decrease."""

    tile_k: int
    kernel = "prepare/tile_starts.mako"
    threads: ClassVar[int] = 256

    @property
    def description(self) -> list[str]:
        return [f"the first nonzero of each row of A in each tile of {self.tile_k} columns, and the end of the row"]

    @property
    def parameters(self) -> ParameterList:
        return ParameterList(
            (
                given("u64", "tile_starts", "indptr", "indices"),
                Parameters("u32", ("M", "tiles"), lambda p: (p.extents.m, tiles_of(p, self.tile_k))),
            )
        )

    def read_bytes(self, p: KernelProblem) -> int:
        return int(INDEX * (p.extents.nnz + p.extents.m))

    def stages(self, p: KernelProblem) -> Stages:
        grid = max(ceil_div(p.extents.m * WARP, self.threads), 1), 1, 1
        size = INDEX * p.extents.m * (tiles_of(p, self.tile_k) + 1)
        step = Step("find_tile_starts", grid, (self.threads, 1, 1), 0, self.parameters.arguments(p))
        yield Stage((step,), {"tile_starts": size})
