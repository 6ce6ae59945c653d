"""Tests that need an NVIDIA GPU."""

from ptxgen.settings import GPU_DRIVER, LIBRARIES, settings

_named = GPU_DRIVER.fullmatch(settings().driver)
#: the libraries of the driver under test: the one that PTXGEN_DRIVER names, else each. A missing one is an error
TESTED = (_named[1],) if _named and _named[1] in LIBRARIES else LIBRARIES
