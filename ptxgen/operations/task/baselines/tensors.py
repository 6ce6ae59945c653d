"""PyTorch tensors in device memory of the driver, and streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ptxgen.errors import DtypeError
from ptxgen.expr.python_text import TORCH, type_in
from ptxgen.problem.dtypes import dtype
from ptxgen.runtime.device_array import DeviceArray


def tensor(torch: Any, address: int, shape: tuple[int, ...], element_type: str) -> Any:
    """The memory at ``address`` as a tensor. DtypeError: PyTorch lacks the type."""
    name = type_in(TORCH, element_type).partition(".")[2]
    if not hasattr(torch, name):
        raise DtypeError(f"type is {element_type}; PyTorch lacks torch.{name}")
    size = dtype(element_type).bytes
    memory = torch.as_tensor(DeviceArray(address, shape, f"<i{size}" if size > 1 else "|u1"), device="cuda")
    return memory.view(getattr(torch, name))


@contextmanager
def on_stream(torch: Any, driver: Any, tf32: bool = False) -> Iterator[None]:
    """Within the block, PyTorch queues operations on the driver's stream. ``tf32``: True: products of f32 may be
    computed in tf32."""
    stream = torch.cuda.ExternalStream(driver.stream, driver.index)  # its GPU becomes the current one
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, tf32
    try:
        with driver.context("PyTorch"), torch.cuda.stream(stream), torch.no_grad():
            yield
    finally:
        matmul.allow_tf32 = before


@contextmanager
def on_default_stream(torch: Any, driver: Any) -> Iterator[None]:
    """Within the block, PyTorch queues operations on the default stream, which libraries use that take no stream."""
    with driver.context("PyTorch"), torch.cuda.device(driver.index), torch.no_grad():
        yield
