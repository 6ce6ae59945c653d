"""One folder per operation: problem type, lowering, references, checks, suites, random problems, vendor baselines."""

from ptxgen.expr.node import Node
from ptxgen.operations.conv.operation import CONV
from ptxgen.operations.gemm.operation import GEMM
from ptxgen.operations.grouped.operation import GROUPED
from ptxgen.operations.quantized.operation import QUANTIZED_GEMM
from ptxgen.operations.quantized_jagged.operation import QUANTIZED_JAGGED
from ptxgen.operations.spmm.operation import SPMM
from ptxgen.operations.task.operation import TASK
from ptxgen.problem import epilogue_ops
from ptxgen.problem.operation import OPERATIONS

_ALL = (GEMM, CONV, GROUPED, SPMM, TASK, QUANTIZED_GEMM, QUANTIZED_JAGGED)
OPERATIONS.update({operation.name: operation for operation in _ALL})


def _read_activation(text: str) -> tuple[str, Node]:
    """Reads the text of an activation. The parser is imported here, with the first expression, to keep imports fast."""
    from ptxgen.operations.task import activations

    return activations.read(text)


epilogue_ops.read_expressions_with(_read_activation)
