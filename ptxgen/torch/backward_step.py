"""The backward step of a linear layer or a convolution, whose two gradients share one look-up of the launch cache.

A step of a model has many of them, and the host's time for each decides the time of small batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ptxgen.api import launch_cache
from ptxgen.torch.launching import key_of, launch
from ptxgen.torch.operator import is_grad_enabled, runs_directly

#: key of a step -> keys of the cached launches of its gradients, with respect to input and weight
_keys: dict[Any, tuple[Any, Any]] = {}
Gradients = tuple[Tensor | None, Tensor | None]


def gradients(
    name: str,
    options: tuple[Any, ...],
    operands: tuple[Tensor, Tensor, Tensor],
    needs: tuple[bool, ...],
    compute: Callable[[Tensor], Gradients],
    keys: Callable[[], tuple[Any, Any]],
    in_format: Callable[[Tensor], Tensor],
    input_first: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(the gradient of the result in the format of the kernels, the gradients with respect to input and weight).

    ``options``: what the launches depend on besides the ``operands``, which are the gradient of the result, the weight
    and the input; ``needs``: which gradients are asked for; ``compute(grad)``: calls the operators; ``keys()``: the
    keys under which those cache their launches; ``in_format``: the gradient of the result as kernels read it, without
    a copy if possible; ``input_first``: the operands of the weight's gradient are the input and the gradient of the
    result, not the reverse.
    """
    grad, weight, input = operands
    step = None
    if not is_grad_enabled() and runs_directly(grad, weight, input):
        step, at_grad, at_weight, last = key_of(name, options, grad, weight, input)
        found = _keys.get(step)
        if found is not None:
            first = launch_cache.cached(found[0]) if needs[0] else None
            second = launch_cache.cached(found[1]) if needs[1] else None
            if (first is not None or not needs[0]) and (second is not None or not needs[1]):
                dx = None if first is None else launch(first, grad, at_grad, at_weight)
                if second is None:
                    return grad, dx, None
                a, b = (last[0], at_grad) if input_first else (at_grad, last[0])
                return grad, dx, launch(second, grad, a, b)
    ready = in_format(grad)
    results = compute(ready)
    if step is not None and ready is grad:
        if len(_keys) >= launch_cache.MAX_CALLS:
            _keys.clear()
        _keys[step] = keys()
    return ready, *results
