"""ptxgen: input-aware auto-tuning of matrix kernels, from parameterised PTX.

``gemm(A, B)`` multiplies; ``python -m ptxgen`` tunes, selects, emits, checks and compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Config",
    "Conv",
    "Gemm",
    "conv1d",
    "conv2d",
    "conv2d_input_grad",
    "conv2d_weight_grad",
    "conv3d",
    "gemm",
    "workspace_size",
]

if TYPE_CHECKING:
    from ptxgen.api.conv import conv1d, conv2d, conv2d_input_grad, conv2d_weight_grad, conv3d
    from ptxgen.api.gemm import gemm
    from ptxgen.api.launch_cache import workspace_size
    from ptxgen.codegen.config import Config
    from ptxgen.problem.conv import Conv
    from ptxgen.problem.gemm import Gemm


def __getattr__(name: str) -> Any:
    """Public names are loaded on first use: importing ptxgen stays cheap."""
    from importlib import import_module

    home = {
        "gemm": "api.gemm",
        "Gemm": "problem.gemm",
        "Conv": "problem.conv",
        "Config": "codegen.config",
        "workspace_size": "api.launch_cache",
    }
    home |= dict.fromkeys(("conv1d", "conv2d", "conv2d_input_grad", "conv2d_weight_grad", "conv3d"), "api.conv")
    if name in home:
        return getattr(import_module(f"ptxgen.{home[name]}"), name)
    raise AttributeError(f"module 'ptxgen' has no attribute {name!r}")
