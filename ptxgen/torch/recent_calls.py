"""``RecentCalls``: finds the value that was kept for an earlier call like this one, by one check in C++.

To make the key of a cached launch takes two dozen calls of methods of tensors, and to check the conditions of a direct
call takes more. The guards of ``torch.compile`` compare all of this at once: type, shape, strides, dtype, device and
dispatch keys of each tensor, whether it records gradients, and the dispatch keys that modes, transforms, traces and
autocast add.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._dynamo import guards
from torch.autograd import forward_ad

from ptxgen.api.launches import MAX_CALLS
from ptxgen.torch.launching import settings_reader

_function_modes = torch._C._len_torch_function_stack
_is_grad_enabled = torch.is_grad_enabled


class RecentCalls:
    """Keeps a value for repeated calls with tensors of the same properties. The value is made at the second such call,
    because a guard costs as much time as it saves in two calls. ``operation``: as in ``launching.settings``."""

    def __init__(self, operation: str) -> None:
        self._operation = operation
        #: second tensor, size of the first one and gradient mode -> (guard, reader of the settings, settings, value) of
        #: the last call; None: there was one call, or its guard failed
        self._calls: dict[Any, tuple[Callable[..., bool], Callable[[], Any], Any, Any] | None] = {}

    def get(self, tensors: tuple[Any, ...]) -> Any:
        """The kept value of a call with these tensors; None: no value is kept. The last tensor may be None."""
        try:
            entry = self._calls.get((id(tensors[1]), tensors[0].numel(), _is_grad_enabled()))
        except (AttributeError, TypeError):  # no tensor, or one with symbolic extents
            return None
        if entry is None or _function_modes() or forward_ad._current_level >= 0:
            return None
        guard, reader, settings, value = entry
        return value if guard(*tensors) and reader() == settings else None

    def missed(self, tensors: tuple[Any, ...], make: Callable[[], Any]) -> None:
        """Makes and keeps the value of a call for which ``get`` returned None, if this is not the first call like it. A
        ``make`` that returns None keeps nothing. The tensors are plain, and no mode or transform is active."""
        if _guards is None:
            return
        hint = id(tensors[1]), tensors[0].numel(), _is_grad_enabled()
        if self._calls.get(hint, False) is not None:
            if len(self._calls) >= MAX_CALLS:
                self._calls.clear()
            self._calls[hint] = None
            return
        value = make()
        if value is not None:
            reader = settings_reader(tensors[0], self._operation)
            self._calls[hint] = _guard(tensors), reader, reader(), value


def _guard(tensors: tuple[Tensor | None, ...]) -> Callable[..., bool]:
    """A function that returns True for tensors like ``tensors``. The last tensor may be None."""
    present = [x for x in tensors if x is not None]
    extents, strides = [list(x.shape) for x in present], [list(x.stride()) for x in present]
    check: Callable[..., bool] = _guards(*present, dynamic_dims_sizes=extents, dynamic_dims_strides=strides).check
    if len(present) == len(tensors):
        return check
    return lambda *given: given[-1] is None and check(*given[:-1])


def _supported_guards() -> Any:
    """The class of guards, which is not a public interface of PyTorch; None: this version of PyTorch does not have it,
    or has another interface."""
    guards_class: Any = getattr(guards, "TensorGuards", None)
    x = torch.empty(1, device="cpu")
    try:
        check = guards_class(x, dynamic_dims_sizes=[[1]], dynamic_dims_strides=[[1]]).check
        return guards_class if check(x) and not check(x.double()) else None
    except (AttributeError, RuntimeError, TypeError):
        return None


_guards = _supported_guards()
