"""Entry point of ``python -m ptxgen``."""

import os
import sys

from ptxgen.install_advice import install_extra

# idle threads of OpenBLAS wait for 2^26 cycles by default, a tenth of the processor time of a short command
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")

try:
    from ptxgen.cli import load_program, main

    load_program()
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] == "ptxgen":
        raise
    print(f"error: {error.name} is not installed for {sys.executable}; {install_extra('')}", file=sys.stderr)
    sys.exit(3)
except KeyboardInterrupt:  # main() answers later ones
    print("error: interrupted", file=sys.stderr)
    sys.exit(130)

main()
