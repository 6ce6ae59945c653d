"""Scripts without a suffix, as modules."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import sys
from types import ModuleType

from tests.architecture.source import ROOT


@functools.cache
def script(name: str) -> ModuleType:
    """``scripts/<name>``; it stays in ``sys.modules``, where dataclasses look their module up."""
    loader = importlib.machinery.SourceFileLoader("scripts_" + name.replace("-", "_"), str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    sys.modules[loader.name] = module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
