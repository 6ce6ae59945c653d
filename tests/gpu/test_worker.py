"""The measuring process on a GPU: a kernel that never ends does not keep it alive."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ptxgen.operations.gemm.problem import Gemm
from ptxgen.tuning.measure import worker
from ptxgen.tuning.measure.worker import Worker

pytestmark = pytest.mark.gpu

P, CONFIG = Gemm(16, 16, 16), worker.parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")
#: a child whose kernel waits for ever, which it says through a FIFO
CHILD = r"""
import os, sys
sys.argv = ["", *sys.argv[5:]]
from ptxgen.tuning.measure import worker
from ptxgen.tuning.measure.bench import Bench
from ptxgen.codegen.source import Source, Step
SPIN = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry spin() {\nAGAIN:\n    bra AGAIN;\n}\n"
def hang(self, *_):
    kernel = self.driver.load(Source(SPIN, ("spin",), "sm_75"))
    self.driver.launch(kernel, Step("spin", (1, 1, 1), (32, 1, 1)), b"")
    with open(FIFO, "w") as fifo:
        fifo.write(str(os.getpid()))
    self.driver.synchronize()
Bench.measure = hang
worker.main()
"""
PARENT = """
import sys
from ptxgen.tuning.measure import worker
sys.executable = sys.argv[1]
worker.Worker("cuda").measure(worker.parse(sys.argv[2]), worker.parse_config(sys.argv[3]))
"""


def test_hanging_kernel_ends_with_its_killed_parent(tmp_path: Path) -> None:
    script, fifo = tmp_path / "child", tmp_path / "fifo"
    script.write_text(f"#!{sys.executable}\nFIFO = {str(fifo)!r}\n{CHILD}")
    script.chmod(0o755)
    os.mkfifo(fifo)
    command = [sys.executable, "-c", PARENT, str(script), P.key(), str(CONFIG)]
    root, other = str(Path(worker.__file__).parents[3]), os.environ.get("PYTHONPATH", "")
    parent = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join([root, other])})
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert select.select([reader], [], [], 60)[0], "the measuring process did not start"
    child = os.pidfd_open(int(os.read(reader, 100)))
    os.close(reader)
    parent.kill()
    parent.wait(60)
    try:
        assert select.select([child], [], [], 60)[0]  # readable once the child has ended
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)
    with Worker("cuda") as after:  # the GPU is free again
        measurement = after.measure(P, CONFIG)
    assert (measurement.outcome, measurement.environment.clock) == ("ok", "hardware"), measurement.message
