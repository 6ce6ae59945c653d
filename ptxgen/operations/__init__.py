"""One folder per operation: problem type, lowering, references, checks, suites, random problems, vendor baselines.

An operation is imported on its first use, because a process mostly needs one of them.
"""

from collections.abc import Callable
from importlib import import_module

from ptxgen.expr.node import Node
from ptxgen.problem import epilogue_ops
from ptxgen.problem.operation import OPERATIONS, Operation

_NAMES = ("gemm", "conv", "grouped", "spmm", "task", "quantized_gemm", "quantized_jagged")
_FOLDERS = {"quantized_gemm": "quantized"}  #: where the folder has another name than the operation


def _importer(name: str) -> Callable[[], Operation]:
    """The function that imports the operation ``name``."""

    def load() -> Operation:
        module = import_module(f"ptxgen.operations.{_FOLDERS.get(name, name)}.operation")
        operation: Operation = getattr(module, name.upper())
        return operation

    return load


OPERATIONS.update({name: _importer(name) for name in _NAMES})


def _read_activation(text: str) -> tuple[str, Node]:
    """Reads the text of an activation. The parser is imported here, with the first expression, to keep imports fast."""
    from ptxgen.operations.task import activations

    return activations.read(text)


epilogue_ops.read_expressions_with(_read_activation)
