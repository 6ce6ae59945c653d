"""Fills the registries of operations and kernel families: first with those of the package, then with those that plugins
register. A plugin is a function outside the package.

A distribution names its function as an entry point of the group ``ptxgen.plugins``; the variable PTXGEN_PLUGINS names
further functions as ``module:function``, or modules that register when they are imported. Plugins are called when a
process first looks up an operation or a family; the processes that measure kernels call the same plugins.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from ptxgen import register_own
from ptxgen.errors import InputError
from ptxgen.settings import settings

GROUP = "ptxgen.plugins"

_state = {"begun": False, "loaded": False}
_called: set[EntryPoint] = set()  #: plugins that have registered: a second call would register them again


def called() -> bool:
    """True if the process has called a plugin."""
    return bool(_called)


def load() -> None:
    """Registers the families and the operations of the package, then calls the plugins, each once per process.

    InputError: a plugin raises an error of any class. Each later call tries the plugin again.
    """
    if _state["loaded"]:
        return
    register_own()  # waits for a thread that is importing the same
    if _state["begun"]:  # plugins read the registries themselves
        return
    _state["begun"] = True
    try:
        named = [EntryPoint(value, value, GROUP) for value in settings().plugins]
        for entry in (*entry_points(group=GROUP), *named):
            if entry not in _called:
                _call(entry)
                _called.add(entry)
        _state["loaded"] = True
    finally:
        _state["begun"] = False


def _call(entry: EntryPoint) -> None:
    try:
        register = entry.load()
        if callable(register):
            register()
    except Exception as error:  # a plugin is code of others
        raise InputError(f"plugin {entry.value!r} cannot be loaded: {type(error).__name__}: {error}") from error
