"""The table of signatures: the modifiers, types and operands of each instruction.

A row has the names of instructions, groups of modifiers, types and operands, separated by "|".

- Modifiers: "sat?" is optional, "lo/hi" is one of two. Words in capitals are in MODIFIERS. "*": any modifiers.
- Types: alternatives, or "-" for none; "U.L" has two types. Words in capitals are in TYPES.
- Operands, of the first type unless another one follows a colon ("2": the second type, "W": twice as wide):
    d         destination register; d_: or the sink _; d|p: and possibly a predicate; d||p: and a predicate
    a, b, c   source: a register or a constant; a!: a register; a&: also the address of a variable
    n         an integer constant
    p, p|q    a destination predicate, and possibly a second one
    !c        a predicate, which may be negated, or a constant
    [a]       an address; [a,t]: of a tensor, with coordinates
    v         a vector
    v4|p      a destination of four elements, and possibly a predicate
    vd, va    a destination, a source, of as many elements as .v2 or .v4 says
  "?": optional. "@m": present if the modifier m is.

Instructions that have no row are not checked. The rules of ``mov``, ``cvt``, ``ld``, ``st``, ``atom``, ``red`` and of
matrix products do not have the form of a row; they are in ``operand_checks``.
"""

from __future__ import annotations

MODIFIERS = {
    "RND": "rn/rz/rm/rp",
    "BOOL": "and/or/xor",
    "CMPB": "eq/ne",
    "CMPS": "eq/ne/lt/le/gt/ge",
    "CMPU": "eq/ne/lt/le/gt/ge/lo/ls/hi/hs",
    "CMPF": "eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan",
    "SCOPE": "cta/cluster/gpu/sys",
    "CTA": "shared/shared::cta",
    "SPACE": "global/shared/shared::cta/shared::cluster/local/const/param/param::entry/param::func",
    "OP": "add/min/max/inc/dec/and/or/xor",
    "ND": "1d/2d/3d/4d/5d",
    "PREFETCH": "L2::64B/L2::128B/L2::256B",
    "TEXTURE": "1d/2d/3d/a1d/a2d/cube/acube",
    "SURFACE": "1d/2d/3d/a1d/a2d",
    "MAP": "global/shared::cta",
    "COMPLETE": "mbarrier::complete_tx::bytes",
    "HINT": "L2::cache_hint",
    "EVICT": "L2::evict_last/L2::evict_normal/L2::evict_first/L2::evict_unchanged",
    "SECOND": "L2::evict_first/L2::evict_unchanged",
}

TYPES = {
    "I": "s16 u16 s32 u32 s64 u64",
    "L": "s32 u32 s64 u64",
    "S": "s16 s32 s64",
    "U": "u16 u32 u64",
    "B": "b16 b32 b64",
    "W": "s32 u32",
    "SAMPLED": "u32 s32 f32",
}

