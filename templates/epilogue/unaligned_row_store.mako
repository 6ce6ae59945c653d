## Lines of a tile by threads, where rows of C are not whole 16 bytes: a warp has a line, a thread a word of each 64
## elements. All lines of a warp begin at a multiple of four bytes, or all at two bytes behind one.
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="ends" file="/epilogue/row_tails.mako"/>
<%namespace name="held" file="/epilogue/load_c.mako"/>
<%def name="early()"></%def>
<%def name="finish()"></%def>

<%def name="free(s)">${sync.warpgroup(plan.wg)}</%def>

<%def name="fetch(s, c)">${held.fetch(s, c)}</%def>

<%def name="send(s, c)">
${sync.warpgroup(plan.wg)}\
% for n, strip in enumerate(s.lines.strips(c.index)):
<% k, label = s.lines, f"{c.index}_{n}" %>\
    {
    .reg .b32 %ahead, %w<${len(k.batch)}>, %v<${len(k.batch)}>;
    .reg .pred %whole<${k.parts}>;
${ends.place(s, strip)}\
    // an element ahead of the first word
    cvt.u32.u64 %ahead, %to;
    shr.u32 %ahead, %ahead, 1;
    and.b32 %ahead, %ahead, 1;
    mad.lo.u32 %q, %lane, 2, %ahead;
    mul.wide.u32 %t64, %q, 2;
    add.u64 %to, %to, %t64;
% for part in range(k.parts):
    add.u32 %t0, %q, ${64 * part + 1};
    setp.lt.s32 %whole${part}, %t0, %end;
% endfor
    setp.eq.u32 %p, %ahead, 0;
    @%p bra EVEN${label};
${words(s, strip, f"ODD{label}", True)}\
    bra WORDS${label};
${words(s, strip, f"EVEN{label}", False)}\
WORDS${label}:
${ends.tips(s, strip, label)}\
    }
% endfor
</%def>

## The words of a warp's lines; those that begin at the second element of a word are of two.
<%def name="words(s, strip, label, second)">
<% k = s.lines %>\
    .pragma "nounroll";
${label}:
% for i, (row, part) in enumerate(k.batch):
    ld.shared.b32 %w${i}, [${k.near(strip, row, part)}];
% if second:
    ld.shared.b32 %v${i}, [${k.near(strip, row, part, True)}];
% endif
% endfor
% for i, (row, part) in enumerate(k.batch):
% if second:
    prmt.b32 %w${i}, %w${i}, %v${i}, 0x5432;
% endif
    add.u32 %t0, %line, ${4 * row};
    setp.lt.and.s32 %p, %t0, %left_rows, %whole${part};
    @%p st.global.b32 [%to+${128 * part}], %w${i};
% if part == k.parts - 1:
    add.u64 %to, %to, %step;
% endif
% endfor
${ends.on(s, label)}\
</%def>
