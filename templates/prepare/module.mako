## The frame of a module of kernels that prepare arrays.
% for line in header_lines:
// ${line}
% endfor
.version ${plan.ptx_version}
.target ${plan.target}
.address_size 64

${next.body()}\
