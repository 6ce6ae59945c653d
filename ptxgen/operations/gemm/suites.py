"""Suites of GEMMs: the paper's Table 4, squares, language models, odd, batched and small shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.epilogue_ops import split_epilogue
from ptxgen.problem.operation import Case, Suite, by_name
from ptxgen.problem.public_shapes import public_shapes
from ptxgen.problem.registry import from_dict


@dataclass(frozen=True)
class ColumnMajor:
    """A product in column-major terms, as in BLAS and in the paper's Table 4. ``a_t``, ``b_t``: True if A, or B, is
    transposed."""

    m: int
    n: int
    k: int
    a_t: bool
    b_t: bool

    def row_major(self, **fields: Any) -> Gemm:
        """The same product on the same memory. Column-major C is row-major Cᵀ = op(B)ᵀ·op(A)ᵀ: A and B are exchanged,
        and so are M and N; transpositions do not change."""
        layout = "NT"[self.b_t] + "NT"[self.a_t]
        return Gemm(self.n, self.m, self.k, layout, **fields)

    def __str__(self) -> str:
        return f"{self.m},{self.n},{self.k} {'NT'[self.a_t]}{'NT'[self.b_t]}"


#: fields that a change from column-major to row-major terms exchanges
_EXCHANGED = {"m": "n", "lda": "ldb", "stride_a": "stride_b", "aligned_a": "aligned_b"}
_EXCHANGED |= {b: a for a, b in _EXCHANGED.items()}
_EXCHANGED_OPS = {"bias_row": "bias_column", "bias_column": "bias_row"}


def from_column_major(values: dict[str, Any]) -> Case:
    """The case of a GEMM whose fields ``values`` are in column-major terms: the row-major product on the same memory. A
    and B, M and N, and the biases of rows and columns are exchanged. InputError: the fields describe no problem."""
    out = {_EXCHANGED.get(name, name): value for name, value in values.items()}
    if isinstance(layout := out.get("layout"), str):
        out["layout"] = layout[::-1]
    if isinstance(epilogue := out.get("epilogue"), str):
        out["epilogue"] = ",".join(_EXCHANGED_OPS.get(name, name) for name in split_epilogue(epilogue))
    p = from_dict(out)
    assert isinstance(p, Gemm)
    return Case(p.key(), p, ColumnMajor(p.n, p.m, p.k, p.orders[1] == "T", p.orders[0] == "T"))


def _isaac(**fields: Any) -> Iterator[Case]:
    """The products of the paper's Table 4."""
    rows = [(f"LINPACK {n}", ColumnMajor(n, n, n, False, True)) for n in (512, 1024, 2048)]
    for a_t, way in ((False, "F"), (True, "B")):
        rows += [(f"DeepBench-{way} {n}", ColumnMajor(2560, n, 2560, a_t, False)) for n in (16, 32, 64, 128)]
    rows += [(f"ICA {n}", ColumnMajor(n, n, 60000, False, True)) for n in (32, 64, 256)]
    rows += [(f"LAPACK {n}", ColumnMajor(n, n, 32, False, True)) for n in (4096, 3456, 896)]
    return (Case(name, row.row_major(**fields), row) for name, row in rows)


def _square(**fields: Any) -> Iterator[Case]:
    return (Case(f"square {n}", Gemm(n, n, n, **fields)) for n in (256 << i for i in range(7)))


#: M, N, K and layout of squares, skinny and deep shapes, and outer products. No extent is a multiple of 8, so rows of
#: contiguous matrices are not aligned for vector accesses
_ODD = (
    (255, 257, 511, "NN"),
    (511, 513, 509, "TN"),
    (1021, 1019, 1031, "TT"),
    (777, 1001, 1333, "NT"),
    (2047, 2049, 2045, "NN"),
    (4095, 4097, 4099, "NT"),
    (17, 2561, 2559, "NN"),
    (35, 2561, 2559, "NT"),
    (129, 2561, 2559, "NN"),
    (1, 4097, 4099, "NT"),
    (31, 33, 59999, "TN"),
    (255, 257, 59999, "TN"),
    (4095, 4093, 31, "TN"),
    (897, 895, 33, "TN"),
)


def _odd(**fields: Any) -> Iterator[Case]:
    return (Case(f"odd {m}x{n}x{k}", Gemm(m, n, k, layout, **fields)) for m, n, k, layout in _ODD)


#: weights of public language models, output features x input features: fused QKV projection, attention output, fused
#: gate and up projections, down projection
_MODELS = {
    "Llama 3 8B": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    "Llama 3 70B": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
    "Qwen2.5 7B": ((4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944)),
}
_TOKENS = (1, 16, 128, 4096)  #: decoding with three batch sizes, and a prompt


