## What every module has: header, directives, the entry and its parameters.
% for line in header_lines:
// ${line}
% endfor
.version ${plan.ptx_version}
.target ${plan.target}
.address_size 64

.extern .shared .align ${plan.shared_aligned} .b8 smem[];

.visible .entry ${plan.entry}(
    .param .u64 A, .param .u64 B, .param .u64 C, .param .u64 W,
    .param .u32 M, .param .u32 N, .param .u32 K,
    .param .u32 lda, .param .u32 ldb, .param .u32 ldc, .param .u32 chunk,
    .param .${plan.sum} alpha, .param .${plan.sum} beta
)
.maxntid ${plan.threads}, 1, 1
.minnctapersm ${plan.config.resident}
{
% for tile, meaning in plan.tiles:
    ${tile.declaration}
% endfor
${next.body()}\
    ret;
}
${self.after_entry()}\
