"""The text of a CUDA C++ kernel of a task, with tiles of 128×128, 8×8 results per thread, and stages of A and B in
shared memory.

Threads copy the stages by cp.async.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxgen.errors import DtypeError
from ptxgen.expr.c_text import C_TYPES, Expressions, literal
from ptxgen.expr.node import Node
from ptxgen.expr.value_types import type_of
from ptxgen.operations.task.baselines.parts import Parts, Read, identity_of, order_of
from ptxgen.operations.task.text_blocks import filled

NAME = "task"  #: the name of the kernel
TILE, DEPTH, THREADS = 128, 16, 256
STAGES = 3
#: the largest bytes of shared memory that a launch may have without an attribute
SHARED_LIMIT = 48 << 10
TYPES = {**C_TYPES, "f16": "__half", "bf16": "__nv_bfloat16"}
_UNARY = {"abs": "fabs", **{name: name for name in ("sqrt", "rsqrt", "exp", "exp2", "log", "log2", "erf", "tanh")}}
#: (operator, type) -> function of CUDA; minimum and maximum of floats ignore NaN
FUNCTIONS = {
    **{(op, "f32"): f"{name}f" for op, name in _UNARY.items()},
    **{(op, "f64"): name for op, name in _UNARY.items()},
    **{
        (op, element_type): f"f{op[-3:]}{'f' * (element_type == 'f32')}"
        for op in ("min", "max", "fmin", "fmax")
        for element_type in ("f32", "f64")
    },
    ("pow", "f32"): "powf",
    ("pow", "f64"): "pow",
    **{("fma", element_type): f"fma{'f' * (element_type == 'f32')}" for element_type in ("f32", "f64")},
    **{(op, element_type): op for op in ("min", "max") for element_type in ("s32", "u32")},
    ("rcp", "f32"): "__frcp_rn",
    ("rcp", "f64"): "__drcp_rn",
    ("abs", "s32"): "abs",
    ("popcount", "u32"): "__popc",
}
SOURCE = """\
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#undef INFINITY
#undef NAN
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
typedef «type_a» A_t;
typedef «type_b» B_t;
typedef «type» acc_t;
enum { BM = 128, BN = 128, BK = 16, STAGES = «stages», GROUP = 16 };

template <class T> struct alignas(4 * sizeof(T)) Four { T x[4]; };

static __device__ __forceinline__ void copy_16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from));
}

// 16 rows of a tile of 128 columns
template <class T> static __device__ __forceinline__ void copy_tile(T* to, const T* from, size_t pitch) {
    constexpr int in_row = BM * sizeof(T) / 16, rows = «threads» / in_row, each = 16 / sizeof(T);
    const int row = threadIdx.x / in_row, column = threadIdx.x % in_row * each;
    #pragma unroll
    for (int r = 0; r < BK; r += rows)
        if (rows <= BK || row < BK) copy_16(to + (row + r) * BM + column, from + (size_t)(row + r) * pitch + column);
}

extern "C" __global__ void __launch_bounds__(«threads», 2)
«name»(const A_t* A, const B_t* B, «type_c»* C, «arrays»int M, int N, int K, int MP, int NP, int KP) {
    __shared__ __align__(16) A_t shared_a[STAGES][BK * BM];
    __shared__ __align__(16) B_t shared_b[STAGES][BK * BN];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int tiles_m = MP / BM, tiles_n = NP / BN, id = blockIdx.x, group = id / (GROUP * tiles_n);
    const int rows = min(GROUP, tiles_m - group * GROUP);
    const int block_row = (group * GROUP + id % (GROUP * tiles_n) % rows) * BM;
    const int block_column = id % (GROUP * tiles_n) / rows * BN;
    const int at_m = warp % 4 * 32 + lane / 8 * 4, at_n = warp / 4 * 64 + lane % 8 * 4;
    const int count = KP / BK;
    acc_t sums[8][8];
    #pragma unroll
    for (int i = 0; i < 8; i++)
        #pragma unroll
        for (int j = 0; j < 8; j++) sums[i][j] = «identity»;
    #define ROW(n) (block_row + at_m + (n & 3) + (n >> 2) * 16)
    #define COLUMN(n) (block_column + at_n + (n & 3) + (n >> 2) * 32)
    «vectors»
    #pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < count) {
            copy_tile(shared_a[s], A + (size_t)s * BK * MP + block_row, MP);
            copy_tile(shared_b[s], B + (size_t)s * BK * NP + block_column, NP);
        }
        asm volatile("cp.async.commit_group;");
    }
    for (int t = 0; t < count; t++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        if (t + STAGES - 1 < count) {
            const int s = (t + STAGES - 1) % STAGES;
            copy_tile(shared_a[s], A + (size_t)(t + STAGES - 1) * BK * MP + block_row, MP);
            copy_tile(shared_b[s], B + (size_t)(t + STAGES - 1) * BK * NP + block_column, NP);
        }
        asm volatile("cp.async.commit_group;");
        const A_t* stage_a = shared_a[t % STAGES];
        const B_t* stage_b = shared_b[t % STAGES];
        #pragma unroll
        for (int step = 0; step < BK; step++) {
            A_t fragment_a[8];
            B_t fragment_b[8];
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                const Four<A_t> x = *(const Four<A_t>*)(stage_a + step * BM + at_m + h * 16);
                const Four<B_t> y = *(const Four<B_t>*)(stage_b + step * BN + at_n + h * 32);
                #pragma unroll
                for (int n = 0; n < 4; n++) { fragment_a[h * 4 + n] = x.x[n]; fragment_b[h * 4 + n] = y.x[n]; }
            }
            «along_k»
            #pragma unroll
            for (int i = 0; i < 8; i++)
                #pragma unroll
                for (int jj = 0; jj < 8; jj++) {
                    const int j = i & 1 ? 7 - jj : jj;  // a fragment is used again by the next step
                    const A_t a = fragment_a[i];
                    const B_t b = fragment_b[j];
                    acc_t& accum = sums[i][j];
                    «step»
                }
        }
    }
    #pragma unroll
    for (int i = 0; i < 8; i++)
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            Four<«type_c»> out;
            #pragma unroll
            for (int n = 0; n < 4; n++) {
                const int j = h * 4 + n;
                const acc_t accum = sums[i][j];
                «elements»
                «value»
                out.x[n] = «result»;
            }
            *(Four<«type_c»>*)(C + (size_t)ROW(i) * NP + COLUMN(h * 4)) = out;
        }
}
"""


def type_name(element_type: str) -> str:
    """CUDA's name of a value type. DtypeError: CUDA has no such type."""
    if element_type not in TYPES:
        raise DtypeError(f"type is {element_type}; it must be one of {', '.join(TYPES)}")
    return TYPES[element_type]


