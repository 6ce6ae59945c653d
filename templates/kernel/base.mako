## The frame of every module: header, directives, entry, parameters and the registers of the register table.
% for line in header_lines:
// ${line}
% endfor
.version ${plan.ptx_version}
.target ${plan.target}
.address_size 64

.extern .shared .align ${plan.shared_alignment} .b8 smem[];

.visible .entry ${plan.entry}(
% for line in plan.parameters.rows.declarations:
    ${line}
% endfor
)
% for line in plan.directives:
${line}
% endfor
{
% for tile, meaning in plan.register_table:
    ${tile.declaration}
% endfor
${next.body()}\
    ret;
}
${self.after_entry()}\
