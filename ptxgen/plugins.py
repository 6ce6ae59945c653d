"""Plugins: functions outside the package that register operations and kernel families.

A distribution names its function as an entry point of the group ``ptxgen.plugins``; the variable PTXGEN_PLUGINS names
others as ``module:function``, or modules that register when they are imported. They are called when a process first
looks up an operation or a family; the processes that measure kernels call the same ones.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from ptxgen.errors import InputError
from ptxgen.settings import settings

GROUP = "ptxgen.plugins"
OWN = "ptxgen.families"  #: registers the families of the package; plugins follow it

_state = {"begun": False, "loaded": False}


def load() -> None:
    """Registers the families of the package, then calls the plugins, once per process.

    InputError: a plugin cannot be imported, or a name is registered already.
    """
    if _state["loaded"]:
        return
    import_module(OWN)  # waits for a thread that is importing it
    if _state["begun"]:  # plugins read the registries themselves
        return
    _state["begun"] = True
    named = [EntryPoint(value, value, GROUP) for value in settings().plugins]
    for entry in (*entry_points(group=GROUP), *named):
        try:
            found = entry.load()
            if callable(found):
                found()
        except (ImportError, AttributeError, InputError) as error:
            _state["begun"] = False
            raise InputError(f"plugin {entry.value!r} cannot be loaded: {error}") from error
    _state["loaded"] = True
