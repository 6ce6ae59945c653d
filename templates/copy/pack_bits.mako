## Packs truth values: an auxiliary kernel makes a word of 32 bits from 32 bytes along K, in the workspace.
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%namespace name="bits" file="/copy/truth_bits.mako"/>
<%def name="operand_addresses()">
% for x in plan.packing.names:
    // ${x.upper()}: the address of its words
    ld.param.u32 %tmp0, [copy_offset128_${x}];
    mad.wide.u32 %${x.upper()}, %tmp0, 128, %workspace;
% endfor
</%def>

<%def name="entries()">

// bit k mod 32 of word k / 32 of a row of A or B is 1 if the byte of k is not 0
.visible .entry ${plan.entry}_bits(
% for line in plan.packing.parameter_list.declarations:
    ${line}
% endfor
)
.maxntid ${plan.packing.ways["a"].THREADS}, 1, 1
{
    .reg .b64 %workspace;
    .reg .b32 %operand, %offset128;
    .reg .pred %is_operand;
    ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %workspace, %workspace;
${pdl.trigger_and_wait()}\
    mov.u32 %operand, %ctaid.y;
% for n, x in enumerate(plan.packing.names):
    // operand ${x.upper()}
    setp.ne.u32 %is_operand, %operand, ${n};
    @%is_operand bra.uni NOT_${x.upper()};
    {
${bits.registers(plan.packing.ways[x])}\
    ld.param.u64 %src, [${x.upper()}];
    cvta.to.global.u64 %src, %src;
    ld.param.u32 %offset128, [copy_offset128_${x}];
    mad.wide.u32 %dst, %offset128, 128, %workspace;
  % for name in ("rows", "depth", "ld", "pitch", "chunks"):
    ld.param.u32 %${name}, [${name}_${x}];
  % endfor
${bits.pack(plan.packing.ways[x], f"_{x.upper()}")}\
    }
NOT_${x.upper()}:
% endfor
    ret;
}
</%def>
