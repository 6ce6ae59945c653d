"""The address map: the windows of the state spaces among generic addresses."""

from __future__ import annotations

#: address of the first byte of global memory
GLOBAL_BASE = 1 << 32
#: first generic addresses of the other state spaces; each window is 4 GiB long
SHARED_WINDOW = 1 << 40
LOCAL_WINDOW = 2 << 40
PARAM_WINDOW = 3 << 40
WINDOW = 1 << 32
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
#: number of bits of the offset in a generic address of local memory; the bits above them hold the thread number
LOCAL_BITS = 20
LOCAL_END = PARAM_WINDOW
#: first address of a block's shared memory; lower addresses are invalid
SHARED_BASE = 1024
#: an address in .shared::cluster holds the rank of the block in the bits from this one on
RANK = 24
OFFSET = (1 << RANK) - 1
#: largest number of blocks of a cluster
MAX_CLUSTER_BLOCKS = 16
#: largest size in bytes of the shared memory of a block
SHARED_LIMIT = 232448
