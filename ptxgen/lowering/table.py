"""Tables of words that kernels read from device memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Table:
    """A table to which an argument of a launch refers. Equal tables are stored once."""

    def words(self) -> NDArray[np.uint32]:
        """The words of the table, in any shape."""
        raise NotImplementedError
