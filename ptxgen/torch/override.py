"""``enabled``: makes programs that call PyTorch compute with ptxgen, without changes of their code.

Python functions replace PyTorch's in its modules and in ``torch.Tensor``. Each computes with ptxgen what ptxgen
supports, and otherwise calls the replaced function. Two other ways are worse: a mode of ``torch.overrides`` would cost
microseconds in every call of any function of PyTorch, and misses the calls inside PyTorch's functions that are written
in Python, such as attention; a kernel of the dispatcher that is written in Python costs tens of microseconds.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.nn import functional

from ptxgen.api import vendor_calls
from ptxgen.errors import InputError, ShapeError, UnavailableError
from ptxgen.torch import conv, grouped, linear_layers, products, scaled, sparse
from ptxgen.torch.launching import DTYPES
from ptxgen.torch.operator import PLAIN

MOST_REASONS = 256  #: different reasons that are counted for each function; further ones count as "other reasons"
SHOWN_REASONS = 3  #: reasons of a function that the text of ``Calls`` shows
#: errors after which PyTorch computes a call
REFUSALS = (InputError, UnavailableError)


@dataclass
class FunctionCalls:
    """The numbers of calls of one function. ``computed``: by ptxgen; ``refused``: by PyTorch, for each reason."""

    name: str
    computed: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def refuse(self, reason: str) -> None:
        """Counts a call that PyTorch computes."""
        known = reason in self.refused or len(self.refused) < MOST_REASONS
        self.refused[reason if known else "other reasons"] += 1


class Calls:
    """Counts calls while ``enabled``, by function. Calls in compiled code are not counted."""

    def __init__(self) -> None:
        self._functions: dict[str, FunctionCalls] = {}

    def of(self, name: str) -> FunctionCalls:
        """The counts of a function, zero before its first call."""
        return self._functions.setdefault(name, FunctionCalls(name))

    @property
    def computed(self) -> dict[str, int]:
        """The number of calls that ptxgen computed, by function."""
        return {name: x.computed for name, x in self._functions.items() if x.computed}

    @property
    def refused(self) -> dict[str, dict[str, int]]:
        """The number of calls that PyTorch computed, by function and reason."""
        return {name: dict(x.refused) for name, x in self._functions.items() if x.refused}

    def __str__(self) -> str:
        ours = [f"{name} {count}" for name, count in sorted(self.computed.items())]
        theirs = []
        for name, reasons in sorted(self.refused.items()):
            most = Counter(reasons).most_common(SHOWN_REASONS)
            more = [f"{len(reasons) - len(most)} more reasons"] if len(reasons) > len(most) else []
            texts = "; ".join([f"{reason}: {count}" for reason, count in most] + more)
            theirs.append(f"{name} {sum(reasons.values())} ({texts})")
        text = f"ptxgen computed {', '.join(ours) or 'nothing'}; torch computed {', '.join(theirs) or 'nothing'}"
        launched = [f"{version} launched {count}" for version, count in sorted(vendor_calls.LAUNCHES.items())]
        return f"{text}; of the products of ptxgen, {', '.join(launched)}" if launched else text


#: the calls of this process
CALLS = Calls()


@contextmanager
def enabled(report: bool = True) -> Iterator[Calls]:
    """Within the block, PyTorch's products and convolutions are computed by ptxgen, in all threads.

    These functions are replaced: ``torch.mm``, ``matmul`` and ``@``, ``addmm``, ``bmm``, ``baddbmm``,
    ``torch.sparse.mm``, ``_scaled_mm``, ``_grouped_mm`` and ``torch.nn.functional.linear``, ``conv1d`` to
    ``conv_transpose3d``, ``grouped_mm``. Modules that call them, attention included, and gradients compute with ptxgen,
    too. PyTorch computes what ptxgen does not support, and calls from C++, as in ``einsum`` and recurrent layers.
    Tensors on the CPU are computed by the emulated device where PyTorch finds no GPU, and otherwise by PyTorch.

    The value of the block is the ``Calls`` of the process, which count the calls of each function that ptxgen and
    PyTorch computed. ``report``: the counts are printed to standard error at the end of the process. A name that was
    imported before the block (``from torch import matmul``) is PyTorch's function; one that was imported within it is
    PyTorch's again after the block.
    """
    if report:
        _report_at_exit()
    _SWITCH.enter()
    try:
        yield CALLS
    finally:
        _SWITCH.leave()


def enable() -> None:
    """Makes PyTorch's functions compute with ptxgen until the end of the process, as within ``enabled``."""
    _report_at_exit()
    _SWITCH.enter()


