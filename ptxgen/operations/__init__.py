"""One folder an operation: problem type, lowering, references, checks, suites, random problems, vendor baselines."""

from ptxgen.operations.conv.operation import CONV
from ptxgen.operations.gemm.operation import GEMM
from ptxgen.operations.grouped.operation import GROUPED
from ptxgen.operations.spmm.operation import SPMM
from ptxgen.operations.task.operation import TASK
from ptxgen.problem.operation import OPERATIONS

OPERATIONS.update({operation.name: operation for operation in (GEMM, CONV, GROUPED, SPMM, TASK)})
