"""Makes programs compute with ptxgen through PyTorch's functions, in two ways: by the entry point of the group
``torch.backends``, which PyTorch calls at the end of its import, and by the command ``run``, which executes this
module."""

from __future__ import annotations

import os
import runpy
import sys


def autoload() -> None:
    """Makes PyTorch's functions compute with ptxgen until the end of the process, if ``PTXGEN_TORCH`` is on."""
    if not os.environ.get("PTXGEN_TORCH", "").strip():  # imports would cost time in every import of PyTorch
        return
    from ptxgen.settings import settings

    if settings().torch == "on":
        from ptxgen.torch.override import enable

        enable()


def main() -> None:
    """Runs the Python program ``sys.argv[1]`` with the arguments that follow; PyTorch's functions compute with
    ptxgen."""
    from ptxgen.torch.override import enable

    enable()
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
