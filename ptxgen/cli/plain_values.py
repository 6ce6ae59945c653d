"""Values of options that need no conversion: for others, and only then, Typer imports pydantic, which takes a tenth of
the processor time of a short command."""

from __future__ import annotations

from typing import Any


class PlainValue:
    """In the place of Typer's conversion of an option: keeps defaults and text as they are, and converts other values
    as Typer does."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        annotation = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if value is param.default or (annotation is str and isinstance(value, str)):
            return value
        if annotation == list[str] and isinstance(value, list | tuple) and all(isinstance(x, str) for x in value):
            return list(value)
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def keep_plain_values(params: list[Any]) -> list[Any]:
    """``params``, which keep values that need no conversion. Those of a version of Typer without this conversion are
    left as they are."""
    for param in params:
        if hasattr(param, "get_runtime_param") and getattr(param, "_runtime_param", param) is None:
            param._runtime_param = PlainValue()
    return params
