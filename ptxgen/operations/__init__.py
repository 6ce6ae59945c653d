"""One folder an operation: how it is lowered, its references, checks, suites, random problems and vendor baselines."""

from ptxgen.operations.conv.operation import CONV
from ptxgen.operations.gemm.operation import GEMM
from ptxgen.operations.grouped.operation import GROUPED
from ptxgen.problem.operation import OPERATIONS

OPERATIONS.update({operation.name: operation for operation in (GEMM, CONV, GROUPED)})
