"""Commands in error messages install into the running interpreter."""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest

from ptxgen import install_advice
from ptxgen.install_advice import install, install_extra

ROOT = Path(__file__).resolve().parents[2]


def put_on_path(monkeypatch: pytest.MonkeyPatch, **paths: str) -> None:
    """These commands are on the PATH; pip is in the environment if it is among them."""
    monkeypatch.setattr(shutil, "which", lambda name: paths.get(name))
    monkeypatch.setattr(install_advice.PathFinder, "find_spec", lambda name: "pip" in paths or None)


def test_command_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/env/bin/python")
    put_on_path(monkeypatch, pip="/env/bin/pip")
    assert install("torch") == "pip install torch"
    assert install("xgboost-cpu>=3.0", "numpy") == 'pip install "xgboost-cpu>=3.0" numpy'
    put_on_path(monkeypatch, pip="/usr/bin/pip")
    assert install("torch") == "/env/bin/python -m pip install torch"
    put_on_path(monkeypatch, uv="/usr/bin/uv")
    assert install("torch") == "uv pip install --python /env/bin/python torch"
    put_on_path(monkeypatch)
    assert install("torch") == "python -m pip --python /env/bin/python install torch"


def test_the_import_system_is_not_asked_for_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finder of setuptools takes that for a start of pip and no longer replaces distutils."""

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            assert name != "pip"

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    assert "install" in install("torch")


def test_a_checkout_that_is_not_installed_is_named_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "0.1.0")
    assert install_extra("cuda").endswith('install "ptxgen[cuda]"')
    assert install_extra("").endswith("install ptxgen")

    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    assert install_extra("cuda").endswith(f'install "{ROOT}[cuda]"')
    assert (ROOT / "pyproject.toml").exists()
