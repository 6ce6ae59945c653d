"""Predicts with boosted trees by XGBoost's C library, which its Python package contains.

Only training imports the Python package: with SciPy, and scikit-learn where it is installed, the import takes 0.3 to 3
s of CPU time, for which the first choice of a process would wait.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import UnavailableError
from ptxgen.install_advice import install

#: the library's file in the folder ``lib`` of the package, by platform
FILES = {"darwin": "libxgboost.dylib", "win32": "xgboost.dll"}
SHAPE, VALUES = ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_float)


def xgboost() -> Any:
    """The Python package XGBoost. UnavailableError: it is not installed."""
    try:
        import xgboost as package
    except ImportError as e:  # pragma: no cover
        raise UnavailableError(f"the model needs xgboost: {install('xgboost-cpu>=3.1')}") from e
    return package


@cache
def library() -> ctypes.CDLL:
    """XGBoost's C library. UnavailableError: XGBoost is not installed."""
    spec = importlib.util.find_spec("xgboost")
    folders = [] if spec is None else spec.submodule_search_locations or []
    paths = [Path(folder, "lib", FILES.get(sys.platform, "libxgboost.so")) for folder in folders]
    path = next((p for p in paths if p.is_file()), None)
    if path is None:  # a package of another distributor has it elsewhere
        xgboost()
        from xgboost.libpath import find_lib_path

        path = find_lib_path()[0]
    loaded = ctypes.CDLL(str(path))
    loaded.XGBGetLastError.restype = ctypes.c_char_p
    return loaded


def _call(name: str, *arguments: Any) -> None:
    """Calls a function of the library. ValueError: the function failed."""
    if getattr(library(), name)(*arguments):
        raise ValueError(f"{name}: {library().XGBGetLastError().decode(errors='replace').splitlines()[0]}")


def _interface(a: NDArray[np.float32]) -> bytes:
    """The address, shape and type of a contiguous array, as XGBoost reads them."""
    return json.dumps({"data": [a.ctypes.data, True], "shape": a.shape, "typestr": a.dtype.str, "version": 3}).encode()


class TreePredictor:
    """Boosted trees with those methods of ``xgboost.Booster`` that predict and save."""

    def __init__(self, content: bytes) -> None:
        """``content``: a model of XGBoost in UBJSON, from a trusted source. ValueError: the library rejects it."""
        self._handle = ctypes.c_void_p()
        _call("XGBoosterCreate", None, ctypes.c_uint64(0), ctypes.byref(self._handle))
        weakref.finalize(self, library().XGBoosterFree, self._handle)
        self._rows = ctypes.c_void_p()
        _call("XGProxyDMatrixCreate", ctypes.byref(self._rows))
        weakref.finalize(self, library().XGDMatrixFree, self._rows)
        _call("XGBoosterLoadModelFromBuffer", self._handle, content, ctypes.c_uint64(len(content)))

    def inplace_predict(
        self,
        data: NDArray[np.float32],
        *,
        iteration_range: tuple[int, int] = (0, 0),
        base_margin: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """The prediction for each row of ``data`` by the trees of ``iteration_range``; (0, 0): by all trees.
        ``base_margin``: the prediction of the trees before, to which these trees add theirs."""
        data = np.ascontiguousarray(data, np.float32)
        first, end = iteration_range
        options = {"type": 0, "training": False, "iteration_begin": first, "iteration_end": end, "cache_id": 0}
        config = json.dumps({**options, "missing": float("nan"), "strict_shape": False})
        array, rows = _interface(data), None
        if base_margin is not None:
            rows, margin = self._rows, np.ascontiguousarray(base_margin, np.float32)
            _call("XGProxyDMatrixSetDataDense", rows, array)
            _call("XGDMatrixSetInfoFromInterface", rows, b"base_margin", _interface(margin))
        shape, rank, values = SHAPE(), ctypes.c_uint64(), VALUES()
        out = (ctypes.byref(x) for x in (shape, rank, values))
        _call("XGBoosterPredictFromDense", self._handle, array, config.encode(), rows, *out)
        return np.ctypeslib.as_array(values, (len(data),)).copy()

    def set_param(self, parameters: dict[str, object]) -> None:
        """Sets parameters of XGBoost, for example ``nthread``."""
        for name, value in parameters.items():
            _call("XGBoosterSetParam", self._handle, name.encode(), str(value).encode())

    def num_boosted_rounds(self) -> int:
        """The number of trees."""
        return self._integer("XGBoosterBoostedRounds", ctypes.c_int())

    def _integer(self, name: str, out: Any) -> int:
        _call(name, self._handle, ctypes.byref(out))
        return int(out.value)

    def save_raw(self, raw_format: str = "ubj") -> bytes:
        """The trees as XGBoost saves them: ``ubj`` or ``json``."""
        size, content, config = ctypes.c_uint64(), ctypes.c_void_p(), json.dumps({"format": raw_format}).encode()
        _call("XGBoosterSaveModelToBuffer", self._handle, config, ctypes.byref(size), ctypes.byref(content))
        assert content.value is not None
        return ctypes.string_at(content.value, size.value)
