## Packs the truth values of a matrix: a word of 32 bits from 32 bytes of a row.
<%inherit file="module.mako"/>\
<%namespace name="bits" file="/copy/truth_bits.mako"/>\
<% own = plan.preparation %>\
.visible .entry ${own.entry}(
% for line in own.parameters.declarations:
    ${line}
% endfor
)
.maxntid ${own.way.THREADS}, 1, 1
{
${bits.registers(own.way)}\
    ld.param.u64 %src, [X];  cvta.to.global.u64 %src, %src;
    ld.param.u64 %dst, [W];  cvta.to.global.u64 %dst, %dst;
% for name in ("rows", "depth", "ld", "pitch", "chunks"):
    ld.param.u32 %${name}, [${name}];
% endfor
${bits.pack(own.way, "")}\
    ret;
}
