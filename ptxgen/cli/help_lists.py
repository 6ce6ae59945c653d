"""Texts from registries, which help texts name in braces."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ptxgen.errors import InputError

if TYPE_CHECKING:
    from ptxgen.problem.operation import Operation


def dtypes() -> str:
    from ptxgen.problem.base import COMPUTE_MODES

    return ", ".join(COMPUTE_MODES)


def compute_modes() -> str:
    from ptxgen.problem.base import COMPUTE_MODES

    choices = {name: modes for name, modes in COMPUTE_MODES.items() if len(modes) > 1}
    return "; ".join(f"{name} takes {', '.join(modes)}" for name, modes in choices.items())


def operations() -> str:
    return _names(registered())


def exported() -> str:
    return _names(with_c_form())


def shapes() -> str:
    return _shapes(registered())


def exported_shapes() -> str:
    return _shapes(with_c_form())


def layouts() -> str:
    """The text with the layouts of each operation, and their defaults."""
    from ptxgen.problem.base import text_of

    described: list[str] = []
    defaults: list[str] = []
    for operation in registered():
        layout = operation.problem.__dataclass_fields__["layout"]
        if meaning := text_of(layout).option:
            described.append(f"{operation.name}: {meaning}.")
            defaults.append(f"{operation.name}: {layout.default}" if defaults else str(layout.default))
    return f"{' '.join(described)} [default: {'; '.join(defaults)}]"


def baselines() -> str:
    return "; ".join(f"{o.name}: {' or '.join(o.baselines)}" for o in registered() if o.baselines)


def column_major() -> str:
    return ", ".join(operation.name for operation in registered() if operation.column_major is not None)


def schedules() -> str:
    each = {o.name: "; ".join(f"{name}, {s.meaning}" for name, s in o.schedules.items()) for o in registered()}
    return ". ".join(f"{operation}: {text}" for operation, text in each.items() if text)


def registered() -> list[Operation]:
    """The registered operations. An error of a plugin is ignored here, because it ends the command later."""
    from ptxgen import plugins
    from ptxgen.problem import operation

    with suppress(InputError):
        plugins.load()
    return [operation.registered(name) for name in operation.OPERATIONS]


def with_c_form() -> list[Operation]:
    return [operation for operation in registered() if operation.c_form is not None]


def _names(operations: list[Operation]) -> str:
    *first, last = (operation.name for operation in operations)
    return f"{', '.join(first)} or {last}"


def _shapes(operations: list[Operation]) -> str:
    return "; ".join(f"{o.problem.SHAPE_EXAMPLE or o.problem.SHAPE_FORM} for {o.name}" for o in operations)