def _llm(**fields: Any) -> Iterator[Case]:
    """Linear layers of language models: activations of the tokens times transposed weights."""
    for model, weights in _MODELS.items():
        for (n, k), part in zip(weights, ("qkv", "out", "gate+up", "down"), strict=True):
            for m in _TOKENS:
                yield Case(f"{model} {part} {m}", Gemm(m, n, k, "NT", **fields))


#: one shape of each layout and type in the paper, small enough for the emulated device
_SMALL = (
    ("square", 64, 64, 64, "TN"),
    ("skinny", 16, 64, 64, "NN"),
    ("skinny, transposed", 16, 64, 64, "NT"),
    ("deep", 16, 16, 256, "TN"),
    ("outer product", 96, 96, 16, "TN"),
)


def _small(**fields: Any) -> Iterator[Case]:
    return (Case(name, Gemm(m, n, k, layout, **fields)) for name, m, n, k, layout in _SMALL)


#: items, M, N, K, layout
_BATCHES = (
    ("tiny", 65536, 8, 8, 8, "NN"),
    ("small", 4096, 32, 32, 32, "NN"),
    ("small", 256, 64, 64, 64, "NN"),
    ("scores", 512, 512, 512, 64, "NT"),
    ("values", 512, 512, 64, 512, "NN"),
    ("scores", 64, 2048, 2048, 128, "NT"),
    ("values", 64, 2048, 128, 2048, "NN"),
    ("decoding scores", 256, 8, 4096, 128, "NT"),
    ("decoding values", 256, 8, 128, 4096, "NN"),
    ("deep", 8, 128, 128, 8192, "NT"),
    ("few", 4, 1024, 1024, 1024, "NN"),
)


def _batch(**fields: Any) -> Iterator[Case]:
    """Batches of contiguous items. In attention, an item is a head."""
    for name, items, m, n, k, layout in _BATCHES:
        p = Gemm(m, n, k, layout, **{"batch": items, **fields})
        yield Case(f"{name} {p.batch} x {m}x{n}x{k}", p)


def _public(**fields: Any) -> Iterator[Case]:
    return (Case(x.name, Gemm(**{**x.fields, **fields})) for x in public_shapes("gemm"))


#: weights of DeepSeek-V3's linear layers, output features x input features; numbers of tokens
_DEEPSEEK = ((2112, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048))
_DEEPSEEK_TOKENS = (64, 128, 4096)


def _deepseek_fp8(**fields: Any) -> Iterator[Case]:
    """Products of e4m3 activations, with scales of 1x128 that are stored transposed, and weights with scales of
    128x128."""
    scaled = {"dtype": "e4m3", "block_a": "1x128t", "block_b": "128x128", **fields}
    for n, k in _DEEPSEEK:
        for m in _DEEPSEEK_TOKENS:
            yield Case(f"{n}x{k}, {m} tokens", Gemm(m, n, k, "NT", **scaled))


SUITES = by_name(
    Suite("isaac", "Table 4 of the paper: LINPACK, DeepBench, ICA, LAPACK", _isaac, layouts=True),
    Suite("square", "squares from 256 to 16384", _square),
    Suite("llm", "linear layers of public language models, decoding and prompts", _llm, layouts=True),
    Suite("odd", "shapes like those of Table 4, no extent a multiple of 8", _odd, layouts=True),
    Suite("batch", "small GEMMs, attention scores and values with heads as items, deep GEMMs", _batch, layouts=True),
    Suite("public", "shapes that people reported as slow, each with its own type and batch", _public, layouts=True),
    Suite("deepseek_fp8", "linear layers of DeepSeek-V3 in fp8 with scales of blocks", _deepseek_fp8, layouts=True),
    Suite("small", "one shape of each form, small enough for the emulated device", _small, layouts=True),
)


def cells(row: dict[str, Any]) -> list[Any]:
    p, paper = row["problem"], row.get("column_major")
    column_major = str(ColumnMajor(**paper)) if paper else ""
    others = (p[field] if p[field] != p["dtype"] else "" for field in ("compute", "out"))
    items = f"{p['batch']} x " if p["batch"] != 1 else ""
    blocks = f"scales of {p['block_a']} and {p['block_b']}" if p.get("block_a") else ""
    epilogue = ", ".join(filter(None, (blocks, p["epilogue"])))
    return [column_major, f"{items}{p['m']},{p['n']},{p['k']}", p["layout"], p["dtype"], *others, epilogue]


TITLES = ("column-major", "M,N,K", "layout", "dtype", "compute", "out", "epilogue")
