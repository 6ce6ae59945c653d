"""Problems whose kernels may loop over a list of the tiles that have pairs."""

from __future__ import annotations

from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.sink import ValueSink


def lists_tiles(p: KernelProblem) -> bool:
    """True if the pairs of a problem are those of equal keys that ascend along rows and along columns, and tiles
    without a pair store nothing but states of no value."""
    sink = p.sink
    if not isinstance(sink, ValueSink) or (sink.has_workspace and not isinstance(sink, RowReduce)):
        return False
    return len(sink.ascending) > 1 and not sink.mirrored and p.batch == 1
