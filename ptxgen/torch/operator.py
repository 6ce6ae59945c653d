"""``Operator``: one operation as a ``torch.library`` operator and as a direct call.

Calls that ``torch.compile`` and ``torch.export`` trace, and calls with tensor subclasses, go through PyTorch's
dispatcher. The dispatcher costs tens of microseconds for an operator that is written in Python. Therefore eager calls
on plain tensors run the kernel directly, or in a ``torch.autograd.Function`` if gradients are recorded; compiled code
runs the kernel directly, too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor, unwrap_if_dead
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter

from ptxgen.api import launches
from ptxgen.errors import InputError
from ptxgen.torch import launching
from ptxgen.torch.launching import check_dense
from ptxgen.torch.recent_calls import RecentCalls

#: the operators are ``torch.ops.ptxgen.<name>``
LIBRARY = torch.library.Library("ptxgen", "DEF")
#: Inductor passes operands with the strides that it traced, because the strides decide the layout of results
TAGS = tuple(
    getattr(torch.Tag, name) for name in ("pt2_compliant_tag", "needs_exact_strides") if hasattr(torch.Tag, name)
)
DEVICES = {"cpu": "CPU", "cuda": "CUDA"}
#: classes of arguments that need no dispatcher
PLAIN = frozenset({Tensor, Parameter, type(None)})

BATCHED = torch._C.DispatchKey.FuncTorchBatched
FUNCTIONALIZE = torch._C._functorch.TransformType.Functionalize
is_grad_enabled = torch.is_grad_enabled
_autocasts = torch._C._is_any_autocast_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transforms = torch._C._functorch.peek_interpreter_stack
_traces = torch._C._get_tracing_state


class Operator:
    """An operator of ``torch.ops.ptxgen``, whose first arguments are tensors or lists of tensors.

    ``schema``: the argument of ``torch.library.Library.define``. ``tensors``: the number of tensor arguments.
    ``kernel`` computes the result of tensors with memory; ``fake`` returns an empty tensor with the shape, dtype and
    strides of the result. ``setup`` and ``backward`` are those of ``torch.library.register_autograd``, ``batch`` is
    that of ``torch.library.register_vmap``.
    ``backward`` calls operators only, so that gradients can be differentiated again. ``key`` returns the key under
    which the launch of a call is cached, and the addresses of the tensors in their order; ``operation``: as in
    ``launching.settings``. If both are given, calls like a recent one repeat its launch. ``autocasts``: autocast
    converts the tensors.
    """

    def __init__(
        self,
        schema: str,
        tensors: int,
        kernel: Callable[..., Any],
        fake: Callable[..., Any],
        setup: Callable[..., None],
        backward: Callable[..., Any],
        batch: Callable[..., Any],
        key: Callable[..., tuple[Any, int, int, tuple[int, ...]]] | None = None,
        operation: str = "",
        autocasts: bool = True,
    ) -> None:
        name = f"ptxgen::{schema.partition('(')[0]}"
        LIBRARY.define(schema, tags=TAGS)
        self.overload: Any = getattr(torch.ops.ptxgen, schema.partition("(")[0]).default
        self.kernel = kernel
        self._tensors, self._autocasts = tensors, autocasts
        self._key: Any = key
        self._recent = RecentCalls(operation) if key is not None else None
        # compiled code calls the overload, whose arguments the dispatcher would convert
        self.overload._op = self._call_of_plain_tensors(self.overload._op)
        self._has_symbolic_extents = "SymInt[]" in schema
        self._record = _recording_function(self._computed, setup, backward)
        self._transformed = _transformed_function(self, setup, backward, batch)
        torch.library.register_fake(name, fake, lib=LIBRARY)
        torch.library.register_autograd(name, backward, setup_context=setup, lib=LIBRARY)
        torch.library.register_vmap(name, batch, lib=LIBRARY)
        for device, backend in DEVICES.items():
            LIBRARY.impl(name, kernel, backend)
            if autocasts:
                LIBRARY.impl(name, self._autocast_kernel(device, f"Autocast{backend}"), f"Autocast{backend}")

    def _call_of_plain_tensors(self, overload: Callable[..., Any]) -> Callable[..., Any]:
        """A function like ``overload`` that calls the kernel where the dispatcher has nothing else to do, as in
        compiled code, and otherwise ``overload``."""
        kernel, count = self.kernel, self._tensors

        def dispatch(*args: Any, **named: Any) -> Any:
            # torch.jit.trace records this source line; its check traces again without gradients and compares the lines
            return overload(*args, **named)

        def call(*args: Any, **named: Any) -> Any:
            if named or is_grad_enabled():
                return dispatch(*args, **named)
            recent = self._recent_launch(args)
            if recent is not None:
                return self._computed(recent, args)
            tensors = args[:count]
            if not runs_directly(*tensors):
                return dispatch(*args)
            for x in tensors:
                if x is not None and x.is_meta:
                    return dispatch(*args)
            try:
                result = kernel(*args)
            except (AttributeError, RuntimeError, InputError):  # batched tensors, or an error that dispatch raises
                return dispatch(*args)
            if self._recent is not None:
                self._recent.missed(tensors, lambda: self._cached_launch(args, False))
            return result

        return call

    def _autocast_kernel(self, device: str, key: str) -> Callable[..., Any]:
        excluded = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

        def call(*args: Any) -> Any:
            args = _autocast(args, device)
            with torch._C._ExcludeDispatchKeyGuard(excluded):
                return self.overload(*args)

        return call

    def __call__(self, *args: Any) -> Any:
        """The result for positional arguments."""
        if is_dynamo_compiling():
            return self.overload(*args)
        recent = self._recent_launch(args)
        if recent is not None:
            return self._record(*args, recent) if recent[2] else self._computed(recent, args)
        if _autocasts() or _dispatch_modes() or _function_modes() or _transforms() is not None or _traces() is not None:
            function, args = self._in_mode(args)
            if function is not None:
                return function(*args)
        if forward_ad._current_level >= 0:
            _refuse_tangents(args)
        tensors = args[: self._tensors]
        for x in tensors:
            if x.__class__ not in PLAIN:
                self._check(args)
                return self.overload(*args)
        try:
            records = False
            if is_grad_enabled():
                for x in tensors:
                    records = records or (x is not None and x.requires_grad)
            result = self._record(*args, None) if records else self.kernel(*args)
            if self._recent is not None and not _autocasts():
                self._recent.missed(tensors, lambda: self._cached_launch(args, records))
            return result
        except (AttributeError, RuntimeError, InputError):  # only after an error, because the tests cost time
            self._check(args)
            dispatched = all(x.is_meta for x in tensors if x is not None) or any(map(is_legacy_batched, tensors))
            live = _without_dead_wrappers(tensors)
            if not dispatched and all(x is y for x, y in zip(tensors, live, strict=True)):
                raise
        return self.overload(*args) if dispatched else self(*live, *args[self._tensors :])

    def _recent_launch(self, args: tuple[Any, ...]) -> tuple[Callable[..., None], Any, bool] | None:
        """The launch of a recent call like this one, the allocation of its result, and True if gradients are recorded.
        None: there was no such call."""
        if self._recent is None:
            return None
        launch = self._recent.get(args[: self._tensors])
        if launch is None:
            return None
        rest, reference, result, records = launch
        run = reference()
        return (run, result, records) if run is not None and args[self._tensors :] == rest else None

    def _cached_launch(self, args: tuple[Any, ...], records: bool) -> tuple[Any, ...] | None:
        """The entry that ``_recent_launch`` reads: the arguments after the tensors, a weak reference to the launch, the
        allocation of its result, and ``records``. None: there is no cached launch, or an operand is not aligned to 16
        bytes."""
        key, a, b, more = self._key(*args)
        launch = launches.cached(key)
        if launch is None or any(at & 15 for at in (a, b, *more)):
            return None
        rest = tuple(x.copy() if isinstance(x, list) else x for x in args[self._tensors :])
        return rest, weakref.ref(launch[0]), launch[1], records

    def _computed(self, recent: tuple[Callable[..., None], Any, bool] | None, args: tuple[Any, ...]) -> Any:
        """The result of the kernel, computed by the launch of a recent call like this one if there was one."""
        if recent is None:
            return self.kernel(*args)
        run, result, _ = recent
        a, b = args[0].data_ptr(), args[1].data_ptr()
        bias = args[2] if self._tensors == 3 else None
        if bias is None:
            return self.kernel(*args) if (a | b) & 15 else launching.launch(run, result, a, b)
        c = bias.data_ptr()
        return self.kernel(*args) if (a | b | c) & 15 else launching.launch(run, result, a, b, (c,))

    def _check(self, args: tuple[Any, ...]) -> None:
        """Raises InputError if a tensor argument is not a dense tensor."""
        for argument, x in zip(self.overload._schema.arguments[: self._tensors], args, strict=False):
            if isinstance(argument.type, torch._C.ListType):
                for i, item in enumerate(x):
                    check_dense(f"{argument.name}[{i}]", item)
            elif x is not None or not isinstance(argument.type, torch._C.OptionalType):
                check_dense(argument.name, x)

    def _in_mode(self, args: tuple[Any, ...]) -> tuple[Callable[..., Any] | None, tuple[Any, ...]]:
        """The function that computes the result in a transform of ``torch.func``, a mode of the dispatcher,
        ``torch.jit.trace`` or autocast, and its arguments. None in place of the function: the call continues as in
        eager mode, with the arguments as autocast converts them."""
        self._check(args)
        if _traces() is not None and self._has_symbolic_extents:
            raise InputError(
                f"torch.jit.trace cannot record {self.overload}, whose extents are symbolic; use torch.export.export"
            )
        transform = _transforms()
        if transform is not None:
            in_rule = torch._C._dispatch_tls_is_dispatch_key_excluded(BATCHED)  # of register_vmap, below torch.vmap
            dispatched = in_rule or transform.key() == FUNCTIONALIZE
            return (self.overload if dispatched else self._transformed), args
        if _dispatch_modes() or _function_modes() or _traces() is not None or isinstance(args[0], list):
            return self.overload, args
        return None, _autocast(args, args[0].device.type) if self._autocasts else args


def is_legacy_batched(x: Tensor | None) -> bool:
    """True if ``x`` is a batch that ``torch.autograd.grad`` made for ``is_grads_batched``. The dispatcher loops over
    its items."""
    return x is not None and is_legacy_batchedtensor(x)


def _without_dead_wrappers(tensors: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    """The tensors, unwrapped where a transform of ``torch.func`` that has ended left its wrapper, which has no memory.
    The backward function of ``torch.func.vjp`` receives such tensors."""
    return [None if x is None else unwrap_if_dead(x) for x in tensors]


def runs_directly(*tensors: Tensor) -> bool:
    """True if operators on these tensors need no dispatcher: no mode, transform or tracing is active, and no tensor is
    of a subclass."""
    if is_dynamo_compiling() or forward_ad._current_level >= 0:
        return False
    if _autocasts() or _dispatch_modes() or _function_modes() or _transforms() is not None or _traces() is not None:
        return False
    for x in tensors:  # noqa: SIM110 all() takes twice as long
        if x.__class__ not in PLAIN:
            return False
    return True


def in_transform() -> bool:
    """True if a transform of ``torch.func`` is active outside ``torch.compile``."""
    return not is_dynamo_compiling() and _transforms() is not None


def _recording_function(compute: Callable[..., Any], setup: Callable[..., None], backward: Callable[..., Any]) -> Any:
    """The function that records gradients in eager mode. Its arguments are those of the operator, then the result of
    ``_recent_launch``; ``compute``: ``Operator._computed``."""

    class Record(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            args = given[:-1]
            output = compute(given[-1], args)
            setup(ctx, args, output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return *backward(ctx, *grads), None

    # torch.autograd.Function.apply would check again whether torch.func transforms the call
    return super(torch.autograd.Function, Record).apply


def _transformed_function(
    operator: Operator, setup: Callable[..., None], backward: Callable[..., Any], batch: Callable[..., Any]
) -> Any:
    """The operator as a function to which the transforms of ``torch.func`` can be applied."""

    class Transformed(torch.autograd.Function):
        @staticmethod
        def forward(*args: Any) -> Any:
            return operator(*args)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            setup(ctx, inputs, output)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return backward(ctx, *grads)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            raise _tangent_error()

        @staticmethod
        def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
            return batch(info, in_dims, *args)

    return Transformed.apply


def _refuse_tangents(args: Sequence[Any]) -> None:
    """Raises InputError if an argument is a dual tensor of forward-mode differentiation."""
    for x in (y for arg in args for y in (arg if isinstance(arg, list) else (arg,))):
        if isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None:
            raise _tangent_error()


def _tangent_error() -> InputError:
    return InputError(
        "an argument has a tangent; ptxgen.torch computes no forward-mode derivatives: use torch.func.vjp or"
        " jacrev, or PyTorch's own operator"
    )


def _autocast(args: Sequence[Any], device: str) -> tuple[Any, ...]:
    """The arguments, with the floating-point tensors on ``device`` converted to the dtype of autocast if autocast is
    enabled for ``device``. float64 is not converted."""
    if not torch.is_autocast_enabled(device):
        return tuple(args)
    autocast_dtype = torch.get_autocast_dtype(device)

    def cast(x: Any) -> Any:
        if isinstance(x, Tensor):
            eligible = x.is_floating_point() and x.dtype is not torch.float64 and x.device.type == device
            return x.to(autocast_dtype) if eligible else x
        return [cast(y) for y in x] if isinstance(x, list) else x

    return tuple(cast(x) for x in args)


def loop_over_batch(operator: Callable[..., Any]) -> Callable[..., Any]:
    """A rule of ``torch.vmap`` that calls ``operator`` for each item of the batch. ``operator`` returns a tensor or a
    list of tensors."""

    def select(x: Any, dim: Any, i: int) -> Any:
        if isinstance(x, (list, tuple)) and isinstance(dim, (list, tuple)):
            return [select(y, d, i) for y, d in zip(x, dim, strict=True)]
        return x if dim is None else x.select(dim, i)

    def batch(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        results = [
            operator(*(select(x, dim, i) for x, dim in zip(args, in_dims, strict=True))) for i in range(info.batch_size)
        ]
        if isinstance(results[0], Tensor):
            return torch.stack(results), 0
        return [torch.stack(items) for items in zip(*results, strict=True)], [0] * len(results[0])

    return batch
