## Loads of a lane from global memory to registers.
<%def name="load(loads, guard='')">
% for l in loads:
    ${guard}ld.global.nc${l.cache_hint}.${l.suffix} ${l.registers}, [${l.pointer}+${l.offset}];
% endfor
</%def>

## The same with the guard of each: zeros where it is false.
<%def name="load_last(loads)">
% for l in loads:
  % for r in l.names:
    mov.${l.moved} ${r}, 0;
  % endfor
    ${l.guard}ld.global.nc${l.cache_hint}.${l.suffix} ${l.registers}, [${l.pointer}+${l.offset}];
% endfor
</%def>
