"""The backward step of a linear layer or a convolution, whose two gradients share one look-up.

A training step has many backward steps, and with small batches their host time decides its time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.compiler import is_dynamo_compiling

from ptxgen.api import launches
from ptxgen.torch.launching import launch
from ptxgen.torch.operator import is_grad_enabled, runs_directly
from ptxgen.torch.recent_calls import RecentCalls

#: gradient of the result; weight; input
Operands = tuple[Tensor, Tensor, Tensor]
Gradients = tuple[Tensor | None, Tensor | None]


class BackwardStep:
    """Computes the gradients with respect to input and weight by the launches that a recent step with like operands
    made.

    ``operation``: as in ``launching.settings``; ``keys(grad, weight, input, options)``: returns for each gradient the
    key under which its launch is cached, and the addresses, as ``launching.key_of`` does; ``input_first``: the weight
    gradient is a product of (input, gradient of the result), not of the reverse.
    """

    def __init__(self, operation: str, keys: Callable[..., tuple[Any, Any]], input_first: bool) -> None:
        self._keys, self._input_first = keys, input_first
        self._recent = RecentCalls(operation)

    def get(self, operands: Operands, needs: tuple[bool, ...], options: Any) -> Gradients | None:
        """The gradients that ``needs`` asks for; None if no recent step was like this one. ``options``: further values
        on which the launches depend, besides the settings and the operands."""
        recent = None if is_dynamo_compiling() else self._recent.get(operands)
        if recent is None or recent[0] != (needs[:2], options):
            return None
        _, input_reference, input_result, weight_reference, weight_result = recent
        run_input = input_reference and input_reference()
        run_weight = weight_reference and weight_reference()
        grad, weight, input = operands
        at_grad, at_weight, at_input = grad.data_ptr(), weight.data_ptr(), input.data_ptr()
        removed = (needs[0] and run_input is None) or (needs[1] and run_weight is None)
        if removed or (at_grad | at_weight | at_input) & 15:
            return None
        dx = run_input and launch(run_input, input_result, at_grad, at_weight)
        if run_weight is None:
            return dx, None
        a, b = (at_input, at_grad) if self._input_first else (at_grad, at_input)
        return dx, launch(run_weight, weight_result, a, b)

    def missed(self, operands: Operands, needs: tuple[bool, ...], options: Any) -> None:
        """Keeps the launches of a step that ``get`` did not find and the operators computed, for later steps like
        it."""

        def cached_launches() -> Any:
            entries: list[Any] = []
            for needed, (key, a, b, _) in zip(needs, self._keys(*operands, options), strict=False):
                entry = launches.cached(key) if needed and not (a | b) & 15 else None
                if needed and entry is None:
                    return None
                entries += (None, None) if entry is None else (weakref.ref(entry[0]), entry[1])
            return (needs[:2], options), *entries

        if not is_grad_enabled() and runs_directly(*operands):
            self._recent.missed(operands, cached_launches)
