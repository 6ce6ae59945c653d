"""The tasks of ``ptxgen.torch`` on tensors of the CPU, by the emulated device."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import pytest

from ptxgen.api import choice, runners
from ptxgen.codegen.config.config import parse_config
from tests.torch_task_checks import TaskChecks

#: a short kernel, which the emulated device parses and runs in little time
SHORT = parse_config("ms=2 ns=2 ml=16 nl=16 u=4 cp_async_a=0 cp_async_b=0 stages=2")


@pytest.fixture(autouse=True, scope="module")
def _short_kernels() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "choose", lambda problem, on: SHORT)
        patch.setattr(runners, "runners", OrderedDict())
        yield


class TestTasks(TaskChecks):
    device = "cpu"
