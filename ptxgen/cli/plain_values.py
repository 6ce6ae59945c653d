"""Keeps option values that need no conversion. For all other values Typer imports pydantic, which takes a tenth of the
processor time of a short command."""

from __future__ import annotations

from typing import Any


class PlainValue:
    """Replaces Typer's conversion of an option: defaults and text are kept as they are, and other values are converted
    by Typer."""

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
    """Sets ``PlainValue`` in ``params``, and returns them. Parameters of Typer versions without this conversion are
    left unchanged."""
    for param in params:
        if hasattr(param, "get_runtime_param") and getattr(param, "_runtime_param", param) is None:
            param._runtime_param = PlainValue()
    return params