def _text(read: Read) -> str:
    """The name of a variable in the loop over the results of a thread."""
    if read.indexed:
        return {"i": "ROW(i)", "j": "COLUMN(j)", "k": "(t * BK + step)"}.get(read.name, read.name)
    if read.name in ("A", "B"):
        return read.name.lower()
    spatial = [axis for axis in "ij" if axis in read.axes]
    return f"{read.name}_{''.join(order_of(read.axes))}{f'[{spatial[0]}]' if len(spatial) == 1 else ''}"


def _load(read: Read) -> list[str]:
    """The lines that load the elements of an array that a thread reads: one for each of its rows or columns, or a
    single one."""
    name, c_type, order = _text(read).partition("[")[0], type_name(read.node.type), order_of(read.axes)
    if order == ("k",):
        return [f"const {c_type} {name} = __ldg({read.name} + t * BK + step);"]
    if order == ("i", "j"):
        return [f"const {c_type} {name} = {read.name}[(size_t)ROW(i) * NP + COLUMN(j)];"]
    at, pitch = ("ROW(n)", "MP") if "i" in order else ("COLUMN(n)", "NP")
    if "k" in order:
        at = f"(size_t)(t * BK + step) * {pitch} + {at}"
    return [f"{c_type} {name}[8];", "#pragma unroll", f"for (int n = 0; n < 8; n++) {name}[n] = {read.name}[{at}];"]


def _value_of(x: Node, text: Expressions) -> str:
    """The text of the result in the type of C, rounded to nearest."""
    if x.op == "cast" and x.type in ("f16", "bf16"):
        return f"{type_name(x.type)}({text(x.arguments[0])})"
    return f"({type_name(x.type)})({text(x)})"


def source_of(parts: Parts) -> str:
    """The source text of the kernel ``NAME``. DtypeError: C++ lacks an operator or a type, or the stages are too
    large."""
    p = parts.problem
    uses = {u.role: u for u in p.roles.uses}
    size = sum(TILE * DEPTH * (type_of(uses[name].dtype).bits // 8) for name in "AB")
    stages = min(STAGES, SHARED_LIMIT // size)
    if stages < 2:
        raise DtypeError(f"A and B are {uses['A'].dtype} and {uses['B'].dtype}; elements must have at most 4 bytes")
    names = parts.names(_text, parts.reduced, parts.value)
    step = Expressions([parts.reduced], "", names, FUNCTIONS)
    value = parts.value
    inner = value.arguments[0] if value.op == "cast" and value.type in ("f16", "bf16") else value
    result = Expressions([inner], "", names, FUNCTIONS)
    others = {r.name: r for r in parts.others}
    in_steps, in_value = parts.arrays(parts.reduced), parts.arrays(parts.value)

    def loads(reads: list[Read], keep: Callable[[tuple[str, ...]], bool]) -> list[str]:
        return [line for r in dict.fromkeys(reads) if keep(order_of(r.axes)) for line in _load(r)]

    blocks = {
        "vectors": loads([*in_steps, *in_value], lambda axes: len(axes) == 1 and "k" not in axes),
        "along_k": loads(in_steps, lambda axes: "k" in axes),
        "step": [
            *loads(in_steps, lambda axes: axes == ("i", "j")),
            *step.definitions,
            f"accum = {step(parts.reduced)};",
        ],
        "elements": loads(in_value, lambda axes: axes == ("i", "j")),
        "value": result.definitions,
    }
    words = {
        "name": NAME,
        "threads": str(THREADS),
        "stages": str(stages),
        "type_a": type_name(uses["A"].dtype),
        "type_b": type_name(uses["B"].dtype),
        "type_c": type_name(p.out),
        "type": type_name(parts.algebra.type),
        "identity": literal(identity_of(parts)),
        "arrays": "".join(f"const {type_name(r.node.type)}* {name}, " for name, r in others.items()),
        "result": _value_of(value, result),
    }
    return filled(SOURCE, blocks, words)
