"""Entry point of ``python -m ptxgen``."""

import sys

try:
    from ptxgen.cli import main
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] == "ptxgen":
        raise
    print(
        f"error: {error.name} is not installed for {sys.executable}; use the checkout's .venv, or pip install .",
        file=sys.stderr,
    )
    sys.exit(3)

main()
