"""PyTorch operators: matrix products and convolutions with the signatures of ``torch`` and ``torch.nn.functional``,
products with sparse matrices, and tasks.

They record gradients, of any order, and work in ``torch.compile``, ``torch.export``, ``torch.func``, autocast and CUDA
graphs. ``replace_modules(model)`` makes the layers of a model use them; ``module_states(model)`` lists the layers that
do, and why others do not; ``restore_modules(model)`` undoes it.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401 the error names the package to install
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("ptxgen.torch needs PyTorch: pip install torch", name="torch") from error

from ptxgen.torch.conv import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from ptxgen.torch.grouped import gemm_grouped, gemm_jagged
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
from ptxgen.torch.products import linear, matmul
from ptxgen.torch.sparse import sddmm, spmm
from ptxgen.torch.tasks import matmul_over, task

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Linear",
    "ModuleState",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "gemm_grouped",
    "gemm_jagged",
    "linear",
    "matmul",
    "matmul_over",
    "module_states",
    "replace_modules",
    "restore_modules",
    "sddmm",
    "spmm",
    "task",
]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