TABLE = """
add sub              | sat?                          | s32                 | d, a, b
add sub              |                               | s16 u16 u32 s64 u64 | d, a, b
add                  |                               | u16x2 s16x2         | d, a, b
add sub              | cc                            | L                   | d, a, b
add sub mul          | RND? ftz? sat?                | f32                 | d, a, b
add sub mul          | RND?                          | f64                 | d, a, b
add sub mul          | rn? ftz? sat?                 | f16 f16x2           | d, a, b
add sub mul          | rn?                           | bf16 bf16x2         | d, a, b
addc subc            | cc?                           | L                   | d, a, b
mul                  | lo/hi                         | I                   | d, a, b
mul                  | wide                          | s16 u16 s32 u32     | d:W, a, b
mad                  | lo/hi                         | I                   | d, a, b, c
mad                  | wide                          | s16 u16 s32 u32     | d:W, a, b, c:W
mad                  | hi sat                        | s32                 | d, a, b, c
mad                  | lo/hi cc                      | L                   | d, a, b, c
mad fma              | RND ftz? sat?                 | f32                 | d, a, b, c
mad fma              | RND                           | f64                 | d, a, b, c
madc                 | lo/hi cc?                     | L                   | d, a, b, c
mul24                | lo/hi                         | W                   | d, a, b
mad24                | lo/hi                         | W                   | d, a, b, c
mad24                | hi sat                        | s32                 | d, a, b, c
fma                  | rn ftz? sat?                  | f16 f16x2           | d, a, b, c
fma                  | rn ftz? relu                  | f16 f16x2           | d, a, b, c
fma                  | rn relu?                      | bf16 bf16x2         | d, a, b, c
fma                  | rn oob relu?                  | f16 f16x2 bf16 bf16x2 | d, a, b, c
div rem              |                               | I                   | d, a, b
div                  | RND ftz?                      | f32                 | d, a, b
div                  | approx/full ftz?              | f32                 | d, a, b
div                  | RND                           | f64                 | d, a, b
min max              |                               | I u16x2 s16x2       | d, a, b
min max              | relu                          | s32 s16x2           | d, a, b
min max              | ftz? NaN?                     | f32                 | d, a, b, c?
min max              | ftz? NaN? xorsign abs         | f32                 | d, a, b
min max              |                               | f64                 | d, a, b
min max              | ftz? NaN?                     | f16 f16x2           | d, a, b
min max              | ftz? NaN? xorsign abs         | f16 f16x2           | d, a, b
min max              | NaN?                          | bf16 bf16x2         | d, a, b
min max              | NaN? xorsign abs              | bf16 bf16x2         | d, a, b
abs neg              |                               | S f64 bf16 bf16x2   | d, a
abs neg              | ftz?                          | f32 f16 f16x2       | d, a
sad                  |                               | I                   | d, a, b, c
dp4a                 |                               | W.W                 | d:s32, a:s32, b:s32, c:s32
dp2a                 | lo/hi                         | W.W                 | d:s32, a:s32, b:s32, c:s32
copysign             |                               | f32 f64             | d, a, b
rcp sqrt             | RND ftz?                      | f32                 | d, a
rcp sqrt             | RND                           | f64                 | d, a
rcp sqrt rsqrt       | approx ftz?                   | f32                 | d, a
rcp                  | approx ftz                    | f64                 | d, a
rsqrt                | approx ftz?                   | f64                 | d, a
sin cos lg2 ex2      | approx ftz?                   | f32                 | d, a
ex2                  | approx                        | f16 f16x2           | d, a
ex2                  | approx ftz                    | bf16 bf16x2         | d, a
tanh                 | approx                        | f32 f16 f16x2 bf16 bf16x2 | d, a

setp                 | CMPS                          | S                   | p|q, a, b
setp                 | CMPU                          | U                   | p|q, a, b
setp                 | CMPB                          | B                   | p|q, a, b
setp                 | CMPF ftz?                     | f32 f16x2           | p|q, a, b
setp                 | CMPF                          | f64 bf16x2          | p|q, a, b
setp                 | CMPF ftz?                     | f16                 | p, a, b
setp                 | CMPF                          | bf16                | p, a, b
setp                 | CMPS BOOL                     | S                   | p|q, a, b, !c
setp                 | CMPU BOOL                     | U                   | p|q, a, b, !c
setp                 | CMPB BOOL                     | B                   | p|q, a, b, !c
setp                 | CMPF BOOL ftz?                | f32 f16x2           | p|q, a, b, !c
setp                 | CMPF BOOL                     | f64 bf16x2          | p|q, a, b, !c
setp                 | CMPF BOOL ftz?                | f16                 | p, a, b, !c
setp                 | CMPF BOOL                     | bf16                | p, a, b, !c
set                  | CMPS                          | u32.S s32.S f32.S f16.S bf16.S | d, a:2, b:2
set                  | CMPU                          | u32.U s32.U f32.U f16.U bf16.U | d, a:2, b:2
set                  | CMPB                          | u32.B s32.B f32.B f16.B bf16.B | d, a:2, b:2
set                  | CMPF ftz? | u32.f32 s32.f32 f32.f32 u16.f16 s16.f16 u32.f16 s32.f16 f16.f16 f16.f32 | d, a:2, b:2
set                  | CMPF ftz? | u32.f16x2 s32.f16x2 f16x2.f16x2 | d, a:2, b:2
set                  | CMPF | u32.f64 s32.f64 f32.f64 u16.bf16 s16.bf16 u32.bf16 s32.bf16 bf16.bf16 f16.f64 \
        bf16.f16 bf16.f32 bf16.f64 | d, a:2, b:2
set                  | CMPF | u32.bf16x2 s32.bf16x2 bf16x2.bf16x2 | d, a:2, b:2
set                  | CMPS BOOL                     | u32.S s32.S f32.S f16.S bf16.S | d, a:2, b:2, !c
set                  | CMPU BOOL                     | u32.U s32.U f32.U f16.U bf16.U | d, a:2, b:2, !c
set                  | CMPB BOOL                     | u32.B s32.B f32.B f16.B bf16.B | d, a:2, b:2, !c
set                  | CMPF ftz? BOOL | u32.f32 s32.f32 f32.f32 u16.f16 s16.f16 u32.f16 s32.f16 f16.f16 f16.f32 | \
        d, a:2, b:2, !c
set                  | CMPF ftz? BOOL | u32.f16x2 s32.f16x2 f16x2.f16x2 | d, a:2, b:2, !c
set                  | CMPF BOOL | u32.f64 s32.f64 f32.f64 u16.bf16 s16.bf16 u32.bf16 s32.bf16 bf16.bf16 f16.f64 \
        bf16.f16 bf16.f32 bf16.f64 | \
        d, a:2, b:2, !c
set                  | CMPF BOOL | u32.bf16x2 s32.bf16x2 bf16x2.bf16x2 | d, a:2, b:2, !c
selp                 |                               | B I f32 f64         | d, a, b, !c
slct                 |                               | B.s32 I.s32 f32.s32 f64.s32 | d, a, b, c:2
slct                 | ftz?                          | B.f32 I.f32 f32.f32 f64.f32 | d, a, b, c:2
testp                | finite/infinite/number/notanumber/normal/subnormal | f32 f64 | p, a

and or xor           |                               | B                   | d, a, b
and or xor           |                               | pred                | d, !a, !b
not                  |                               | B                   | d, a
not                  |                               | pred                | d, !a
cnot                 |                               | B                   | d, a
shl                  |                               | B                   | d, a, b:u32
shr                  |                               | B I                 | d, a, b:u32
shf                  | l/r wrap/clamp                | b32                 | d, a, b, c:u32
bfe                  |                               | L                   | d, a, b:u32, c:u32
bfi                  |                               | b32 b64             | d, a, b, c:u32, e:u32
bmsk                 | clamp/wrap                    | b32                 | d:u32, a:u32, b:u32
szext                | clamp/wrap                    | W                   | d, a, b:u32
brev                 |                               | b32 b64             | d, a
popc clz             |                               | b32 b64             | d:u32, a
bfind                | shiftamt?                     | L                   | d:u32, a
fns                  |                               | b32                 | d, a, b, c
lop3                 |                               | b32                 | d, a, b, c, n
lop3                 | and/or                        | b32                 | d_||p, a, b, c, n, !e
prmt                 | f4e/b4e/rc8/ecl/ecr/rc16?     | b32                 | d, a, b, c

isspacep             | SPACE                         | -                   | p, a:u64
mapa                 | shared::cluster?              | u32 u64             | d, a&, b:u32
getctarank           | shared::cluster?              | u32 u64             | d:u32, a&
cvta                 | to SPACE                      | u64                 | d, a
cvta                 | SPACE                         | u64                 | d, a&
prefetch             | global/local? L1/L2           | -                   | [a]
prefetch             | global? L2::evict_last/L2::evict_normal | -        | [a]
prefetch             | const/param? tensormap        | -                   | [a]
prefetchu            | L1                            | -                   | [a]
applypriority        | global? L2::evict_normal      | -                   | [a], n
discard              | global? L2                    | -                   | [a], n
createpolicy         | fractional EVICT SECOND?      | b64                 | d, a:f32?
createpolicy         | range global? EVICT SECOND?   | b64                 | d, [a], b:u32, c:u32
createpolicy         | cvt L2                        | b64                 | d, a

stacksave            |                               | u32 u64             | d
stackrestore         |                               | u32 u64             | a!
alloca               |                               | u32 u64             | d, a, n?
bra                  | uni?                          | -                   | L
ret                  | uni?                          | -                   |
exit trap brkpt      |                               | -                   |
nanosleep            |                               | u32                 | a
pmevent              | mask?                         | -                   | n
membar               | cta/gl/sys                    | -                   |
fence                | sc/acq_rel/acquire/release? SCOPE | -               |
fence                | proxy alias/async             | -                   |
fence                | proxy async global/shared::cta/shared::cluster | -  |
fence                | proxy async::generic acquire/release \
        sync_restrict::shared::cta/sync_restrict::shared::cluster cluster | - |
fence                | acquire sync_restrict::shared::cluster cluster | - |
fence                | release sync_restrict::shared::cta cluster | -     |
fence                | proxy tensormap::generic release SCOPE | -          |
fence                | proxy tensormap::generic acquire SCOPE | -          | [a], n
fence                | mbarrier_init release cluster | -                   |
griddepcontrol       | wait/launch_dependents        | -                   |
setmaxnreg           | inc/dec sync aligned          | u32                 | n
bar                  | cta? sync                     | -                   | a:u32, b:u32?
barrier              | cta? sync aligned?            | -                   | a:u32, b:u32?
bar                  | cta? arrive                   | -                   | a:u32, b:u32
barrier              | cta? arrive aligned?          | -                   | a:u32, b:u32
bar                  | cta? red popc                 | u32                 | d, a:u32, b:u32?, !c
bar                  | cta? red and/or               | pred                | d, a:u32, b:u32?, !c
barrier              | cta? red popc aligned?        | u32                 | d, a:u32, b:u32?, !c
barrier              | cta? red and/or aligned?      | pred                | d, a:u32, b:u32?, !c
bar                  | warp sync                     | -                   | a:u32
barrier              | cluster arrive release/relaxed? aligned? | -        |
barrier              | cluster wait acquire? aligned? | -                  |

shfl                 | sync up/down/bfly/idx         | b32                 | d|p, a, b, c, e:u32
shfl                 | up/down/bfly/idx              | b32                 | d|p, a, b, c
vote                 | sync all/any/uni              | pred                | d, !a, b:u32
vote                 | sync ballot                   | b32                 | d, !a, b:u32
vote                 | all/any/uni                   | pred                | d, !a
vote                 | ballot                        | b32                 | d, !a
match                | any sync                      | b32 b64             | d:u32, a, b:u32
match                | all sync                      | b32 b64             | d|p:u32, a, b:u32
redux                | sync add/min/max              | W                   | d, a, b:u32
redux                | sync and/or/xor               | b32                 | d:u32, a:u32, b:u32
elect                | sync                          | -                   | d_||p:u32, a:u32
activemask           |                               | b32                 | d

mbarrier             | init CTA?                     | b64                 | [a], b:u32
mbarrier             | inval CTA?                    | b64                 | [a]
mbarrier             | arrive/arrive_drop release/relaxed? cta/cluster? CTA? | b64 | d_, [a], b:u32?
mbarrier             | arrive/arrive_drop noComplete release/relaxed? cta? CTA? | b64 | d_, [a], b:u32
mbarrier             | arrive/arrive_drop expect_tx release/relaxed? cta/cluster? CTA? | b64 | d_, [a], b:u32
mbarrier             | arrive/arrive_drop release/relaxed? cta/cluster? shared::cluster | b64 | _, [a], b:u32?
mbarrier             | arrive/arrive_drop expect_tx release/relaxed? cta/cluster? shared::cluster | b64 | _, \
        [a], b:u32
mbarrier             | expect_tx/complete_tx relaxed? cta/cluster? shared/shared::cta/shared::cluster? | b64 | \
        [a], b:u32
mbarrier             | test_wait acquire/relaxed? cta/cluster? CTA? | b64  | p, [a], b
mbarrier             | test_wait parity acquire/relaxed? cta/cluster? CTA? | b64 | p, [a], b:u32
mbarrier             | try_wait acquire/relaxed? cta/cluster? CTA? | b64   | p, [a], b, c:u32?
mbarrier             | try_wait parity acquire/relaxed? cta/cluster? CTA? | b64 | p, [a], b:u32, c:u32?
mbarrier             | pending_count                 | b64                 | d:u32, a

cp                   | async ca/cg CTA global PREFETCH? HINT? | -          | [a], [b], n, c:u32?, e:b64@HINT
cp                   | async ca/cg CTA global PREFETCH? HINT? | -          | [a], [b], n, !c, e:b64@HINT
cp                   | async commit_group/wait_all   | -                   |
cp                   | async wait_group              | -                   | n
cp                   | async mbarrier arrive noinc? CTA? | b64             | [a]
cp                   | async bulk commit_group       | -                   |
cp                   | async bulk wait_group read?   | -                   | n
cp                   | async bulk shared::cta global COMPLETE HINT? | - | [a], [b], c:u32, [e], f:b64@HINT
cp                   | async bulk shared::cluster global COMPLETE multicast::cluster? HINT? | - | \
        [a], [b], c:u32, [e], f:u16@multicast::cluster, g:b64@HINT
cp                   | async bulk shared::cluster shared::cta COMPLETE | - | [a], [b], c:u32, [e]
cp                   | async bulk global shared::cta bulk_group HINT? | - | [a], [b], c:u32, e:b64@HINT
cp                   | async bulk prefetch L2 global HINT? | -             | [a], b:u32, c:b64@HINT
cp                   | reduce async bulk global shared::cta bulk_group add HINT? | u32 s32 u64 f32 f64 | \
        [a], [b], c:u32, e:b64@HINT
cp                   | reduce async bulk global shared::cta bulk_group add noftz HINT? | f16 bf16 | \
        [a], [b], c:u32, e:b64@HINT
cp                   | reduce async bulk global shared::cta bulk_group min/max HINT? | u32 s32 u64 s64 f16 bf16 | \
        [a], [b], c:u32, e:b64@HINT
cp                   | reduce async bulk global shared::cta bulk_group inc/dec HINT? | u32 | \
        [a], [b], c:u32, e:b64@HINT
cp                   | reduce async bulk global shared::cta bulk_group and/or/xor HINT? | b32 b64 | \
        [a], [b], c:u32, e:b64@HINT
cp                   | reduce async bulk shared::cluster shared::cta COMPLETE add | u32 s32 u64 | [a], [b], \
        c:u32, [e]
cp                   | reduce async bulk shared::cluster shared::cta COMPLETE min/max | u32 s32 | [a], [b], \
        c:u32, [e]
cp                   | reduce async bulk shared::cluster shared::cta COMPLETE inc/dec | u32 | [a], [b], \
        c:u32, [e]
cp                   | reduce async bulk shared::cluster shared::cta COMPLETE and/or/xor | b32 | [a], [b], \
        c:u32, [e]
cp                   | async bulk tensor ND shared::cta global tile? COMPLETE HINT? | - | [a], [b,t], [c], e:b64@HINT
cp                   | async bulk tensor ND shared::cta global im2col COMPLETE HINT? | - | \
        [a], [b,t], [c], v, e:b64@HINT
cp                   | async bulk tensor ND shared::cluster global tile? COMPLETE multicast::cluster? HINT? | - | \
        [a], [b,t], [c], e:u16@multicast::cluster, f:b64@HINT
cp                   | async bulk tensor ND shared::cluster global im2col COMPLETE multicast::cluster? HINT? | - | \
        [a], [b,t], [c], v, e:u16@multicast::cluster, f:b64@HINT
cp                   | async bulk tensor ND global shared::cta tile/im2col_no_offs? bulk_group HINT? | - | \
        [a,t], [b], c:b64@HINT
cp                   | reduce async bulk tensor ND global shared::cta OP tile/im2col_no_offs? bulk_group HINT? | \
        - | [a,t], [b], c:b64@HINT
cp                   | async bulk prefetch tensor ND L2 global tile? HINT? | - | [a,t], b:b64@HINT
cp                   | async bulk prefetch tensor ND L2 global im2col HINT? | - | [a,t], v, b:b64@HINT

tensormap            | replace tile global_address MAP? b1024 | b64        | [a], b
tensormap            | replace tile rank MAP? b1024  | b32                 | [a], b
tensormap            | replace tile box_dim/global_dim/element_stride MAP? b1024 | b32 | [a], n, b
tensormap            | replace tile global_stride MAP? b1024 | b64         | [a], n, b
tensormap            | replace tile elemtype MAP? b1024 | b32              | [a], n
tensormap            | replace tile interleave_layout MAP? b1024 | b32     | [a], n
tensormap            | replace tile swizzle_mode MAP? b1024 | b32          | [a], n
tensormap            | replace tile fill_mode MAP? b1024 | b32             | [a], n
tensormap            | cp_fenceproxy global shared::cta tensormap::generic release SCOPE sync aligned | - | [a], [b], \
        n

tex                  | base? TEXTURE v4              | SAMPLED.f32 SAMPLED.s32 | v4|p, [a,t], v?
tex                  | level TEXTURE v4              | SAMPLED.f32 SAMPLED.s32 | v4|p, [a,t], c:2, v?
tex                  | grad TEXTURE v4               | SAMPLED.f32         | v4|p, [a,t], v, v, v?
tld4                 | r/g/b/a 2d/a2d v4             | SAMPLED.f32         | v4|p, [a,t], v?
txq suq              | width/height/depth/array_size/channel_data_type/channel_order | b32 | d, [a]
txq                  | num_mipmap_levels/num_samples/normalized_coords | b32 | d, [a]
txq                  | level width/height/depth       | b32           | d, [a], b:u32
suld                 | b SURFACE ca/cg/cs/cv? v2/v4? trap/clamp/zero | b8 b16 b32 b64 | vd, [a,t]
sust                 | b SURFACE wb/cg/cs/wt? v2/v4? trap/clamp/zero | b8 b16 b32 b64 | [a,t], va

ldmatrix             | sync aligned m8n8 x1/x2/x4 trans? CTA? | b16        | v, [a]
stmatrix             | sync aligned m8n8 x1/x2/x4 trans? CTA? | b16        | [a], v
movmatrix            | sync aligned m8n8 trans       | b16                 | d:b32, a!:b32
wgmma                | fence/commit_group sync aligned | -                 |
wgmma                | wait_group sync aligned       | -                   | n
"""
