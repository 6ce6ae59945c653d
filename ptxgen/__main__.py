"""``python -m ptxgen`` is the command ``ptxgen``."""

from ptxgen.cli import main

main()
