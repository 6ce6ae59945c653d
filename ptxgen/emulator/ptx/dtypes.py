"""The types of PTX, and the NumPy types that hold their values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

#: NumPy type of the values of each 8-bit floating-point type
FP8: dict[str, Any] = {"e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2)}

#: NumPy type of each PTX type. Arrays of packed types have two elements per lane; registers of 8-bit floating-point
#: types hold the bits.
DTYPES: dict[str, Any] = {
    "pred": np.dtype(bool),
    "b8": np.dtype("<u1"),
    "u8": np.dtype("<u1"),
    "s8": np.dtype("<i1"),
    "b16": np.dtype("<u2"),
    "u16": np.dtype("<u2"),
    "s16": np.dtype("<i2"),
    "b32": np.dtype("<u4"),
    "u32": np.dtype("<u4"),
    "s32": np.dtype("<i4"),
    "tf32": np.dtype("<u4"),
    "b64": np.dtype("<u8"),
    "u64": np.dtype("<u8"),
    "s64": np.dtype("<i8"),
    "f16": np.dtype("<f2"),
    "f32": np.dtype("<f4"),
    "f64": np.dtype("<f8"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16x2": np.dtype("<f2"),
    "bf16x2": np.dtype(ml_dtypes.bfloat16),
    "u16x2": np.dtype("<u2"),
    "s16x2": np.dtype("<i2"),
    "f32x2": np.dtype("<f4"),
    **{name: np.dtype("<u1") for name in FP8},
    **{f"{name}x2": np.dtype("<u2") for name in FP8},
}


PACKED = {"f16x2", "bf16x2", "u16x2", "s16x2", "f32x2"}
SIGNED = {"s8", "s16", "s32", "s64"}
FLOATS = {"f16", "bf16", "f32", "f64"}
SPECIAL_PREDICATES = {"%is_explicit_cluster"}
SPECIALS_64 = {"clock64", "globaltimer", "current_graph_exec"}
