"""Modules of ``torch.nn`` that compute with ptxgen, and their replacement in a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from torch import Tensor, nn

from ptxgen.errors import InputError
from ptxgen.torch import conv
from ptxgen.torch.launching import DTYPES
from ptxgen.torch.products import linear


class Linear(nn.Linear):
    """``torch.nn.Linear``, computed by ``ptxgen.torch.linear``."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


class _Conv(nn.modules.conv._ConvNd):
    """The forward method of the convolutions of ``torch.nn``."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        function = (conv.conv1d, conv.conv2d, conv.conv3d)[len(self.kernel_size) - 1]
        if self.padding_mode == "zeros":
            return function(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        input = nn.functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return function(input, weight, bias, self.stride, 0, self.dilation, self.groups)


class Conv1d(_Conv, nn.Conv1d):
    """``torch.nn.Conv1d``, computed by ``ptxgen.torch.conv1d``."""


class Conv2d(_Conv, nn.Conv2d):
    """``torch.nn.Conv2d``, computed by ``ptxgen.torch.conv2d``."""


class Conv3d(_Conv, nn.Conv3d):
    """``torch.nn.Conv3d``, computed by ``ptxgen.torch.conv3d``."""


class _ConvTranspose(nn.modules.conv._ConvTransposeNd):
    """The forward method of the transposed convolutions of ``torch.nn``."""

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        dims = len(self.kernel_size)
        function = (conv.conv_transpose1d, conv.conv_transpose2d, conv.conv_transpose3d)[dims - 1]
        more = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, dims, self.dilation
        )
        return function(input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)


class ConvTranspose1d(_ConvTranspose, nn.ConvTranspose1d):
    """``torch.nn.ConvTranspose1d``, computed by ``ptxgen.torch.conv_transpose1d``."""


class ConvTranspose2d(_ConvTranspose, nn.ConvTranspose2d):
    """``torch.nn.ConvTranspose2d``, computed by ``ptxgen.torch.conv_transpose2d``."""


class ConvTranspose3d(_ConvTranspose, nn.ConvTranspose3d):
    """``torch.nn.ConvTranspose3d``, computed by ``ptxgen.torch.conv_transpose3d``."""


#: class of torch.nn -> class with the same attributes
REPLACEMENTS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: Linear,
    nn.Conv1d: Conv1d,
    nn.Conv2d: Conv2d,
    nn.Conv3d: Conv3d,
    nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.ConvTranspose3d: ConvTranspose3d,
}
Model = TypeVar("Model", bound=nn.Module)


def replace_modules(model: Model) -> Model:
    """Makes the linear layers and convolutions of ``model`` compute with ptxgen, and returns it.

    The modules change their class and remain the same objects, with their parameters, buffers, hooks and names.
    Instances of subclasses of ``torch.nn``'s modules, and modules whose weight has a dtype that ptxgen does not
    multiply, do not change. InputError: ``model`` is no module.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model is of type {type(model).__name__}; it must be a torch.nn.Module")
    for module in model.modules():
        found = REPLACEMENTS.get(type(module))
        if found is not None and module.weight.dtype in DTYPES:
            module.__class__ = found
    return model
