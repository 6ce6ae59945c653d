## Operands of which a slice takes every eighth k: of those %k is the place.
<%def name="setup()">
% if len(plan.early) < 2:
    // where K's place is in a copy, whose rows have each eighth of K in whole 128 bytes
    .reg .b32 %k_copy;
    add.u32 %k_copy, %K, 7;
    shr.u32 %k_copy, %k_copy, 3;
    add.u32 %k_copy, %k_copy, ${plan.eighth - 1};
    and.b32 %k_copy, %k_copy, ${-plan.eighth};
% endif
</%def>

<%def name="begin()">
    mov.u32 %k, %k0;
% if len(plan.early) < 2:
    mad.lo.u32 %k_copy, %k_copy, %residue, %k0;
% endif
% for x in plan.early:
    mad.wide.u32 %map_${x.role}, %residue, 128, %map_${x.role};
% endfor
</%def>

<%def name="step()">
    add.u32 %k, %k, ${plan.config.u};
% if len(plan.early) < 2:
    add.u32 %k_copy, %k_copy, ${plan.config.u};
% endif
</%def>
