"""Work in a forked process."""

from __future__ import annotations

import os
import select
import signal
import traceback
import warnings
from collections.abc import Callable

SECONDS = 60  #: limit of a child process; one that takes longer hangs


def forked(work: Callable[[], object]) -> str:
    """The result of ``work`` in a forked process, as text. AssertionError: it raised an exception, or hangs."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork in a process with threads
        child = os.fork()
    if not child:
        try:
            message = f"+{work()}"
        except BaseException:
            message = f"-{traceback.format_exc()}"
        os.write(writer, message.encode())
        os._exit(0)
    os.close(writer)
    try:
        waiting, _, _ = select.select([reader], [], [], SECONDS)
        if not waiting:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert waiting, "the forked process hangs"
        with os.fdopen(os.dup(reader)) as f:
            output = f.read()
    finally:
        os.close(reader)
    assert output.startswith("+"), output
    return output[1:]
