"""The address map: where each state space lies among generic addresses."""

from __future__ import annotations

#: address of the arena's first byte
GLOBAL_BASE = 1 << 32
#: generic addresses of the other spaces; each window is 4 GiB long
SHARED_WINDOW = 1 << 40
LOCAL_WINDOW = 2 << 40
PARAM_WINDOW = 3 << 40
WINDOW = 1 << 32
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
#: a generic address of local memory holds the number of its thread above this many bits of offset
LOCAL_BITS = 20
LOCAL_END = PARAM_WINDOW
#: where a block's shared memory begins; addresses below belong to nobody
SHARED_BASE = 1024
RANK = 24
OFFSET = (1 << RANK) - 1
#: most blocks of a cluster
MOST = 16
