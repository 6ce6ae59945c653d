"""Modules of ``torch.nn`` that compute with ptxgen, and functions that exchange a model's modules for them and back."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ptxgen.errors import InputError
from ptxgen.torch import conv
from ptxgen.torch.launching import DTYPES
from ptxgen.torch.linear_layers import linear

_log = logging.getLogger(__name__)


class Linear(nn.Linear):
    """``torch.nn.Linear``, computed by ``ptxgen.torch.linear``."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


class _Conv(nn.modules.conv._ConvNd):
    """Base of the convolution modules: a forward method that computes with ptxgen."""

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
    """Base of the transposed convolution modules: a forward method that computes with ptxgen."""

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


#: class of torch.nn -> the class of this module with the same attributes
REPLACEMENTS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: Linear,
    nn.Conv1d: Conv1d,
    nn.Conv2d: Conv2d,
    nn.Conv3d: Conv3d,
    nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.ConvTranspose3d: ConvTranspose3d,
}
ORIGINALS = {ours: stock for stock, ours in REPLACEMENTS.items()}
Model = TypeVar("Model", bound=nn.Module)
#: the modules to change: names, each of which includes the modules below, and classes of torch.nn; None: all
Only = Iterable[str | type[nn.Module]] | None


@dataclass(frozen=True)
class ModuleState:
    """A module with a weight of at least two axes, and the library that computes the module. ``name``: its name in
    ``named_modules``; ``class_name``: the name of its class; ``replaced``: True if ptxgen computes the module;
    ``reason``: why ptxgen cannot compute it, empty if it can."""

    name: str
    class_name: str
    replaced: bool
    reason: str

    def __str__(self) -> str:
        state = "ptxgen" if self.replaced else f"torch{': ' * bool(self.reason)}{self.reason}"
        return f"{self.name or '(model)'}: {self.class_name}, computed by {state}"


def replace_modules(model: Model, only: Only = None) -> Model:
    """Makes the linear layers and convolutions of ``model`` compute with ptxgen, and returns ``model``.

    The modules change their class and remain the same objects, with their parameters, buffers, hooks and names.
    Instances of subclasses of ``torch.nn``'s modules, and modules whose weight has a dtype that ptxgen does not
    multiply, do not change; ``module_states`` lists every module and the reason. ``only``: names of modules, each of
    which includes the modules below, and classes of ``torch.nn``; other modules do not change. The result is logged, as
    a warning if ptxgen computes no module of ``model``. ``restore_modules`` undoes the change.

    InputError: ``model`` is not a module, or an entry of ``only`` is neither the name of one of its modules nor a
    class.
    """
    chosen = _chosen(model, only)
    for _, module in chosen:
        if not _reason(module):
            module.__class__ = REPLACEMENTS.get(type(module), type(module))
    states = module_states(model)
    done = sum(s.replaced for s in states)
    others = "; ".join(str(s) for s in states if not s.replaced)
    text = f"{done} of {len(states)} modules with weights compute with ptxgen" + (f"; {others}" if others else "")
    _log.log(logging.INFO if done else logging.WARNING, "replace_modules: %s", text)
    return model


def restore_modules(model: Model, only: Only = None) -> Model:
    """Makes the modules that ``replace_modules`` changed compute with PyTorch again, and returns ``model``. ``only``,
    errors: as for ``replace_modules``."""
    for _, module in _chosen(model, only):
        module.__class__ = ORIGINALS.get(type(module), type(module))
    return model


def module_states(model: nn.Module) -> list[ModuleState]:
    """The states of all modules of ``model`` with a weight of at least two axes: the library that computes each, and
    why ptxgen cannot. InputError: ``model`` is not a module."""
    return [
        ModuleState(name, type(module).__name__, type(module) in ORIGINALS, _reason(module))
        for name, module in _chosen(model, None)
        if any(p is not None and (is_lazy(p) or p.ndim > 1) for p in module.parameters(recurse=False))
    ]


def _reason(module: nn.Module) -> str:
    """The reason why ptxgen cannot compute a module; empty if it can."""
    module_class = ORIGINALS.get(type(module), type(module))
    if module_class in REPLACEMENTS:
        weight = module.weight.dtype
        return "" if weight in DTYPES else f"its weight is of dtype {str(weight).removeprefix('torch.')}"
    if any(map(is_lazy, module.parameters(recurse=False))):
        return "its weight has no shape before the first call"
    base = next((base for base in module_class.__mro__ if base in REPLACEMENTS), None)
    return f"a subclass of torch.nn.{base.__name__}" if base else "ptxgen has no such module"


def _chosen(model: nn.Module, only: Only) -> list[tuple[str, nn.Module]]:
    """The names and modules of ``model`` that ``only`` selects; None selects all."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model is of type {type(model).__name__}; it must be a torch.nn.Module")
    known = list(model.named_modules())
    if only is None:
        return known
    if isinstance(only, str | type):
        raise InputError(f"only is {only!r}; it must be a list of names and classes of modules")
    names, classes = [], []
    for entry in only:
        if isinstance(entry, type) and issubclass(entry, nn.Module):
            classes.append(entry)
        elif isinstance(entry, str) and entry in dict(known):
            names.append(entry)
        else:
            rule = "the name of a module of model" if isinstance(entry, str) else "a name or a class of modules"
            raise InputError(f"only has {entry!r}; it must be {rule}")
    return [
        (name, module)
        for name, module in known
        if isinstance(module, tuple(classes)) or any(name == n or not n or name.startswith(f"{n}.") for n in names)
    ]
