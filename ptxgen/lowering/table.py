"""Tables of words that kernels read from device memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Table:
    """A table that an argument of a launch refers to. Equal tables are stored once."""

    def words(self) -> NDArray[np.uint32]:
        """The table, in any shape."""
        raise NotImplementedError