@functools.cache
def _report_at_exit() -> None:
    atexit.register(lambda: print(f"ptxgen.torch: {CALLS}", file=sys.stderr))


class _Switch:
    """Replaces PyTorch's functions while at least one block of ``enabled`` is active."""

    def __init__(self) -> None:
        self._blocks, self._lock = 0, threading.Lock()
        self._own: list[tuple[Any, str, Any]] = []
        self._fast_attention = True
        self.on_cpu = False

    def enter(self) -> None:
        """Begins a block of ``enabled``."""
        with self._lock:
            self._blocks += 1
            if self._blocks > 1:
                return
            self.on_cpu = not torch.cuda.is_available()
            for place, name, replacement in _replacements():
                self._own.append((place, name, vars(place).get(name, _INHERITED)))
                setattr(place, name, replacement)
            # its kernels multiply in C++; the other path calls the functions above
            self._fast_attention = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)

    def leave(self) -> None:
        """Ends a block of ``enabled``."""
        with self._lock:
            self._blocks -= 1
            if self._blocks:
                return
            while self._own:
                place, name, before = self._own.pop()
                if before is _INHERITED:
                    delattr(place, name)
                else:
                    setattr(place, name, before)
            torch.backends.mha.set_fastpath_enabled(self._fast_attention)


_INHERITED = object()
MISSING = object()  #: stands for an argument that is not given and has no default
_SWITCH = _Switch()


def _reason(x: Any, dtypes: frozenset[torch.dtype]) -> str:
    """The reason why ptxgen does not compute a function whose first argument is ``x``."""
    if not isinstance(x, Tensor):
        return f"an argument is of type {type(x).__name__}"
    if x.__class__ not in PLAIN:
        return f"tensors of class {x.__class__.__name__}"
    if x.dtype not in dtypes:
        return f"{str(x.dtype).removeprefix('torch.')} tensors"
    return f"tensors on {x.device.type}"


#: the source of a replacement. Its parameters have the names of PyTorch's, so that Python binds the arguments: code
#: that bound them took a microsecond
_FUNCTION = """
def call({parameters}, *more, {keywords}**options):
    if is_dynamo_compiling():
        return traced(({names},), {named}, more, options)
    x = {first}
    if (
        more or options or {last} is MISSING or x is None
        or x.__class__ not in PLAIN or x.dtype not in dtypes or not (x.is_cuda or switch.on_cpu)
    ):
        return others(({names},), {named}, more, options)
    try:
        result = ours({names}{passed})
    except REFUSALS as error:
        return torch_computes(str(error).partition(chr(10))[0], ({names},), {named}, more, options)
    calls.computed += 1
    return result
"""


