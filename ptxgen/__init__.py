"""ptxgen: input-aware auto-tuning of matrix kernels, generated as PTX.

``gemm(A, B)`` multiplies matrices; ``python -m ptxgen`` tunes, selects, emits, checks and times kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "CallPlan",
    "Config",
    "Conv",
    "Gemm",
    "PreparedSpmm",
    "QuantizedWeight",
    "SparseMatrix",
    "Spmm",
    "Task",
    "autotune",
    "conv1d",
    "conv2d",
    "conv2d_bias_grad",
    "conv2d_input_grad",
    "conv2d_weight_grad",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "device",
    "gemm",
    "gemm_bias_grad",
    "gemm_grouped",
    "gemm_grouped_bias_grad",
    "gemm_jagged",
    "gemm_jagged_bias_grad",
    "gemm_jagged_input_grad",
    "gemm_jagged_weight_grad",
    "matmul_over",
    "pack_bits",
    "pairwise",
    "plan",
    "sddmm",
    "select",
    "selection_digest",
    "spmm",
    "spmm_grouped",
    "spmm_prepare",
    "task",
    "unique_keys",
    "workspace_size",
]

if TYPE_CHECKING:
    from ptxgen.api.autotune import autotune
    from ptxgen.api.bias_grad import (
        conv2d_bias_grad,
        gemm_bias_grad,
        gemm_grouped_bias_grad,
        gemm_jagged_bias_grad,
    )
    from ptxgen.api.caller_workspace import workspace_size
    from ptxgen.api.conv import (
        conv1d,
        conv2d,
        conv2d_input_grad,
        conv2d_weight_grad,
        conv3d,
        conv_transpose1d,
        conv_transpose2d,
        conv_transpose3d,
    )
    from ptxgen.api.gemm import gemm
    from ptxgen.api.grouped import gemm_grouped
    from ptxgen.api.jagged import gemm_jagged, gemm_jagged_input_grad, gemm_jagged_weight_grad
    from ptxgen.api.pack_bits import pack_bits
    from ptxgen.api.pairwise import pairwise
    from ptxgen.api.plans import CallPlan, device, plan
    from ptxgen.api.prepared_spmm import PreparedSpmm, spmm_prepare
    from ptxgen.api.quantized_weight import QuantizedWeight
    from ptxgen.api.runners import selection_digest
    from ptxgen.api.select import select
    from ptxgen.api.sparse_matrix import SparseMatrix
    from ptxgen.api.spmm import sddmm, spmm
    from ptxgen.api.spmm_grouped import spmm_grouped
    from ptxgen.api.task import matmul_over, task
    from ptxgen.api.unique_keys import unique_keys
    from ptxgen.codegen.config.config import Config
    from ptxgen.operations.conv.problem import Conv
    from ptxgen.operations.gemm.problem import Gemm
    from ptxgen.operations.spmm.problem import Spmm
    from ptxgen.operations.task.problem import Task
    from ptxgen.operations.task.tracing.functions import *  # noqa: F403

#: functions for tasks. ``import *`` imports none of them, because some have the names of Python's own functions
_TASK_WORDS = (
    *(
        "axes",
        "where",
        "cast",
        "exp",
        "exp2",
        "log",
        "log2",
        "erf",
        "tanh",
        "sigmoid",
        "pow",
        "clamp",
        "sqrt",
        "rsqrt",
        "abs",
        "minimum",
        "maximum",
        "fmin",
        "fmax",
    ),
    *("fma", "popcount", "sum", "prod", "max", "min", "bit_and", "bit_or", "bit_xor", "any", "all", "argmin", "argmax"),
    *(
        "mean",
        "logsumexp",
        "sum_by",
        "prod_by",
        "max_by",
        "min_by",
        "count_by",
        "top",
        "bottom",
        "distinct",
        "when",
    ),
)

#: public name -> its module
_MODULES = {
    **dict.fromkeys(_TASK_WORDS, "operations.task.tracing.functions"),
    "gemm": "api.gemm",
    "gemm_grouped": "api.grouped",
    "Gemm": "operations.gemm.problem",
    "Conv": "operations.conv.problem",
    **dict.fromkeys(("CallPlan", "device", "plan"), "api.plans"),
    "PreparedSpmm": "api.prepared_spmm",
    "QuantizedWeight": "api.quantized_weight",
    "SparseMatrix": "api.sparse_matrix",
    "Spmm": "operations.spmm.problem",
    "sddmm": "api.spmm",
    "spmm": "api.spmm",
    "spmm_grouped": "api.spmm_grouped",
    "spmm_prepare": "api.prepared_spmm",
    "Task": "operations.task.problem",
    "task": "api.task",
    "matmul_over": "api.task",
    "pack_bits": "api.pack_bits",
    "pairwise": "api.pairwise",
    "unique_keys": "api.unique_keys",
    "Config": "codegen.config.config",
    "autotune": "api.autotune",
    "select": "api.select",
    "selection_digest": "api.runners",
    "workspace_size": "api.caller_workspace",
    **dict.fromkeys(("gemm_jagged", "gemm_jagged_input_grad", "gemm_jagged_weight_grad"), "api.jagged"),
    **{name: "api.conv" for name in __all__ if name.startswith("conv")},
    **{name: "api.bias_grad" for name in __all__ if name.endswith("bias_grad")},
}


def register_own() -> object:
    """Imports the families and the operations of the package, which register themselves. ``plugins.load`` calls it."""
    from ptxgen import families, operations

    return families, operations


def __dir__() -> list[str]:
    return sorted({*__all__, *_TASK_WORDS, *(name for name in globals() if name.startswith("__"))})


if not TYPE_CHECKING:  # type checkers then report unknown names

    def __getattr__(name: str) -> Any:
        """Imports a public name on first use, so that importing ptxgen is fast. Later uses find it in the module."""
        from importlib import import_module

        if name not in _MODULES:
            raise AttributeError(f"module 'ptxgen' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"ptxgen.{_MODULES[name]}"), name)
        return value
