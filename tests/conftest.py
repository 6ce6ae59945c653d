"""Command-line options, the ``gpu`` marker, and a database of the test session."""

from __future__ import annotations

import gc
import shutil
import signal
import subprocess
import threading

import pytest

from ptxgen.api import launches, runners
from ptxgen.families.common import array_cache
from ptxgen.operations.task.language import texts
from ptxgen.problem.device import device
from ptxgen.runtime import kept_sources
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.open_driver import open_driver
from ptxgen.settings import GPU_DRIVER, settings
from ptxgen.tuning.choice import choice_cache
from tests.combinations import left_out


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite committed generated files: the PTX of tests/golden, the tables of docs/reference.md",
    )
    parser.addoption(
        "--exhaustive",
        action="store_true",
        help="also run the cases that the markers each_value, each_pair, first and every leave out",
    )
    parser.addoption(
        "--emulate",
        metavar="GPU",
        help="run the random kernels of tests/gpu (test_families.py, test_task.py) on the emulated device, with the"
        " facts of this GPU, for example h200; other tests of GPUs are skipped",
    )


@pytest.fixture(autouse=True, scope="session")
def _own_database(tmp_path_factory):
    """No test reads or writes the user's database, or caches a choice or a space that depends on the test's stand-ins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTXGEN_DATABASE", str(tmp_path_factory.mktemp("database") / "tuning.sqlite"))
        patch.setattr(choice_cache, "write", lambda key, choices: None)
        patch.setattr(array_cache, "read", lambda key: None)
        patch.setattr(array_cache, "write", lambda key, arrays: None)
        patch.setattr(kept_sources, "read", lambda key: None)
        patch.setattr(kept_sources, "write", lambda key, source: None)
        patch.setattr(texts, "read", lambda key: None)
        patch.setattr(texts, "write", lambda key, lists: None)
        yield


@pytest.fixture
def draws(request):
    """How many times as many random cases as usual run."""
    return 4 if request.config.getoption("--exhaustive") else 1


@pytest.fixture(autouse=True, scope="session")
def _quiet():
    """What commands print does not depend on how busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ptxgen.cli.progress.QUIET", threading.TIMEOUT_MAX)
        yield


@pytest.fixture(autouse=True, scope="session")
def _interruptible():
    """A shell starts background jobs with SIGINT ignored, and child processes inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def _no_cached_calls():
    """No module sees the cached calls of the modules before it, whose order depends on the number of processes."""
    launches.forget_launches()
    runners.runners.clear()


#: new objects from which on the garbage collector works: kernels on the emulated device have tens of thousands, which
#: live as long as their test
NEW_OBJECTS = 300_000


@pytest.fixture(autouse=True, scope="module")
def _frozen(_no_cached_calls):
    """What the modules before have made and kept lives to the end: the garbage collector need not visit it."""
    if gc.get_count()[0] > NEW_OBJECTS // 4:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collected tests and imported modules live to the end: the garbage collector need not visit them."""
    gc.disable()
    gc.set_threshold(NEW_OBJECTS)
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="session")
def random_kernels_driver(request):
    """The driver of a GPU; with ``--emulate``, the emulated device with the facts of that GPU."""
    name = request.config.getoption("--emulate")
    return EmulatedDriver(device(name)) if name else open_driver("cuda")


def _gpu() -> bool:
    tool = shutil.which("nvidia-smi")
    return tool is not None and subprocess.run([tool, "-L"], capture_output=True).returncode == 0


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--exhaustive") and (out := {*left_out(items)}):
        config.hook.pytest_deselected(items=list(out))
        items[:] = [item for item in items if item not in out]
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if config.getoption("--emulate"):
        for item in marked:
            if "random_kernels_driver" not in item.fixturenames:
                item.add_marker(pytest.mark.skip(reason="--emulate runs the tests of random kernels alone"))
    elif (
        marked and not GPU_DRIVER.fullmatch(settings().driver) and not _gpu()
    ):  # a driver that is asked for must be there
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here; scripts/gpu runs these where there is one"))
