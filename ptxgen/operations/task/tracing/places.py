"""Finds the user's file and line for errors of traced functions."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import FrameType, TracebackType

import numpy as np

from ptxgen.errors import TaskError

#: folders of code that is not the user's
OWN_FOLDERS = (str(Path(__file__).parents[3]), str(Path(np.__file__).parent))


def frame() -> FrameType | None:
    """The user's frame: the innermost one that is neither of this package nor of NumPy."""
    caller: FrameType | None = sys._getframe(1)
    while caller is not None and caller.f_code.co_filename.startswith(OWN_FOLDERS):
        caller = caller.f_back
    return caller


def span(frame: FrameType) -> tuple[int, int, int]:
    """The line, the first column and the column after the end of the code that a frame executes. All count from 1;
    columns are 0 if they are not known."""
    positions = list(frame.f_code.co_positions())
    line, end_line, first, end = positions[frame.f_lasti // 2] if frame.f_lasti >= 0 else (None,) * 4
    if line is None or first is None or end is None:
        return frame.f_lineno, 0, 0
    text = linecache.getline(frame.f_code.co_filename, line)
    if end_line != line:
        end = len(text.rstrip().encode())
    before, inside = (len(text.encode()[:n].decode(errors="ignore")) for n in (first, end))
    return line, before + 1, inside + 1


def source() -> str:
    """The text of the expression that the user's frame executes, or of its line if the columns are not known."""
    here = frame()
    if here is None:
        return ""
    line, first, end = span(here)
    text = linecache.getline(here.f_code.co_filename, line)
    return text[first - 1 : end - 1] if first else text.strip()


def error(message: str) -> TaskError:
    """The error with this message, at the place that the user's function executes."""
    here = frame()
    if here is None:
        return TaskError(message)
    return error_at(message, here.f_code.co_filename, *span(here))


def error_at(message: str, file: str, line: int, first: int = 0, end: int = 0) -> TaskError:
    """The error with this message, at a line of a file. ``first``, ``end``: the first column, and the column after the
    last; 0: the error is at the whole line."""
    text = linecache.getline(file, line).rstrip()
    indent = len(text) - len(text.lstrip())
    where = f"{file}, line {line}{f', column {first}' if first else ''}: {message}"
    if text.strip():
        at = first - 1 if first else indent
        carets = "^" * max(1, (end or len(text) + 1) - 1 - at)
        where += f"\n    {text.strip()}\n    {' ' * (at - indent)}{carets}"
    return TaskError(where, line, first or 1)


class placed:  # noqa: N801 a context manager, without frames of contextlib
    """A context in which TaskErrors without a place get the place that the user's function executes."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, exception_class: object, broken: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(broken, TaskError) and not broken.line:
            raise error(str(broken)) from None
