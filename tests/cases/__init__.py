"""Random legal problems and configurations, the same for every tier of tests. To add a source, add it to ``SOURCES``."""

from __future__ import annotations

from tests.cases import (
    batch,
    bf16x3,
    compressed_tiles,
    conv,
    conv_wgmma,
    element_groups,
    grouped,
    mma,
    resident_rows,
    simt,
    skinny,
    spmm,
    spmm_dense,
    task,
    task_mirrored,
    task_reduce,
    task_select,
    task_types,
    task_wgmma,
    tca,
    vector_mma,
    wgmma,
    winograd,
)
from tests.cases.source import CaseSource

#: by name
SOURCES: dict[str, CaseSource] = {
    source.name: source
    for source in (
        simt.SOURCE,
        simt.WIDE,
        simt.UNSTAGED,
        mma.SOURCE,
        skinny.SOURCE,
        spmm.SOURCE,
        spmm.GRAPHS,
        spmm.SHARED_SLAB,
        tca.SOURCE,
        vector_mma.SOURCE,
        compressed_tiles.SOURCE,
        spmm_dense.SOURCE,
        task.SOURCE,
        task_mirrored.SOURCE,
        task_reduce.SOURCE,
        task_select.SOURCE,
        task_types.SOURCE,
        task_wgmma.SOURCE,
        element_groups.SOURCE,
        resident_rows.SOURCE,
        wgmma.SOURCE,
        wgmma.RESIDENT_B,
        bf16x3.SOURCE,
        *batch.SOURCES,
        *conv.SOURCES,
        *grouped.SOURCES,
        conv_wgmma.SOURCE,
        conv_wgmma.PACKED,
        conv_wgmma.PHASED,
        conv_wgmma.FEW_CHANNELS,
        conv_wgmma.MERGED,
        conv_wgmma.INTERLEAVED,
        conv_wgmma.ROW_TAPS,
        conv_wgmma.TILED,
        conv_wgmma.BY_IMAGE,
        *winograd.SOURCES,
    )
}
