"""PyTorch operators: matrix products and convolutions with the signatures of ``torch`` and ``torch.nn.functional``,
products with sparse matrices, and tasks.

The operators record gradients of any order, and work in ``torch.compile``, ``torch.export``, ``torch.func``, autocast
and CUDA graphs. ``replace_modules(model)`` makes the layers of a model use them; ``module_states(model)`` lists the
layers that do, and why others do not; ``restore_modules(model)`` undoes it. ``with enabled():`` makes PyTorch's own
functions compute with ptxgen, so that programs need no change.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401 the error names the package to install
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("ptxgen.torch needs PyTorch: pip install torch", name="torch") from error

from ptxgen.torch.conv import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from ptxgen.torch.feed_forward import mlp
from ptxgen.torch.grouped import gemm_grouped, gemm_jagged
from ptxgen.torch.linear_layers import linear
from ptxgen.torch.modules import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Linear,
    ModuleState,
    module_states,
    replace_modules,
    restore_modules,
)
from ptxgen.torch.override import Calls, enabled
from ptxgen.torch.pairs import pairwise
from ptxgen.torch.products import addmm, matmul
from ptxgen.torch.scaled import scaled_mm
from ptxgen.torch.sparse import sddmm, spmm
from ptxgen.torch.tasks import matmul_over, task

__all__ = [
    "Calls",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Linear",
    "ModuleState",
    "addmm",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "enabled",
    "gemm_grouped",
    "gemm_jagged",
    "linear",
    "matmul",
    "matmul_over",
    "mlp",
    "module_states",
    "pairwise",
    "replace_modules",
    "restore_modules",
    "scaled_mm",
    "sddmm",
    "spmm",
    "task",
]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
