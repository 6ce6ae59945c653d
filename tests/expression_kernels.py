"""Kernels that compute expressions, a thread for each element, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ptxgen.codegen.source import Source, Step
from ptxgen.emulator import launch
from ptxgen.expr.instructions import register_class
from ptxgen.expr.node import Node, variable
from ptxgen.expr.ptx import Temporaries, statements
from ptxgen.problem.device import device

ARRAYS: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "pred": np.bool_,
    **{f"{s}{bits}": np.dtype(f"{'i' if s == 's' else 'u'}{bits // 8}") for s in "su" for bits in (8, 16, 32, 64)},
}
#: the type of loads and stores
MEMORY = {"f16": "b16", "bf16": "b16"}


def load(type: str, register: str) -> list[str]:
    if type == "pred":
        return ["ld.global.u8 %byte, [%at];", f"setp.ne.u32 {register}, %byte, 0;"]
    return [f"ld.global.{MEMORY.get(type, type)} {register}, [%at];"]


def store(type: str, value: str) -> list[str]:
    if type == "pred":
        return [f"selp.u32 %byte, 1, 0, {value};", "st.global.u8 [%at], %byte;"]
    return [f"st.global.{MEMORY.get(type, type)} [%at], {value};"]


def kernel(roots: Sequence[Node], inputs: Mapping[str, str], sm: int, **options: Any) -> str:
    """A module with one entry ``k``: ``inputs`` are names and types of variables."""
    temporaries = Temporaries()
    d = device(f"sm_{sm}")
    names = {variable(name, type): f"%v_{name}" for name, type in inputs.items()}
    body: list[str] = []
    for n, (name, type) in enumerate(inputs.items()):
        body += [f"mad.wide.u32 %at, %i, {np.dtype(ARRAYS[type]).itemsize}, %q{n};", *load(type, f"%v_{name}")]
    held: list[str] = []
    for n, root in enumerate(roots):
        made = statements([root], names, [f"%r{n}"], sm=sm, temporaries=temporaries, **options)
        body += made.lines
        held.append(f".reg .{register_class(root.type)} %r{n};")
        at = len(inputs) + n
        body += [f"mad.wide.u32 %at, %i, {np.dtype(ARRAYS[root.type]).itemsize}, %q{at};", *store(root.type, f"%r{n}")]
    count = len(inputs) + len(roots)
    loads = [f"ld.param.u64 %q{n}, [q{n}]; cvta.to.global.u64 %q{n}, %q{n};" for n in range(count)]
    held += [f".reg .{register_class(type)} %v_{name};" for name, type in inputs.items()]
    lines = "\n".join([*held, *temporaries.declarations, *loads, *body])
    return f""".version {d.ptx_version}
.target {d.target}
.address_size 64
.visible .entry k({", ".join(f".param .u64 q{n}" for n in range(count))}, .param .u32 n)
{{
.reg .b64 %q<{count}>; .reg .b64 %at; .reg .b32 %i, %n, %byte; .reg .pred %past;
mov.u32 %i, %tid.x; mov.u32 %n, %ctaid.x; mad.lo.u32 %i, %n, 128, %i;
ld.param.u32 %n, [n]; setp.ge.u32 %past, %i, %n; @%past ret;
{lines}
ret;
}}
"""


def computed(
    roots: Sequence[Node], values: Mapping[str, tuple[str, Any]], sm: int, driver: Any = None, **options: Any
) -> list[Any]:
    """The values of expressions on the emulated device, or on that of a driver. ``values``: type and array of each
    variable, by name."""
    n = max(len(x) for _, x in values.values())
    text = kernel(roots, {name: type for name, (type, _) in values.items()}, sm, **options)
    arrays = [np.resize(np.asarray(x, ARRAYS[type]), n) for type, x in values.values()]
    results = [np.zeros(n, ARRAYS[root.type]) for root in roots]
    every = (*arrays, *results)
    raw = [x.view(np.uint16) if x.itemsize == 2 else x.view(np.uint8) if x.dtype == bool else x for x in every]
    if driver is None:
        launch(text, "k", -(-n // 128), 128, [*raw, np.uint32(n)], 0)
    else:
        _launch(driver, text, raw, n)
    return results


def _launch(driver: Any, text: str, arrays: list[Any], n: int) -> None:
    """Runs a kernel of ``kernel`` on the device of a driver, and copies all arrays back."""
    addresses = {f"x{i}": driver.allocate(max(x.nbytes, 1)) for i, x in enumerate(arrays)}
    for address, x in zip(addresses.values(), arrays, strict=True):
        driver.upload(address, x)
    arguments = (*(("u64", name) for name in addresses), ("u32", n))
    step = Step("k", (-(-n // 128), 1, 1), (128, 1, 1), 0, arguments)
    loaded = driver.load(Source(text, ("k",), device(f"sm_{driver.device.sm}").target))
    driver.launch(loaded, step, step.pack(addresses))
    driver.synchronize()
    for address, x in zip(addresses.values(), arrays, strict=True):
        driver.download(address, x)
        driver.release(address)
