"""Settings: defaults, overrides, invalid values, and the package's folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxgen import settings as module
from ptxgen.errors import InputError, UnavailableError
from ptxgen.settings import VARIABLES, Settings, docs, setting, settings


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for v in VARIABLES:
        monkeypatch.delenv(v.name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_defaults_are_the_users_directories() -> None:
    now = settings()
    assert now.database.name == "tuning.sqlite"
    assert now.database.parent.name == "ptxgen"
    assert now.cache != now.database.parent
    assert (now.driver, now.ptxas) == ("auto", None)


def test_variables_win_and_are_read_at_each_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PTXGEN_DATABASE", "~/mine.sqlite")
    monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path / "c"))
    monkeypatch.setenv("PTXGEN_DRIVER", "Emulated")
    monkeypatch.setenv("PTXGEN_PTXAS", "/opt/ptxas")
    monkeypatch.setenv("PTXGEN_PLUGINS", "toy:register, other,")
    assert settings() == Settings(
        tmp_path / "mine.sqlite", tmp_path / "c", "emulated", Path("/opt/ptxas"), plugins=("toy:register", "other")
    )
    monkeypatch.setenv("PTXGEN_DRIVER", "cuda")
    assert settings().driver == "cuda"
    for name in ("cuda-bindings", "pycuda", "PyCUDA:1"):
        monkeypatch.setenv("PTXGEN_DRIVER", name)
        assert settings().driver == name.lower()


def test_empty_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    before = settings()
    for v in VARIABLES:
        monkeypatch.setenv(v.name, " ")
    assert settings() == before


def test_unknown_driver_names_variable_and_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "opencl")
    with pytest.raises(InputError, match=r"PTXGEN_DRIVER is 'opencl'.*auto, cuda, pycuda, cuda-bindings, emulated"):
        settings()


@pytest.mark.parametrize("name", [v.name for v in VARIABLES if v.read is module._path])
def test_folder_of_an_unknown_user_names_the_variable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "~nosuchuser/file")
    with pytest.raises(
        InputError, match=rf"{name} is '~nosuchuser/file'; it must be a path; ~name must be a known user"
    ):
        settings()


def test_docs_have_a_row_per_field_and_no_local_path(tmp_path: Path) -> None:
    rows = list(docs())
    assert len(rows) == len(Settings.__dataclass_fields__)
    assert all(name.startswith("PTXGEN_") and shown and meaning for name, shown, meaning in rows)
    assert not any("/" in shown for _, shown, _ in rows)


def test_checkout_uses_its_folders() -> None:
    root = Path(module.__file__).parents[1]
    assert module.templates_dir() == root / "templates"
    assert module.shipped_dir() == root / "tuning_db"


def test_installed_package_prefers_its_own_folder(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "ptxgen"
    (package / "_templates").mkdir(parents=True)
    (package.parent / "templates").mkdir()
    assert module._own("_templates", "templates", package) == package / "_templates"
    assert module._own("_tuning_db", "tuning_db", package) == package.parent / "tuning_db"


def test_missing_templates_are_an_error_that_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "__file__", str(tmp_path / "ptxgen" / "settings.py"))
    with pytest.raises(UnavailableError, match="templates"):
        module.templates_dir()


def test_one_setting_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", "never", " AUTO "):
        monkeypatch.setenv("PTXGEN_VENDOR", text)
        assert setting("vendor") == settings().vendor
    monkeypatch.setenv("PTXGEN_VENDOR", "sometimes")
    with pytest.raises(InputError, match="PTXGEN_VENDOR is 'sometimes'"):
        setting("vendor")
