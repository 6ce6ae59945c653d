"""Golden kernels: their PTX is committed, so that review shows the effect of a template change. ``--update-golden``
rewrites it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.key_table import KeyTable
from ptxgen.codegen.launches.bit_packing import PackedBits
from ptxgen.codegen.mixed_tiles import MixedTiles
from ptxgen.codegen.nearest_pairs import NearestPairs
from ptxgen.codegen.pack_bits import PackBits
from ptxgen.codegen.pair_products import PairProducts
from ptxgen.codegen.preparation import Preparation
from ptxgen.codegen.render import render, render_pairs, render_preparation, render_records
from ptxgen.codegen.top_records import TopRecords
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.tile_kernel import kernel_plan
from ptxgen.operations.grouped.tlp_policy import TILES, TileSet
from ptxgen.operations.spmm.device_statistics import CsrStatistics
from ptxgen.operations.spmm.narrow_indices import NarrowIndices
from ptxgen.operations.spmm.sampled_products import SampledProducts
from ptxgen.operations.spmm.transposition import GatherValues, SymmetricPlaces, TransposeCsr
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from ptxgen.runtime.assemble import assemble

FOLDER = Path(__file__).parent / "ptx"

#: file name (family and feature) -> device, problem, configuration; every template occurs at least once
GOLDEN = {
    "simt_square": ("h200", "gemm 512,512,512 TN f32", "vec_a=4 vec_b=4 vec_c=4"),
    "simt_deferred_sts": (
        "h200",
        "gemm 512,512,512 NT f32",
        "cp_async_a=0 cp_async_b=0 deferred_sts=1 vec_a=4 vec_b=4 vec_c=4",
    ),
    "simt_kmajor_smem": (
        "h200",
        "gemm 64,64,256 NT f32",
        "ms=4 ns=4 ml=32 nl=32 u=32 kl=2 kmajor_smem_a=1 kmajor_smem_b=1 vec_a=4 vec_b=4 vec_c=4",
    ),
    "simt_scalar_cp_async": ("h200", "gemm 64,64,256 NN f32", "ms=4 ns=4 ml=32 nl=64 vec_b=4 vec_c=4 ks=2"),
    "simt_flag_red": (
        "h200",
        "gemm 16,256,512 NN f32",
        "ms=4 ns=4 ml=16 nl=128 kg=4 splitk=flag_red kmajor_smem_a=1 vec_a=4 vec_b=4 vec_c=4 lanes_m=2",
    ),
    "simt_memset_red": (
        "h200",
        "gemm 64,64,512 TN f32",
        "ms=4 ns=4 ml=32 nl=32 kg=4 splitk=memset_red vec_a=4 vec_b=4 vec_c=4",
    ),
    "simt_workspace": (
        "h200",
        "gemm 64,64,512 TN f32 deterministic=1",
        "ms=4 ns=4 ml=32 nl=32 kg=4 splitk=workspace vec_a=4 vec_b=4 vec_c=4",
    ),
    "simt_shared_pointer": ("h200", "gemm 256,64,512 TN f32", "ml=256 nl=64 u=32 stages=2 vec_a=1 vec_b=1 vec_c=1"),
    "simt_predicate": (
        "h200",
        "gemm 61,67,59 TT f32",
        "ms=4 ns=4 ml=32 nl=32 bounds=predicate cp_async_a=0 cp_async_b=0",
    ),
    "simt_no_bounds": ("h200", "gemm 128,128,64 TN f32", "bounds=none vec_a=4 vec_b=4 vec_c=4 raster_group=8"),
    "simt_f64": (
        "h200",
        "gemm 128,128,64 TN f64",
        "ms=4 ns=4 ml=32 nl=64 u=8 vec_a=2 vec_b=2 vec_c=2 store_policy=streaming",
    ),
    "simt_complex": (
        "h200",
        "gemm 64,64,64 NC c64",
        "ms=4 ns=4 ml=32 nl=32 u=16 kmajor_smem_b=1 vec_a=1 vec_b=2 vec_c=2",
    ),
    "simt_complex_workspace": (
        "h200",
        "gemm 32,32,512 CN c128 deterministic=1",
        "ms=2 ns=2 ml=32 nl=32 u=16 kg=4 kl=2 splitk=workspace",
    ),
    "mma_complex": ("h200", "gemm 64,64,64 NC c128", "family=mma ms=16 ns=16 ml=32 nl=32 u=8"),
    "simt_f64_flag_red": (
        "h200",
        "gemm 32,32,4096 TN f64",
        "ms=4 ns=4 ml=32 nl=32 u=16 kg=8 kl=2 splitk=flag_red vec_a=2 vec_b=2 vec_c=2",
    ),
    "simt_f16": (
        "h200",
        "gemm 128,128,64 NN f16",
        "ms=8 ns=4 ml=64 nl=64 cp_async_a=0 cp_async_b=0 vec_a=8 vec_b=8 vec_c=8",
    ),
    "simt_f16_hfma2": ("h200", "gemm 128,128,64 TN f16 compute=f16", "vec_a=8 vec_b=8 vec_c=8 epilogue_smem=1"),
    "simt_global_fragments": (
        "h200",
        "gemm 96,128,3 TN bf16 epilogue=bias_column,relu",
        "ms=2 ns=4 ml=16 nl=128 lanes_m=1 u=4 stages=0 cp_async_a=0 cp_async_b=0 fragment_prefetch=0 vec_a=2 vec_b=4"
        " vec_c=4 store_policy=streaming",
    ),
    "simt_step": (
        "h200",
        "task 64,64,61 NN f32 text=A:f32[i,k];B:f32[k,j];input0:f32[k];input1:f32[i];input2:f32[i,j];scalar0:f32;accum:f32;"
        "where(i,j){reduce(k){accum=max(accum,(A[i,k]+B[k,j])*input0[k]-input1[i]);}C[i,j]=accum*scalar0+input2[i,j];} algebra=0",
        "ms=4 ns=4 ml=32 nl=32 u=8 kl=2 kg=2 splitk=workspace vec_b=4 vec_c=4",
    ),
    "simt_step_positions": (
        "h200",
        "task 64,64,61 NN f32 text=A:f32[i,k];B:f32[k,j];accum:s32;where(i,j){reduce(k){accum=argmin(accum,(A[i,k]+B[k,j]"
        ",k));}C[i,j]=accum;}",
        "ms=2 ns=2 ml=16 nl=16 u=8 ks=2 vec_a=1",
    ),
    "simt_select": (
        "h200",
        "task 64,61,61 NN f32 text=A:f32[i,k];B:f32[k,j];input0:f32[i];scalar0:f32;accum:f32;where(i,j)when(i<j)"
        "{reduce(k){accum+=A[i,k]*B[k,j];}accum>scalar0?C.add(accum*input0[i],i,j);} capacity=100",
        "ms=2 ns=2 ml=16 nl=16 u=8 ks=2 vec_a=1",
    ),
    "simt_select_slices": (
        "h200",
        "task 64,61,61 NN f32 text=A:f32[i,k];B:f32[k,j];input0:s32[i];input1:s32[j];accum:f32;where(i,j)"
        "when(input0[i]==input1[j]){reduce(k){accum+=abs(A[i,k]-B[k,j]);}accum>0?C.add(accum);} capacity=100",
        "ms=2 ns=2 ml=16 nl=16 u=8 kg=3 splitk=workspace",
    ),
    "simt_mirrored": (
        "h200",
        "task 61,61,61 NT f32 text=A:f32[i,k];input0:f32[j];accum:f32;where(i,j){reduce(k){accum+=abs(A[i,k]-A[j,k]);}"
        "C[i,j]=accum+input0[j];}",
        "ms=2 ns=2 ml=16 nl=16 u=8 kg=3 splitk=workspace",
    ),
    "simt_mirrored_select": (
        "h200",
        "task 61,61,61 NT f32 text=A:f32[i,k];scalar0:f32;accum:f32;where(i,j){reduce(k){accum+=max(A[i,k],A[j,k]);}"
        "accum>scalar0?C.add(accum,i,j);} capacity=100",
        "ms=2 ns=2 ml=16 nl=16 u=8",
    ),
    "simt_mirrored_row_reduce": (
        "h200",
        "task 61,61,61 NT f32 text=A:f32[i,k];accum:f32;where(i,j)when(i!=j){reduce(k){accum+=abs(A[i,k]-A[j,k]);}"
        "C[i]argmin=accum;}",
        "ms=2 ns=2 ml=16 nl=16 u=8",
    ),
    "mma_select": (
        "h200",
        "task 64,64,64 TN f16 text=A:f16[k,i];B:f16[k,j];accum:f32;where(i,j)when(abs(i-j)<40)"
        "{reduce(k){accum+=A[k,i]*B[k,j];}accum>0?C.add(f16(accum),i);} capacity=100",
        "family=mma ms=16 ns=16 ml=32 nl=32 u=32 vec_a=8 vec_b=8 epilogue_smem=1",
    ),
    "simt_row_reduce": (
        "h200",
        "task 64,64,61 NN f32 text=A:f32[i,k];B:f32[k,j];accum:f32;where(i,j)when(i<j){reduce(k){accum+=A[i,k]*B[k,j];}"
        "C[i]argmax=accum;}",
        "ms=4 ns=4 ml=32 nl=32 u=8 kl=2 vec_b=4 vec_c=4",
    ),
    "simt_column_reduce": (
        "h200",
        "task 64,64,61 NN f32 text=A:f32[i,k];B:f32[k,j];accum:f32;where(i,j){reduce(k){accum=max(accum,A[i,k]+B[k,j]);}"
        "C[j]logsumexp=accum;}",
        "ms=4 ns=4 ml=32 nl=32 u=8 kg=2 splitk=workspace vec_b=4 vec_c=4",
    ),
    "simt_pairs": (
        "h200",
        "task 64,61,61 NN s16 text=A:s16[i,k];B:s16[k,j];accum:s16;where(i,j){reduce(k){accum=max(accum,A[i,k]+B[k,j]);}"
        "C[i,j]=accum;}",
        "ms=4 ns=4 ml=32 nl=32 u=8 ks=2 cp_async_a=0 cp_async_b=0 vec_a=1 vec_b=1 vec_c=1 column_pairs=1",
    ),
    "simt_scatter": (
        "h200",
        "task 64,64,61 NN f32 text=A:f32[i,k];B:f32[k,j];input0:s32[i];input1:u8[j];input2:s32[i];accum:f32;where(i,j)"
        "when((input0[i]==input1[j])&(i!=j)){reduce(k){accum+=A[i,k]*B[k,j];}C.put(accum,input2[i],j);} groups=70,64"
        " sorted_keys=1",
        "ms=4 ns=4 ml=32 nl=32 u=8 kg=2 splitk=workspace vec_b=4",
    ),
    "simt_aggregate": (
        "h200",
        "task 64,64,61 NN f32 text=A:f32[i,k];B:f32[k,j];input0:s32[i];input1:s32[j];accum:f32;where(i,j){reduce(k){"
        "accum+=A[i,k]*B[k,j];}C[input0[i],input1[j]]=max(C[input0[i],input1[j]],accum);} groups=4,7",
        "ms=4 ns=4 ml=32 nl=32 u=8 vec_b=4 vec_c=4",
    ),
    "simt_step_types": (
        "h200",
        "task 64,64,60 NN s8 text=A:s8[i,k];B:u16[k,j];input0:f16[k];input1:u8[i,j];accum:f32;"
        "where(i,j){reduce(k){accum+=abs(f32(A[i,k])-f32(B[k,j]))*f32(input0[k]);}C[i,j]=s16(accum)+s16(input1[i,j]);}",
        "ms=4 ns=4 ml=32 nl=32 u=8 stages=2 cp_async_a=0 cp_async_b=0 vec_a=4 vec_b=8 vec_c=4",
    ),
    "wgmma_value": (
        "h200",
        "task 64,64,64 NN f16 text=A:f16[i,k];B:f16[k,j];input0:f32[i];input1:f16[i,j];scalar0:f32;accum:f32;where(i,j)"
        "{reduce(k){accum+=A[i,k]*B[k,j];}C[i,j]=f16(max(accum*scalar0,f32(input1[i,j]))+input0[i]);}",
        "family=wgmma ml=64 nl=16 u=64 stages=2 vec_c=2",
    ),
    "wgmma_staged_value": (
        "h200",
        "task 64,64,64 NN f16 text=A:f16[i,k];B:f16[k,j];input0:f32[i];input1:f16[i,j];input2:bf16[j];accum:f32;where(i,j)"
        "{reduce(k){accum+=A[i,k]*B[k,j];}C[i,j]=f16(max(accum+f32(input2[j]),f32(input1[i,j]))+input0[i]);}",
        "family=wgmma ml=64 nl=16 u=64 stages=2 epilogue_smem=1 epilogue_subtiles=2",
    ),
    "wgmma_row_reduce": (
        "h200",
        "task 64,64,64 NN f16 text=A:f16[i,k];B:f16[k,j];input0:f32[i];accum:f32;where(i,j)"
        "{reduce(k){accum+=f32(A[i,k])*f32(B[k,j]);}C[i]argmin=input0[i]-accum;}",
        "family=wgmma ml=64 nl=16 u=64 stages=2 vec_c=1",
    ),
    "wgmma_aggregate": (
        "h200",
        "task 64,64,64 NN f16 text=A:f16[i,k];B:f16[k,j];input0:s32[i];input1:s32[j];scalar0:f32;accum:f32;where(i,j)"
        "{reduce(k){accum+=f32(A[i,k])*f32(B[k,j]);}C[input0[i],input1[j]]+=scalar0<accum;} groups=4,7",
        "family=wgmma ml=16 nl=64 u=64 stages=2 vec_c=1 transposed_mma=1",
    ),
    "wgmma_mean_slices": (
        "h200",
        "task 64,64,64 NT bf16 text=A:bf16[i,k];B:bf16[j,k];input0:f32[j];accum:f32;where(i,j)"
        "{reduce(k){accum=mean(accum,A[i,k]*B[j,k]);}C[i,j]=accum-input0[j];}",
        "family=wgmma ml=8 nl=64 u=32 stages=2 kg=2 splitk=workspace transposed_mma=1",
    ),
    "wgmma_select": (
        "h200",
        "task 64,64,64 TN f16 text=A:f16[k,i];B:f16[k,j];scalar0:f32;accum:f32;where(i,j)when(i<j)"
        "{reduce(k){accum+=A[k,i]*B[k,j];}accum>scalar0?C.add(accum,i,j);} capacity=100",
        "family=wgmma ml=128 nl=16 u=64 stages=2 math_warpgroups=2 pingpong=1 persistent=1",
    ),
    "wgmma_listed_tiles": (
        "h200",
        "task 296,264,40 NN f16 text=A:f16[i,k];B:f16[k,j];input0:s32[i];input1:u8[j];accum:f32;"
        "where(i,j)when(input0[i]==s32(input1[j])){reduce(k){accum+=f32(A[i,k])*f32(B[k,j]);}C[i]+=accum;}"
        " sorted_keys=1",
        "family=wgmma ml=64 nl=32 u=32 stages=2 vec_c=1 cluster_x=2 persistent=1 listed_tiles=1",
    ),
    "wgmma_stream": (
        "h200",
        "gemm 328,136,2048 NT f16",
        "family=wgmma ml=64 nl=64 u=64 stages=3 persistent=1 stream_waves=1 cluster_x=2",
    ),
    "mma_stream": (
        "h200",
        "gemm 984,1072,2992 NN f64",
        "family=mma ms=16 ns=32 ml=32 nl=32 u=16 kl=2 vec_a=2 vec_b=2 vec_c=2 stream_k=1",
    ),
    "simt_listed_tiles": (
        "h200",
        "task 300,260,20 NN f32 text=A:f32[i,k];B:f32[k,j];input0:s32[i];input1:u8[j];accum:f32;"
        "where(i,j)when(input0[i]==s32(input1[j])){reduce(k){accum+=A[i,k]*B[k,j];}C[i]+=accum;} sorted_keys=1",
        "ms=4 ns=4 ml=32 nl=32 u=16 vec_a=1 vec_b=1 vec_c=1 listed_tiles=1",
    ),
    "simt_sm75": ("t4", "gemm 128,128,64 NN f32", "cp_async_a=0 cp_async_b=0 vec_a=4 vec_b=4 vec_c=4 stages=2"),
    "simt_grouped": (
        "h200",
        "grouped 33,17,20+8x64,64,64+5,0,3 NN f32 epilogue=bias_column,relu",
        "ms=4 ns=4 ml=32 nl=32 raster_group=8",
    ),
    "simt_grouped_parts": (
        "h200",
        "grouped 33,17,20+8x64,64,64 NN f32",
        "ms=8 ns=8 ml=64 nl=64 u=8 stages=2 cp_async_a=0 cp_async_b=0 vec_a=1 vec_b=1 vec_c=1 epilogue_smem=1 l2_prefetch=1",
    ),
    "simt_grouped_slices": (
        "h200",
        "grouped 33,17,20+8x64,64,640 NN f32",
        "ms=4 ns=4 ml=32 nl=32 u=8 kl=2 kg=3 splitk=last_cta vec_a=1 vec_b=1 vec_c=1",
    ),
    "simt_grouped_stream": (
        "h200",
        "grouped 33,17,20+8x64,64,640 NN f32",
        "ms=4 ns=4 ml=32 nl=32 u=8 kl=2 stream_k=1 vec_a=1 vec_b=1 vec_c=1",
    ),
    "simt_jagged_rows": ("h200", "grouped 8x100,96,64 NN f32 jagged=m", "ms=4 ns=4 ml=32 nl=32 vec_b=4 vec_c=4"),
    "mma_aggregate_ordered": (
        "h200",
        "task 64,64,61 NN f16 text=A:f16[i,k];B:f16[k,j];input0:s32[i];input1:s32[j];accum:f32;where(i,j){reduce(k){"
        "accum+=f32(A[i,k])*f32(B[k,j]);}C[input1[j],input0[i]]+=accum;} groups=4,7 deterministic=1",
        "family=mma ms=16 ns=16 ml=32 nl=32 u=32 cp_async_a=0 cp_async_b=0 vec_a=1 vec_b=1 vec_c=4",
    ),
    "resident_rows_nearest": (
        "h200",
        "task 300,260,3 NT f32 text=A:f32[i,k];B:f32[k,j];accum:f32;where(i,j){reduce(k){"
        "accum+=(A[i,k]-B[k,j])*(A[i,k]-B[k,j]);}C[i]argmin=accum;}",
        "family=resident_rows resident_k=3 thread_rows=2 row_warps=2 tile_columns=64 column_parts=2",
    ),
    "resident_rows_bounds": (
        "h200",
        "task 300,260,3 NT f32 text=A:f32[i,k];B:f32[k,j];accum:f32;where(i,j){reduce(k){"
        "accum+=(A[i,k]-B[k,j])*(A[i,k]-B[k,j]);}C[i]argmin=accum;}",
        "family=resident_rows resident_k=3 thread_rows=2 row_warps=1 columns_at_once=2 tile_columns=64 lower_bounds=1",
    ),
    "resident_rows_density": (
        "h200",
        "task 300,260,2 TN f64 text=A:f64[i,k];B:f64[k,j];scalar0:f64;accum:f64;where(i,j)when(i<j){reduce(k){"
        "accum=max(accum,A[i,k]+B[k,j]);}C[i]+=accum*scalar0;}",
        "family=resident_rows resident_k=2 thread_rows=1 row_warps=1 columns_at_once=2 tile_columns=32",
    ),
    "resident_rows_list": (
        "h200",
        "task 300,260,3 NT f32 text=A:f32[i,k];B:f32[k,j];input0:f32[i];accum:f32;where(i,j)when(i!=j){reduce(k){"
        "accum+=(A[i,k]-B[k,j])*(A[i,k]-B[k,j]);}accum<input0[i]?C.add(accum,i,j);} capacity=1000",
        "family=resident_rows resident_k=3 thread_rows=2 row_warps=2 columns_at_once=2 tile_columns=64 column_parts=2",
    ),
    "resident_rows_bounded_list": (
        "h200",
        "task 300,260,2 NT f32 text=A:f32[i,k];B:f32[k,j];input0:f32[i];accum:f32;where(i,j){reduce(k){"
        "accum+=(A[i,k]-B[k,j])*(A[i,k]-B[k,j]);}accum<input0[i]?C.add(i,j);} capacity=1000",
        "family=resident_rows resident_k=2 thread_rows=1 row_warps=1 columns_at_once=2 tile_columns=32 lower_bounds=1",
    ),
    "resident_rows_best": (
        "h200",
        "task 300,260,2 NT f32 text=A:f32[i,k];B:f32[k,j];accum:f32;where(i,j)when(i!=j){reduce(k){"
        "accum+=abs(A[i,k]-B[k,j]);}C[i].top(5,accum,j);}",
        "family=resident_rows resident_k=2 thread_rows=1 row_warps=1 columns_at_once=2 tile_columns=64",
    ),
    "resident_rows_bounded_best": (
        "h200",
        "task 300,260,3 NT f32 text=A:f32[i,k];B:f32[k,j];accum:f32;where(i,j){reduce(k){"
        "accum+=(A[i,k]-B[k,j])*(A[i,k]-B[k,j]);}C[i].bottom(10,accum,j);}",
        "family=resident_rows resident_k=3 thread_rows=2 row_warps=2 columns_at_once=1 tile_columns=64 lower_bounds=1",
    ),
    "quantized_nibbles": (
        "h200",
        "quantized_gemm 16,256,1024 NT f16 weights=u4 group=128 zeros=1",
        "family=quantized_mma ms=4 ns=2 ml=16 nl=32 u=512 kl=2 vec_a=8 vec_b=16 vec_c=4",
    ),
    "quantized_strided_nibbles": (
        "h200",
        "quantized_gemm 7,256,1024 NT f16 weights=u4 group=128 zeros=1",
        "family=quantized_mma ms=2 ns=4 ml=8 nl=64 u=256 kl=2 vec_a=8 vec_b=16 vec_c=4",
    ),
    "quantized_wgmma": (
        "h200",
        "quantized_gemm 64,512,1024 NT f16 weights=u4 group=64 zeros=1",
        "family=wgmma ml=64 nl=128 u=128 stages=4 transposed_mma=1 math_warpgroups=2 epilogue_smem=1",
    ),
    "quantized_wgmma_fast": (
        "h200",
        "quantized_gemm 64,512,1056 NT f16 weights=u4 group=32 zeros=1 precision=fast",
        "family=wgmma ml=64 nl=64 u=64 stages=4 transposed_mma=1",
    ),
    "quantized_wgmma_rows": (
        "h200",
        "quantized_gemm 64,512,1024 NT bf16 weights=s8",
        "family=wgmma ml=64 nl=128 u=128 stages=4 transposed_mma=1 math_warpgroups=2 epilogue_smem=1 persistent=1",
    ),
    "quantized_bytes": (
        "a100",
        "quantized_gemm 3,250,251 NT f16",
        "family=quantized_mma ms=2 ns=2 ml=8 nl=16 u=64 kl=1 vec_b=1 kg=2 splitk=workspace fragment_prefetch=0 stages=0",
    ),
    "quantized_bytes_bf16": (
        "h200",
        "quantized_gemm 16,256,512 NT bf16 weights=u8 group=64 zeros=1",
        "family=quantized_mma ms=2 ns=4 ml=8 nl=32 u=64 kl=1 stages=0 vec_a=8 vec_b=16 vec_c=4",
    ),
    "quantized_jagged": (
        "h200",
        "quantized_jagged 8x9,256,1024 NT f16 weights=u4 group=128 zeros=1",
        "family=quantized_mma ms=4 ns=2 ml=16 nl=32 u=512 kl=2 vec_a=8 vec_b=16 vec_c=4",
    ),
    "quantized_jagged_wgmma": (
        "h200",
        "quantized_jagged 8x50,512,1024 NT bf16 weights=s4 group=128",
        "family=wgmma ml=64 nl=128 u=128 stages=4 transposed_mma=1 math_warpgroups=2 epilogue_smem=1 persistent=1",
    ),
    "private_groups_rows": (
        "h200",
        "task 300,260,0 NN f32 text=A:f32[i,k];B:f32[k,j];input0:s32[i];input1:f32[i,j];accum:f32;where(i,j){reduce(k)"
        "{accum+=A[i,k]*B[k,j];}C[input0[i],j]+=input1[i,j];} groups=9,260",
        "family=private_groups copy_warps=2 array_vec=2 loads=4",
    ),
    "private_groups_columns": (
        "h200",
        "task 300,260,0 NN f32 text=A:f32[i,k];B:f32[k,j];input0:u8[j];input1:f16[i,j];accum:f32;where(i,j){reduce(k)"
        "{accum+=A[i,k]*B[k,j];}C[i,input0[j]]=max(C[i,input0[j]],f32(input1[i,j]));} groups=300,40",
        "family=private_groups copy_warps=2 array_vec=4 warp_rows=2 loads=2 kg=2",
    ),
    "wgmma_jagged_rows": (
        "h200",
        "grouped 8x100,96,64 NT bf16 jagged=m epilogue=bias_column",
        "family=wgmma ml=64 nl=32 u=64 stages=3 persistent=1 epilogue_smem=1",
    ),
    "wgmma_jagged_k": (
        "h200",
        "grouped 96,64,100+96,64,30 TN bf16 jagged=k",
        "family=wgmma ml=64 nl=32 u=64 stages=3 persistent=1 epilogue_smem=1 cluster_x=2",
    ),
    "wgmma_list_scales": (
        "h200",
        "grouped 96,64,200+40,80,30 NT e4m3 out=bf16 block_a=1x128t block_b=128x128",
        "family=wgmma ml=64 nl=32 u=128 stages=3 persistent=1",
    ),
    "wgmma_expert_scales": (
        "h200",
        "grouped 96,64,200+40,64,200 TN e4m3 out=bf16 jagged=m aligned_a=1 block_a=1x128t block_b=128x128",
        "family=wgmma ml=64 nl=32 u=128 stages=3 persistent=1 operand_path_a=pack operand_path_b=pack",
    ),
    "wgmma_transposed_items": (
        "h200",
        "grouped 96,64,200+40,80,30 TT e4m3 out=bf16 block_a=1x128t block_b=128x128",
        "family=wgmma ml=64 nl=32 u=128 stages=3 persistent=1",
    ),
    "wgmma_jagged_scales": (
        "h200",
        "grouped 96,64,200+96,64,30 NT e4m3 out=bf16 jagged=k block_a=1x128t block_b=1x128",
        "family=wgmma ml=64 nl=32 u=64 stages=3 persistent=1",
    ),
    "mma_jagged_columns": (
        "h200",
        "grouped 96,64,100+96,64,30 TN bf16 jagged=k",
        "family=mma ms=32 ns=32 ml=64 nl=64 u=32 vec_a=8 vec_b=8 vec_c=4 epilogue_smem=1",
    ),
    "winograd": (
        "h200",
        "conv N=2,C=16,H=7,W=9,K=16,R=3,S=3,pad=1 NCHW f32 epilogue=bias,relu",
        "family=winograd ms=4 ns=4 ml=32 nl=32 u=8 stages=2 vec_a=4 vec_b=4 vec_c=4",
    ),
    "winograd_images_adjacent": (
        "h200",
        "conv N=8,C=16,H=8,W=8,K=16,R=3,S=3,pad=1 CHWN f32 epilogue=bias,relu",
        "family=winograd ms=4 ns=4 ml=32 nl=32 u=8 stages=2 vec_a=4 vec_b=4 vec_c=4",
    ),
    "winograd_weight_grad": (
        "h200",
        "conv N=2,C=16,H=7,W=9,K=20,R=3,S=3,pad=1 NHWC f32 direction=weight_grad",
        "family=winograd ms=4 ns=4 ml=32 nl=32 u=8 kg=2 stages=2 vec_a=4 vec_b=4 vec_c=4 splitk=workspace",
    ),
    "winograd_4x4": (
        "h200",
        "conv N=2,C=32,H=7,W=9,K=32,R=3,S=3,pad=1 NCHW f32 epilogue=bias,relu",
        "family=winograd_4x4 ms=4 ns=4 ml=32 nl=32 u=8 stages=2 vec_a=4 vec_b=4 vec_c=4",
    ),
    "winograd_4x4_weight_grad": (
        "h200",
        "conv N=2,C=32,H=11,W=10,K=36,R=3,S=3,pad=1 NHWC f32 direction=weight_grad",
        "family=winograd_4x4 ms=4 ns=4 ml=32 nl=32 u=8 kg=2 stages=2 vec_a=4 vec_b=4 vec_c=4 splitk=workspace",
    ),
    "mma_f16": (
        "h200",
        "gemm 512,512,512 NT f16",
        "family=mma ms=32 ns=32 ml=64 nl=64 u=32 vec_a=8 vec_b=8 vec_c=4 epilogue_smem=1",
    ),
    "mma_f64_flag_red": (
        "h200",
        "gemm 64,64,4096 TN f64",
        "family=mma ms=32 ns=16 ml=32 nl=32 u=8 kg=8 splitk=flag_red vec_a=2 vec_b=2 vec_c=2",
    ),
    "mma_s8": (
        "rtx4090",
        "gemm 128,128,256 TN s8",
        "family=mma ms=16 ns=16 ml=32 nl=32 u=128 kl=2 vec_a=16 vec_b=16 vec_c=4",
    ),
    "mma_block_scales": (
        "rtx4090",
        "gemm 128,128,512 NT e4m3 block_a=1x128t block_b=128x128",
        "family=mma ms=32 ns=16 ml=64 nl=32 u=128 kl=2 stages=2 vec_a=16 vec_b=16 vec_c=2",
    ),
    "simt_packed": (
        "h200",
        "gemm 61,67,133 TT f32",
        "ms=4 ns=4 ml=32 nl=32 vec_a=4 vec_b=4 operand_path_a=pack operand_path_b=pack pdl=within_launch",
    ),
    "mma_packed": (
        "h200",
        "gemm 61,67,133 NN f32 compute=tf32",
        "family=mma ms=16 ns=16 ml=32 nl=32 u=16 operand_path_a=pack operand_path_b=pack vec_a=4 vec_b=4",
    ),
    "wgmma_square": (
        "h200",
        "gemm 4096,4096,4096 NT bf16",
        "family=wgmma transposed_mma=1 ml=64 nl=128 math_warpgroups=2 u=64 stages=3 epilogue_smem=1 cluster_x=2 persistent=1 raster_group=8 epilogue_subtiles=2",
    ),
    "wgmma_stored_sums": (
        "h200",
        "gemm 512,512,256 NT bf16 epilogue=bias_column,store_sums,gelu",
        "family=wgmma ml=128 nl=64 u=64 stages=3 epilogue_smem=1 persistent=1 epilogue_subtiles=2 epilogue_buffers=2",
    ),
    "wgmma_small_m": (
        "h200",
        "gemm 16,2560,2560 NN f16",
        "family=wgmma ml=64 tma_rows=16 nl=32 u=64 stages=4 epilogue_smem=1 l2_evict_first=b",
    ),
    "wgmma_last_cta": (
        "h200",
        "gemm 32,40,60000 TN f16",
        "family=wgmma transposed_mma=1 ml=32 nl=64 u=64 stages=3 cluster_k=2 kg=3 splitk=last_cta epilogue_smem=1",
    ),
    "wgmma_fused_epilogue": (
        "h200",
        "gemm 512,512,512 TN f16 epilogue=scale_rows,bias_column,residual,gelu",
        "family=wgmma ml=64 nl=64 u=64 math_warpgroups=2 pingpong=1 persistent=1 stages=4 epilogue_smem=1 epilogue_subtiles=2",
    ),
    "wgmma_column_sums": (
        "h200",
        "gemm 512,512,512 NN bf16 epilogue=gelu_grad,sum_columns",
        "family=wgmma ml=64 nl=64 u=64 stages=4 epilogue_smem=1 epilogue_subtiles=2",
    ),
    "wgmma_row_sums": (
        "h200",
        "gemm 512,512,512 TN bf16 epilogue=sum_a",
        "family=wgmma ml=64 nl=64 u=64 stages=4 epilogue_smem=1",
    ),
    "wgmma_gated": (
        "h200",
        "gemm 512,512,512 NT bf16 epilogue=swiglu",
        "family=wgmma ml=64 nl=32 u=64 stages=4 epilogue_smem=1",
    ),
    "wgmma_block_scales": (
        "h200",
        "gemm 512,576,512 NT e4m3 batch=2 block_a=1x128 block_b=128x128",
        "family=wgmma ml=64 nl=24 u=128 stages=4",
    ),
    "wgmma_promotion_buffers": (
        "h200",
        "gemm 512,512,512 NT e4m3",
        "family=wgmma ml=64 nl=16 u=256 stages=3 promotion_buffers=2",
    ),
    "wgmma_exchanged_scales": (
        "h200",
        "gemm 512,512,512 NT e4m3 block_a=1x128 block_b=1x128",
        "family=wgmma ml=64 nl=16 u=128 stages=4",
    ),
    "wgmma_bf16x3": (
        "h200",
        "gemm 4096,4095,4097 NN f32 compute=f32_bf16x6",
        "family=wgmma ml=64 nl=16 math_warpgroups=1 u=32 stages=2",
    ),
    "wgmma_im2col": (
        "h200",
        "conv N=16,C=16,H=24,W=240,K=32,R=3,S=3,pad=1 NHWC f16",
        "family=wgmma ml=128 nl=32 u=32 math_warpgroups=2 stages=3 epilogue_smem=1 cluster_k=2",
    ),
    "wgmma_phases": (
        "h200",
        "conv N=16,C=64,H=56,W=56,K=64,R=3,S=3,stride=2,pad=1 NHWC f16 direction=input_grad",
        "family=wgmma ml=128 nl=64 u=64 stages=4 epilogue_smem=1 persistent=1 raster_group=8 math_warpgroups=2 pingpong=1",
    ),
    "wgmma_row_taps": (
        "h200",
        "conv N=16,C=64,H=56,W=56,K=64,R=3,S=3,pad=1 NHWC f16",
        "family=wgmma ml=128 nl=64 u=64 stages=4 epilogue_smem=1 persistent=1 math_warpgroups=2 row_taps=3",
    ),
    "wgmma_row_parts": (
        "h200",
        "conv N=16,C=512,H=56,W=56,K=512,R=3,S=3,stride=2,pad=1,groups=32 NHWC f16",
        "family=wgmma ml=128 nl=64 u=64 stages=4 epilogue_smem=1 persistent=1 math_warpgroups=2 row_taps=2 operand_path_b=pack",
    ),
    "wgmma_group_phases": (
        "h200",
        "conv N=16,C=512,H=56,W=56,K=512,R=3,S=3,stride=2,pad=1,groups=32 NHWC f16 direction=input_grad",
        "family=wgmma ml=128 nl=64 u=64 stages=4 epilogue_smem=1 math_warpgroups=2 operand_path_b=pack",
    ),
    "wgmma_interleaved_phases": (
        "h200",
        "conv N=8,C=64,H=56,W=56,K=64,R=3,S=3,stride=2,pad=1 NCHW bf16 direction=input_grad",
        "family=wgmma ml=64 nl=64 u=64 stages=3 epilogue_smem=1 operand_path_a=pack operand_path_b=pack"
        " interleave_phases=1",
    ),
    "wgmma_merged_phases": (
        "h200",
        "conv N=8,C=3,H=64,W=64,K=64,R=7,S=7,stride=2,pad=3 NHWC f16 direction=input_grad",
        "family=wgmma ml=128 nl=16 u=64 stages=4 math_warpgroups=2 pingpong=1 persistent=1 operand_path_b=pack",
    ),
    "wgmma_pack_channels": (
        "h200",
        "conv N=16,C=32,H=12,W=120,K=64,R=3,S=3,pad=1 NCHW f16",
        "family=wgmma ml=64 nl=64 u=32 stages=3 vec_c=2 operand_path_a=pack operand_path_b=pack",
    ),
    "wgmma_resident_b": (
        "h200",
        "conv N=32,C=144,H=56,W=56,K=24,R=1,S=1 NHWC f16",
        "family=wgmma ml=128 nl=24 u=64 stages=6 epilogue_smem=1 persistent=1 math_warpgroups=2 pingpong=1 l2_evict_first=a resident_b=1",
    ),
    "wgmma_pack_pixels": (
        "h200",
        "conv N=32,C=3,H=224,W=224,K=64,R=7,S=7,stride=2,pad=3 NHWC f16",
        "family=wgmma ml=128 nl=64 u=32 stages=4 epilogue_smem=1 persistent=1 raster_group=8 operand_path_a=pack operand_path_b=pack",
    ),
    "wgmma_wgrad": (
        "h200",
        "conv N=8,C=64,H=56,W=56,K=64,R=3,S=3,pad=1 NHWC f16 direction=weight_grad",
        "family=wgmma ml=64 nl=64 u=64 stages=4 epilogue_smem=1 cluster_x=2 kg=2 splitk=last_cta",
    ),
    "wgmma_wgrad_tiled": (
        "h200",
        "conv N=16,C=128,H=28,W=32,K=128,R=3,S=1,pad=1x0 NCHW bf16 direction=weight_grad",
        "family=wgmma ml=128 nl=128 u=64 stages=4 math_warpgroups=2 kg=4 splitk=last_cta",
    ),
    "wgmma_wgrad_by_image": (
        "h200",
        "conv N=16,C=128,H=14,W=14,K=96,R=3,S=3,stride=2,pad=1 NCHW f32 compute=tf32 direction=weight_grad",
        "family=wgmma ml=96 nl=128 u=32 stages=4 math_warpgroups=2 transposed_mma=1 kg=2 splitk=workspace vec_c=1"
        " operand_path_a=pack operand_path_b=pack",
    ),
    "wgmma_group_filters": (
        "h200",
        "conv N=16,C=512,H=14,W=14,K=512,R=3,S=3,pad=1,groups=32 NHWC f16 epilogue=bias",
        "family=wgmma ml=128 nl=64 u=64 stages=6 math_warpgroups=2 epilogue_smem=1 operand_path_b=pack",
    ),
    "wgmma_group_blocks": (
        "h200",
        "conv N=16,C=512,H=14,W=14,K=512,R=3,S=3,stride=2,pad=1,groups=32 NHWC f16 direction=weight_grad",
        "family=wgmma ml=64 nl=16 u=32 stages=3 vec_c=2",
    ),
    "wgmma_tiled_images": (
        "h200",
        "conv N=64,C=128,H=28,W=28,K=128,R=3,S=3,pad=1,stride=2 CHWN f16 direction=input_grad",
        "family=wgmma ml=128 nl=128 u=64 stages=4 math_warpgroups=2 pingpong=1 persistent=1 vec_c=2",
    ),
    "wgmma_rs_tf32": (
        "h200",
        "gemm 128,64,512 NT f32 compute=tf32",
        "family=wgmma ml=64 nl=16 u=32 stages=3 math_warpgroups=1 kg=2 splitk=workspace vec_c=2",
    ),
    "wgmma_pack_rows": (
        "h200",
        "gemm 1021,1019,1031 TN e4m3",
        "family=wgmma ml=64 nl=64 u=128 stages=4 operand_path_a=pack operand_path_b=pack",
    ),
    "skinny_fma": (
        "h200",
        "gemm 1,4096,4096 NT f16",
        "family=skinny long_n=1 ms=1 ml=1 ns=2 nl=16 lanes_long=4 kl=2 u=256 vec_a=8 vec_b=8 vec_c=4",
    ),
    "skinny_mma": (
        "h200",
        "gemm 8,4096,4096 NT e4m3",
        "family=skinny long_n=1 mma_m16=1 ms=2 ml=8 ns=2 nl=32 lanes_long=8 kl=4 u=512 vec_a=16 vec_b=16 vec_c=4",
    ),
    "skinny_unaligned": (
        "h200",
        "gemm 1,4097,4099 NT f16",
        "family=skinny long_n=1 ms=1 ml=1 ns=2 nl=16 lanes_long=4 kl=2 u=256 vec_b=8",
    ),
    "skinny_mma_unaligned": (
        "h200",
        "gemm 4,4097,4099 NT bf16",
        "family=skinny long_n=1 mma_m16=1 ms=2 ml=8 ns=2 nl=16 lanes_long=8 kl=2 u=128 vec_b=8",
    ),
    "skinny_s8_flag_red": (
        "h200",
        "gemm 4096,4,4096 TN s8",
        "family=skinny ms=4 ml=64 ns=4 nl=4 lanes_long=16 kl=2 u=16 vec_a=4 vec_b=4 vec_c=4 kg=4 splitk=flag_red fragment_prefetch=0",
    ),
    "wgmma_rs_s8": (
        "h200",
        "gemm 512,512,1024 NN s8",
        "family=wgmma ml=64 nl=64 u=64 stages=3 math_warpgroups=1 vec_c=2 transposed_mma=1",
    ),
    "wgmma_realign": (
        "h200",
        "gemm 509,509,509 TN f16",
        "family=wgmma ml=64 nl=64 u=32 stages=4 math_warpgroups=1 epilogue_smem=1 operand_path_a=realign operand_path_b=realign",
    ),
    "wgmma_scatter": (
        "h200",
        "conv N=16,C=32,H=12,W=120,K=64,R=3,S=3,pad=1 NCHW f16",
        "family=wgmma ml=64 nl=64 u=32 stages=3 epilogue_smem=1 operand_path_a=pack operand_path_b=pack",
    ),
    "simt_conv": (
        "h200",
        "conv N=8,C=16,H=28,W=28,K=32,R=3,S=3,pad=1 NCHW f32",
        "ms=4 ns=4 ml=32 nl=32 cp_async_a=0 cp_async_b=0 bounds=predicate",
    ),
    "mma_column_sums": (
        "h200",
        "gemm 512,512,512 NN bf16 epilogue=relu_grad,sum_columns",
        "family=mma ms=16 ns=32 ml=32 nl=64 u=32 stages=2 vec_a=8 vec_b=8 vec_c=2",
    ),
    "mma_row_sums": (
        "h200",
        "gemm 512,512,512 TN bf16 epilogue=sum_a",
        "family=mma ms=16 ns=32 ml=32 nl=64 u=32 stages=2 vec_a=8 vec_b=8 vec_c=2",
    ),
    "mma_fused_epilogue": (
        "h200",
        "gemm 512,512,512 TN f16 epilogue=scale_rows,bias_column,residual,gelu",
        "family=mma ms=32 ns=32 ml=64 nl=64 u=32 vec_a=8 vec_b=8 vec_c=4",
    ),
    "depthwise_forward": (
        "h200",
        "conv N=8,C=64,H=56,W=56,K=64,R=3,S=3,pad=1,groups=64 NHWC f16",
        "family=depthwise strip_results=4 block_rows=4 block_lanes=32 vec_lane=2",
    ),
    "depthwise_patch": (
        "h200",
        "conv N=32,C=144,H=56,W=56,K=144,R=3,S=3,pad=1,groups=144 NHWC f16",
        "family=depthwise strip_results=2 strip_columns=2 block_lanes=64 vec_lane=4",
    ),
    "depthwise_feature_maps": (
        "h200",
        "conv N=2,C=40,H=7,W=7,K=40,R=3,S=3,pad=1,groups=40 NCHW bf16 direction=input_grad epilogue=bias,residual",
        "family=depthwise strip_results=4 block_lanes=64 feature_map_bytes=4096",
    ),
    "depthwise_feature_maps_stride": (
        "t4",
        "conv N=2,C=40,H=9,W=7,K=40,R=3,S=3,stride=2,pad=1,groups=40 NCHW f16 direction=input_grad",
        "family=depthwise strip_results=4 block_lanes=64 feature_map_bytes=4096",
    ),
    "depthwise_wgrad": (
        "h200",
        "conv N=8,C=64,H=56,W=56,K=64,R=3,S=3,pad=1,groups=64 NHWC f16 direction=weight_grad",
        "family=depthwise strip_results=4 block_rows=4 block_lanes=32 vec_lane=2 kg=8 splitk=workspace",
    ),
    "depthwise_wgrad_feature_maps": (
        "h200",
        "conv N=8,C=40,H=7,W=7,K=40,R=3,S=3,pad=1,groups=40 NCHW bf16 direction=weight_grad",
        "family=depthwise strip_results=4 block_lanes=64 feature_map_bytes=4096 kg=4 splitk=workspace",
    ),
    "tap_products": (
        "h200",
        "conv N=2,C=24,H=19,W=37,K=2,R=3,S=3,pad=1 NCHW f16 epilogue=bias,relu",
        "family=tap_products tile_height=8 tile_width=16 block_threads=128 thread_pixels=2 u=8 filter_channels=64",
    ),
    "tap_products_mma": (
        "h200",
        "conv N=256,C=128,H=19,W=19,K=1,R=3,S=3,pad=1 NHWC f16",
        "family=tap_products tile_height=10 tile_width=19 block_threads=128 vec_channel=8 u=64 tap_mma=1",
    ),
    "row_split_f16": (
        "h200",
        "spmm 4096,512,4096 NN f16 pattern=even:nnz=65536",
        "family=row_split row_lanes=8 lane_vectors=2 nonzeros_in_flight=2 block_groups=16 vec_b=4",
    ),
    "row_split_f64": (
        "h200",
        "spmm 4096,33,4096 NN f64 pattern=even:nnz=65536",
        "family=row_split row_lanes=32 nonzeros_in_flight=4 block_groups=4",
    ),
    "row_split_parts": (
        "h200",
        "spmm 4096,512,4096 NN f16 pattern=even:nnz=65536 calls=1000",
        "family=row_split row_lanes=16 nonzeros_in_flight=4 index_loads=shuffle row_order=length longest_part=256 vec_b=8",
    ),
    "row_split_groups": (
        "h200",
        "spmm 4096,16,4096 NN f32 pattern=even:nnz=65536",
        "family=row_split row_lanes=4 nonzero_groups=8 nonzeros_in_flight=4 vec_b=4",
    ),
    "row_split_graphs": (
        "h200",
        "spmm 4096,64,4096 NN f32 pattern=uniform:degree=4 groups=64",
        "family=row_split row_lanes=16 vec_b=4",
    ),
    "shared_slab_f16": (
        "h200",
        "spmm 2048,512,512 NN f16 pattern=even:nnz=65536",
        "family=shared_slab vec_b=8",
    ),
    "shared_slab_tiles_f32": (
        "h200",
        "spmm 4096,132,4096 NN f32 pattern=bernoulli:density=0.01 calls=1000",
        "family=shared_slab slab_columns=32 tile_k=512 k_tiles=several tile_buffers=2 c_rows=128 block_warps=32"
        " nonzeros_staged=64 vec_b=4",
    ),
    "vector_mma_f16": (
        "h200",
        "spmm 4096,512,4096 NN f16 pattern=bernoulli:density=0.01 calls=1000",
        "family=vector_mma blocks_in_flight=2 vec_b=8",
    ),
    "vector_mma_tf32": (
        "h200",
        "spmm 4096,33,4096 NN f32 compute=tf32 pattern=bernoulli:density=0.01 calls=1000",
        "family=vector_mma lane_vectors=2 blocks_in_flight=2 columns_ahead=0 row_order=length longest_part=16",
    ),
    "compressed_tiles_f16": (
        "h200",
        "spmm 4096,8,4096 NN f16 pattern=bernoulli:density=0.5 calls=1000",
        "family=compressed_tiles tile_warps=8 stages=3 vec_b=8",
    ),
    "compressed_tiles_unaligned": (
        "h200",
        "spmm 4096,13,4096 NN bf16 pattern=bernoulli:density=0.3 calls=1000",
        "family=compressed_tiles b_columns=16 tile_warps=8 stages=2",
    ),
    "compressed_tiles_vector": (
        "h200",
        "spmm 4096,1,4096 NN f16 pattern=bernoulli:density=0.5 calls=1000",
        "family=compressed_tiles tile_warps=8 stages=3 vector_b=1",
    ),
    "compressed_tiles_offsets": (
        "h200",
        "spmm 4096,8,4096 NN f16 pattern=bernoulli:density=0.01 calls=1000",
        "family=compressed_tiles tile_index=offsets tile_warps=8 stages=2 vec_b=8",
    ),
    "compressed_tiles_offsets_f32": (
        "h200",
        "spmm 4096,1,4096 NN f32 pattern=bernoulli:density=0.01 calls=1000",
        "family=compressed_tiles tile_index=offsets b_columns=1 tile_warps=8 stages=2",
    ),
    "compressed_tiles_f32": (
        "h200",
        "spmm 4096,2,4096 NN f32 pattern=bernoulli:density=0.3 calls=1000",
        "family=compressed_tiles b_columns=2 tile_warps=8 stages=2 vec_b=2",
    ),
    "tca_f16": (
        "h200",
        "spmm 4096,512,4096 NN f16 pattern=even:nnz=65536 calls=1000",
        "family=tca vec_b=8",
    ),
    "tca_unaligned": (
        "h200",
        "spmm 4096,33,4096 NN bf16 pattern=even:nnz=65536 calls=1000",
        "family=tca row_barriers=row",
    ),
    "mma_dense": (
        "h200",
        "spmm 512,64,512 NN f16 pattern=bernoulli:density=0.3 calls=1000",
        "family=mma ms=32 ns=32 ml=64 nl=64 u=32 vec_a=8 vec_b=8 vec_c=8 epilogue_smem=1",
    ),
    "row_split_wide": (
        "h200",
        "spmm 4096,16,4096 NT f32 pattern=even:nnz=65536 index=i64 layout_c=T",
        "family=row_split row_lanes=4 nonzeros_in_flight=2",
    ),
    "mma_words": (
        "h200",
        "task 4096,4096,128 NT u32 text=A:u32[i,k];B:u32[j,k];accum:u32;where(i,j){reduce(k){accum+=popcount(A[i,k]^B[j,k]);}C[i,j]=accum;}",
        "family=mma ms=32 ns=32 ml=64 nl=64 u=16 vec_a=4 vec_b=4 vec_c=4",
    ),
    "mma_truth_values": (
        "h200",
        "task 4096,4096,4096 NN u8 text=A:u8[i,k];B:u8[k,j];accum:s32;where(i,j){reduce(k){accum|=s32((A[i,k]!=0)&(B[k,j]!=0));}C[i,j]=u8(accum!=0);}",
        "family=mma ms=32 ns=32 ml=64 nl=64 u=16 vec_a=4 vec_b=4 vec_c=4",
    ),
    "simt_batch": (
        "h200",
        "gemm 64,64,256 TN f32 batch=16",
        "ms=4 ns=4 ml=32 nl=32 kg=2 splitk=workspace vec_a=4 vec_b=4 vec_c=4",
    ),
}
NEAREST_ROWS = "A:f32[i,k];B:f32[j,k];accum:f32;where(i,j){reduce(k){accum+=(A[i,k]-B[j,k])*(A[i,k]-B[j,k]);}C[i]=min(C[i],accum);}"
LISTED = "A:f32[i,k];B:f32[j,k];t:f32;where(i,j){reduce(k){accum+=A[i,k]*B[j,k];}accum>t?C.add(accum,i,j);}"
MIXED = parse("grouped 64,64,64+32,64,48 NN f32")
assert isinstance(MIXED, GroupedGemm)
#: file -> a kernel that handles, calls of tasks or schedules run, and that no configuration chooses
HANDLES: dict[str, Preparation | PairProducts | NearestPairs | TopRecords | KeyTable | MixedTiles] = {
    "prepare_csr_statistics": CsrStatistics("i64"),
    "prepare_narrow_indices": NarrowIndices(),
    "prepare_transpose_csr": TransposeCsr(),
    "prepare_symmetric_places": SymmetricPlaces(),
    "prepare_gather_values": GatherValues(2),
    "prepare_pack_bits": PackBits(PackedBits(kmajor=True, vec=1, padded=32)),
    "sampled_products_rows": replace(
        SampledProducts.of("f32", 128, 4, rows=True, scaled=False), synced=256, threads=1024
    ),
    "sampled_products_f16": SampledProducts.of("f16", 90, 2, rows=False, scaled=True),
    "sampled_products_wide": SampledProducts.of("f64", 1000, 2, rows=False, scaled=False),
    "nearest_pairs": NearestPairs(lower(Task(64, 64, 64, "NT", text=NEAREST_ROWS)), device("h200")),
    "pair_products": PairProducts(lower(Task(64, 64, 64, "NT", text=LISTED, capacity=64)), device("h200")),
    "key_table": KeyTable(64, True, device("h200")),
    "key_table_bytes": KeyTable(8, False, device("t4")),
    "top_records": TopRecords("f32", "", True, False, device("h200")),
    "top_records_rows": TopRecords("f64", "j", False, True, device("h200")),
    "grouped_mixed_tiles": kernel_plan(MIXED, device("h200"), TileSet((TILES[0], TILES[4]))),
    "grouped_item_grid": kernel_plan(MIXED, device("t4"), TileSet((TILES[1], TILES[3])), grid=True),
}
#: file of a preparation -> (golden of a plan that has it, its place in the plan)
PREPARATIONS = {
    "prepare_work_list": ("row_split_parts", 0),
    "prepare_dense_matrix": ("mma_dense", 0),
    "prepare_tile_starts": ("shared_slab_tiles_f32", 0),
    "prepare_tca_warps": ("tca_f16", 0),
    "prepare_compressed_tiles": ("compressed_tiles_f16", 0),
    "prepare_compressed_tiles_f32": ("compressed_tiles_f32", 0),
    "prepare_compressed_tiles_offsets": ("compressed_tiles_offsets", 0),
    "prepare_row_windows": ("vector_mma_f16", 0),
    "prepare_row_windows_tf32": ("vector_mma_tf32", 0),
}
NAMES = (*GOLDEN, *PREPARATIONS, *HANDLES)


def source_of(name):
    if name in HANDLES:
        made = HANDLES[name]
        if isinstance(made, MixedTiles):
            return render(made)
        if isinstance(made, TopRecords | KeyTable):
            return render_records(made)
        return (
            render_pairs(made)
            if isinstance(made, PairProducts | NearestPairs)
            else render_preparation(made, device("h200"))
        )
    golden, place = PREPARATIONS.get(name, (name, None))
    where, problem, config = GOLDEN[golden]
    plan = plan_for(parse(problem), parse_config(config), device(where))
    return render(plan) if place is None else render_preparation(plan.preparations[place], device(where))


@pytest.mark.parametrize("name", NAMES)
def test_text_is_unchanged(name, request, tmp_path, monkeypatch):
    """ptxas takes a text, without spills, before it is written; an unchanged text gives it nothing new."""
    source = source_of(name)
    path = FOLDER / f"{name}.ptx"
    if request.config.getoption("--update-golden"):
        monkeypatch.setenv("PTXGEN_CACHE", str(tmp_path))
        assert not any(assemble(source).spills.values())
        path.parent.mkdir(exist_ok=True)
        path.write_text(source.text)
    assert source.text == path.read_text(), f"{path.name} changed; if intended: pytest --update-golden"


def test_every_file_has_an_entry():
    assert {p.stem for p in FOLDER.glob("*.ptx")} == set(NAMES)


WAITS = re.compile(r"\b(bar\.sync|\w+\.wait_group|mbarrier\.try_wait|barrier\.cluster\.wait|griddepcontrol\.wait)\b")


@pytest.mark.parametrize("name", NAMES)
def test_every_wait_has_a_banner(name):
    """The last banner before an instruction that waits names the event."""
    banner = ""
    for line in (FOLDER / f"{name}.ptx").read_text().splitlines():
        if line.startswith(("    // ----", ".visible")):
            banner = line
        elif WAITS.search(line.partition("//")[0]):
            assert "wait" in banner, f"{banner}: {line}"


#: short names that are allowed: those of the parameters, the first row, column and k of a tile, k, and a predicate
SHORT = {*"ABCMNKkp", "m0", "n0", "k0", "x0", "y0"}
#: names that tell no role
VAGUE = {"addr", "all", "at", "other", "part", "rest", "temp", "to", "val"}


#: special registers: ptxas reads them by these names whatever a kernel declares
SPECIAL = {
    *(f"{n}{x}" for n in ("", "n") for x in ("tid", "ctaid", "warpid", "smid", "clusterid")),
    *(f"lanemask_{x}" for x in ("eq", "le", "lt", "ge", "gt")),
    *("laneid", "gridid", "clock", "clock64", "clock_hi", "globaltimer", "dynamic_smem_size", "total_smem_size"),
}


@pytest.mark.parametrize("name", NAMES)
def test_registers_are_named_by_role(name):
    declared = re.findall(r"\.reg \.\w+ ([^;]+);", (FOLDER / f"{name}.ptx").read_text())
    registers = {register for line in declared for register in re.findall(r"%(\w+)", line)}
    assert not registers & SPECIAL
    vague = {r for r in registers - SHORT if r in VAGUE or re.fullmatch(r"[A-Za-z]\d*", r)}
    assert not vague, f"{name}.ptx: {', '.join(sorted(vague))} must be named by role, as docs/reading-a-kernel.md lists"
