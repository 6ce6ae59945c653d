"""Packs the parameters of launches in advance, except for addresses."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from ptxgen.codegen.source import Encode, Step

MAX_TENSOR_MAPS = 256  #: cached parameter buffers of a step with tensor maps, by addresses

Addresses = tuple[int, ...]


class PackedStep(NamedTuple):
    """A step whose parameter buffer depends only on addresses. ``parameters(addresses)``: the parameter buffer."""

    step: Step
    parameters: Callable[[Addresses], bytes]


def pack(step: Step, names: Sequence[str], numbers: Mapping[str, int | float], encode: Encode) -> PackedStep:
    """The packed step. It takes addresses in the order of ``names``; the addresses of all other arrays are 0.
    ``numbers``: the values of alpha, beta and other scalars."""
    absent = {name: 0 for _, name, _ in step.named_offsets if name not in names}
    absent |= {m.operand: 0 for m in step.maps if m.operand not in names}
    values = {**absent, **numbers}
    parameters = _packer(step, names, values)
    return PackedStep(step, _with_maps(step, names, values, parameters, encode) if step.maps else parameters)


def _packer(step: Step, names: Sequence[str], values: Mapping[str, int | float]) -> Callable[[Addresses], bytes]:
    """A function that packs the parameters before the first tensor map: it writes the addresses of arrays, and of parts
    of arrays, at their offsets, and copies the bytes between them, which are packed once."""
    packed = step.pack({**dict.fromkeys(names, 0), **values})
    named = [(offset, (names.index(name), more)) for offset, name, more in step.named_offsets if name in names]
    parts = [part for part in dict.fromkeys(part for _, part in named) if part[1]]
    places = {part: len(names) + n for n, part in enumerate(parts)}
    form, end, count = "=", 0, len(names) + len(parts)
    order: list[int] = []
    constants: list[bytes] = []
    for offset, part in named:
        if offset > end:
            form += f"{offset - end}s"
            order.append(count + len(constants))
            constants.append(packed[end:offset])
        form, end = f"{form}Q", offset + 8
        order.append(places.get(part, part[0]))
    if not order:
        return lambda addresses: packed
    tail = packed[end:]
    write = struct.Struct(f"{form}{len(tail)}s").pack
    if order == list(range(count)):
        return lambda addresses: write(*addresses, tail)
    pick, rest = itemgetter(*order, count + len(constants)), (*constants, tail)
    if parts:
        return lambda addresses: write(*pick((*addresses, *(addresses[n] + more for n, more in parts), *rest)))
    return lambda addresses: write(*pick(addresses + rest))


def _with_maps(
    step: Step,
    names: Sequence[str],
    values: Mapping[str, int | float],
    parameters: Callable[[Addresses], bytes],
    encode: Encode,
) -> Callable[[Addresses], bytes]:
    """A function that appends the encoded tensor maps to the parameters. It encodes maps once per tuple of
    addresses."""
    buffers: dict[Addresses, bytes] = {}
    cached = buffers.get

    def with_maps(addresses: Addresses) -> bytes:
        packed = cached(addresses)
        if packed is None:
            if len(buffers) >= MAX_TENSOR_MAPS:
                buffers.clear()
            maps = step.pack_maps(encode, {**values, **dict(zip(names, addresses, strict=True))})
            packed = buffers[addresses] = parameters(addresses) + maps
        return packed

    return with_maps