def _replacement(theirs: Callable[..., Any], name: str, override: Override) -> Callable[..., Any]:
    """The replacement of PyTorch's function ``theirs``. It calls ``override.ours`` on arguments that ptxgen computes,
    and ``theirs`` on others. Its parameters have the names in ``override`` and the defaults of ``ours``; ``more`` and
    ``options`` receive further arguments."""
    calls = CALLS.of(name)
    ours, required, dtypes = override.ours, override.required, override.dtypes
    # those that PyTorch's function lacks come last
    of_ours = [p.default for p in inspect.signature(ours).parameters.values()]
    given_names = (*override.parameters, *override.keywords)
    defaults = [MISSING] * required + of_ours[required : len(given_names)]
    by_name = dict(zip(given_names, defaults, strict=True))

    def torch_computes(
        reason: str, values: tuple[Any, ...], named: dict[str, Any], more: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        calls.refuse(reason)
        return as_given(values, named, more, options)

    def as_given(values: tuple[Any, ...], named: dict[str, Any], more: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The result of PyTorch's function. Arguments at their defaults are not passed."""
        first = (*values, *more) if more else tuple(takewhile(lambda value: value is not MISSING, values[:required]))
        given = {**dict(zip(override.parameters[len(first) :], values[len(first) :], strict=False)), **named}
        return theirs(*first, **{n: value for n, value in given.items() if value is not by_name[n]}, **options)

    def others(values: tuple[Any, ...], named: dict[str, Any], more: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The result of a call that the checks in ``_FUNCTION`` did not accept."""
        unknown = sorted(n for n, value in options.items() if value is not None)
        if unknown or more:
            reason = f"argument {', '.join(unknown)}" if unknown else f"more than {len(values)} arguments"
            return torch_computes(reason, values, named, more, options)
        is_complete = all(value is not MISSING for value in values)
        if options and is_complete:
            return call(*values, **named)
        return torch_computes(_reason(values[0] if is_complete else None, dtypes), values, named, more, options)

    def traced(values: tuple[Any, ...], named: dict[str, Any], more: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The result while ``torch.compile`` traces the call."""
        plain = not more and not options and values[required - 1] is not MISSING
        if plain and values[0].is_cuda and values[0].dtype in dtypes:
            return ours(*values, **named)
        return as_given(values, named, more, options)

    names, count = ", ".join(override.parameters), len(override.parameters)
    text = _FUNCTION.format(
        parameters=", ".join(f"{n}=defaults[{i}]" for i, n in enumerate(override.parameters)),
        keywords="".join(f"{n}=defaults[{i}], " for i, n in enumerate(override.keywords, count)),
        names=names,
        named=f"{{{', '.join(f'{n!r}: {n}' for n in override.keywords)}}}",
        passed="".join(f", {n}={n}" for n in override.keywords),
        first=override.parameters[0],
        last=override.parameters[required - 1],
    )
    space = {
        **{"MISSING": MISSING, "PLAIN": PLAIN, "REFUSALS": REFUSALS, "switch": _SWITCH, "calls": calls, "ours": ours},
        **{"dtypes": dtypes, "defaults": defaults, "others": others, "traced": traced},
        **{"torch_computes": torch_computes, "is_dynamo_compiling": is_dynamo_compiling},
    }
    exec(compile(text, f"<ptxgen.torch {name}>", "exec"), space)
    call: Callable[..., Any] = functools.wraps(theirs, assigned=("__name__", "__doc__"))(space["call"])
    return call


# ---- the functions


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    return products.matmul(a, b) if a.layout is torch.strided else sparse.spmm(a, b)


def _mm(a: Tensor, b: Tensor) -> Tensor:
    if a.dim() != 2 or b.dim() != 2:
        raise ShapeError(f"input has {a.dim()} dimensions and mat2 {b.dim()}; both must have 2")
    return _matmul(a, b)


def _bmm(a: Tensor, b: Tensor) -> Tensor:
    if a.dim() != 3 or b.dim() != 3:
        raise ShapeError(f"input has {a.dim()} dimensions and mat2 {b.dim()}; both must have 3")
    return products.matmul(a, b)


def _grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    if bias is not None or out_dtype not in (None, mat_a.dtype):
        raise InputError("bias or out_dtype is given; both must be None")
    ranks = mat_a.dim(), mat_b.dim()
    if offs is None and ranks == (3, 3):
        return products.matmul(mat_a, mat_b)
    if offs is None or ranks not in ((2, 3), (2, 2)):
        raise ShapeError(f"mat_a has {ranks[0]} dimensions and mat_b {ranks[1]}; they must have 2 and 3, or 2 and 2")
    if ranks == (2, 3):
        return grouped.gemm_jagged(mat_a, mat_b, offs)
    result: Tensor = grouped.GEMM_JAGGED_WEIGHT_GRAD(mat_a.mT, mat_b, offs)
    return result


def _scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    if scale_result is not None:
        raise InputError("scale_result is given; it must be None")
    out_type = input.dtype if out_dtype is None else out_dtype
    return scaled.scaled_mm(input, mat2, scale_a, scale_b, bias, out_type, use_fast_accum)


@dataclass(frozen=True)
class Override:
    """A function of ptxgen, ``ours``, that replaces functions of PyTorch. ``parameters``: the names of the positional
    parameters, of which the first ``required`` have no default; ``dtypes``: the dtypes of the first argument that
    ptxgen computes; ``keywords``: the names of the keyword-only parameters."""

    ours: Callable[..., Tensor]
    parameters: tuple[str, ...]
    required: int = 2
    dtypes: frozenset[torch.dtype] = frozenset(DTYPES)
    keywords: tuple[str, ...] = ()


_MATMUL = Override(_matmul, ("input", "other"))
_MM, _BMM = Override(_mm, ("input", "mat2")), Override(_bmm, ("input", "mat2"))
_ADDMM, _BADDBMM = (
    Override(products.addmm, ("input", first, second), 3, keywords=("beta", "alpha"))
    for first, second in (("mat1", "mat2"), ("batch1", "batch2"))
)
_CONV = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_CONV_TRANSPOSE = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_GROUPED_MM = Override(_grouped_mm, ("mat_a", "mat_b", "offs", "bias", "out_dtype"))
_SCALED = ("input", "mat2", "scale_a", "scale_b", "bias", "scale_result", "out_dtype", "use_fast_accum")
_CONVOLUTIONS = {
    **{f.__name__: Override(f, _CONV) for f in (conv.conv1d, conv.conv2d, conv.conv3d)},
    **{
        f.__name__: Override(f, _CONV_TRANSPOSE)
        for f in (conv.conv_transpose1d, conv.conv_transpose2d, conv.conv_transpose3d)
    },
}
#: the replaced functions: the module or class, the name of the function there, and its override
OVERRIDES: tuple[tuple[Any, str, Override], ...] = (
    *((place, name, _MM) for place in (torch, Tensor) for name in ("mm",)),
    *((place, name, _BMM) for place in (torch, Tensor) for name in ("bmm",)),
    *((place, "matmul", _MATMUL) for place in (torch, Tensor, torch.linalg)),
    (Tensor, "__matmul__", _MATMUL),
    *((place, "addmm", _ADDMM) for place in (torch, Tensor)),
    *((place, "baddbmm", _BADDBMM) for place in (torch, Tensor)),
    (torch.sparse, "mm", Override(_mm, ("mat1", "mat2"))),
    (functional, "linear", Override(linear_layers.linear, ("input", "weight", "bias"))),
    *((place, name, each) for name, each in _CONVOLUTIONS.items() for place in (torch, functional)),
    (torch, "_grouped_mm", _GROUPED_MM),
    (functional, "grouped_mm", _GROUPED_MM),
    (torch, "_scaled_mm", Override(_scaled_mm, _SCALED, 4, frozenset(scaled.FLOATS_8))),
)


@functools.cache
def _replacements() -> tuple[tuple[Any, str, Callable[..., Any]], ...]:
    """For each function in ``OVERRIDES`` that this version of PyTorch has: the module or class, the name there, and the
    replacement."""
    return tuple(
        (place, name, _replacement(getattr(place, name), name.strip("_"), override))
        for place, name, override in OVERRIDES
        if hasattr(place, name)
    )
