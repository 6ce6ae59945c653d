"""The package itself: its public names, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ptxgen


def test_public_names_are_listed_and_imported_once() -> None:
    assert set(ptxgen.__all__) <= set(dir(ptxgen))
    assert set(ptxgen._MODULES) == set(ptxgen.__all__)
    for name in ptxgen.__all__:
        assert getattr(ptxgen, name) is vars(ptxgen)[name]
    with pytest.raises(AttributeError, match="module 'ptxgen' has no attribute 'gem'"):
        ptxgen.gem  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, ptxgen; dir(ptxgen); print(*(m for m in sys.modules if m.startswith(('ptxgen.', 'numpy'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""
