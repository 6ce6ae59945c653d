"""PyCUDA has the interface that ``cuda_bindings`` and the stand-in of the unit tests have."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ptxgen.runtime import cuda_bindings
from tests.gpu import TESTED
from tests.unit.test_cuda_driver import ATTRIBUTES, FUNCTION_ATTRIBUTES, Gpu, pretend_pycuda

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("pycuda" not in TESTED, reason="PTXGEN_DRIVER is cuda-bindings"),
]
Arity = tuple[int, int]  #: least and greatest number of arguments
#: what a driver gets as the result of another call: it calls no constructor
RESULTS = {"Context", "DeviceAllocation", "Function", "Module"}


def arity(function: Any) -> Arity:
    """The numbers of arguments of a function of Python, or those of the first overload in the docstring of one of
    Boost.Python."""
    if inspect.isfunction(function):
        parameters = inspect.signature(function).parameters.values()
        return sum(p.default is p.empty for p in parameters), len(parameters)
    [arguments, *_] = re.findall(rf"^{function.__name__}\((.*)\) -> ", function.__doc__, re.M)
    least = arguments.partition("[")[0]
    return len(re.findall(r"\(\w+\)\w+", least)), len(re.findall(r"\(\w+\)\w+", arguments))


def interface(module: Any) -> Iterator[tuple[str, Arity]]:
    """The functions and methods of ``cuda_bindings`` or of the stand-in, with their arities."""
    for name, value in vars(module).items():
        own = getattr(value, "__module__", "") in (module.__name__, pretend_pycuda.__module__)
        if name.startswith("_") or not own or not callable(value):
            continue
        if not inspect.isclass(value):
            yield name, arity(value)
        elif name.islower():  # a function that returns an object of the class
            least, most = arity(value.__init__)
            yield name, (least - 1, most - 1)
        elif not issubclass(value, Exception):
            for method in vars(value):
                constructor = method == "__init__" and name not in RESULTS
                if constructor or method == "__int__" or method == "_launch_kernel" or not method.startswith("_"):
                    yield f"{name}.{method}", arity(getattr(value, method))


@pytest.fixture(scope="module")
def pycuda() -> Any:
    import pycuda.driver

    return pycuda.driver


@pytest.mark.parametrize("module", [cuda_bindings, pretend_pycuda(Gpu())], ids=["cuda_bindings", "stand-in"])
def test_pycuda_has_the_functions_with_the_same_arguments(pycuda: Any, module: Any) -> None:
    names = dict(interface(module))
    assert {"Device.retain_primary_context", "Event.time_since", "memset_d32_async", "Function._launch_kernel"} < set(
        names
    )
    for name, (least, most) in names.items():
        part_of_pycuda: Any = pycuda
        for part in name.split("."):
            part_of_pycuda = getattr(part_of_pycuda, part)
        accepted = arity(part_of_pycuda)
        assert accepted[0] <= least, name
        assert most <= accepted[1], name


def test_pycuda_has_the_attributes(pycuda: Any) -> None:
    assert issubclass(pycuda.Error, Exception)
    for owner, attributes in {
        pycuda.Context: ["handle"],
        pycuda.Stream: ["handle"],
        pycuda.device_attribute: ATTRIBUTES,
        pycuda.function_attribute: [*FUNCTION_ATTRIBUTES, "MAX_DYNAMIC_SHARED_SIZE_BYTES"],
    }.items():
        for name in attributes:
            assert hasattr(owner, name), f"{owner.__name__}.{name}"
