"""Programs on registers of 8 bits, and programs whose instructions write registers that they also read."""

from __future__ import annotations

from .flow import STEPS, Pool, store
from .kernel import Case, Kernel

#: bytes that each thread owns in shared memory
ROOM = 16

#: on registers of 8 bits; %near: an address in the input; %mine: of the thread's shared memory; %at: a scratch address
BYTES = """
cvt.u8.u8 B, b
cvt.s8.u8 B, b
cvt.u8.u16 B, h
cvt.u8.u32 B, r
cvt.s8.s32 B, r
cvt.s8.u64 B, d
cvt.sat.u8.s8 B, b
cvt.sat.s8.u8 B, b
cvt.sat.s8.s16 B, h
cvt.sat.u8.s32 B, r
cvt.sat.s8.s32 B, r
cvt.sat.u8.u64 B, d
cvt.rzi.u8.f32 B, r
cvt.rni.s8.f32 B, r
cvt.rmi.s8.f16 B, h
cvt.u16.u8 H, b
cvt.s16.s8 H, b
cvt.u32.u8 R, b
cvt.s32.s8 R, b
cvt.u32.s8 R, b
cvt.u64.u8 D, b
cvt.s64.s8 D, b
cvt.rn.f32.u8 R, b
cvt.rn.f32.s8 R, b
cvt.rn.f16.u8 H, b
mov.b16 H, {b, b}
mov.b32 R, {b, b, b, b}
mov.b16 {B, B}, h
mov.b16 {_, B}, h
mov.b32 {B, B, B, B}, r
mov.b32 {B, _, B, _}, r
and.b32 t, r, 60; mad.wide.u32 %at, t, 1, %near; ld.global.u8 B, [%at+1]
and.b32 t, r, 60; mad.wide.u32 %at, t, 1, %near; ld.global.nc.s8 B, [%at+3]
and.b32 t, r, 60; mad.wide.u32 %at, t, 1, %near; ld.global.v2.b8 {B, B}, [%at+2]
and.b32 t, r, 60; mad.wide.u32 %at, t, 1, %near; ld.global.v4.u8 {B, B, B, B}, [%at]
and.b32 t, r, 60; mad.wide.u32 %at, t, 1, %near; ld.v4.s8 {B, B, B, B}, [%at]
st.shared.u8 [%mine+5], b
st.shared.v2.u8 [%mine+6], {b, b}
st.shared.v4.b8 [%mine+4], {b, b, b, b}
xor.b32 t, r, 85; st.shared.s8 [%mine+9], t
ld.shared.u8 B, [%mine+4]
ld.shared.s8 B, [%mine+7]
ld.shared.v4.b8 {B, B, B, B}, [%mine+8]
ld.shared.v2.s8 {B, B}, [%mine+6]
ld.shared.s8 R, [%mine+5]
ld.shared.u16 H, [%mine+4]
setp.lt.s32 P, r, x
xor.b32 R, r, x
add.u16 H, h, h
shr.u64 D, d, i
selp.b32 R, r, r, p
""".strip().splitlines()

#: on destinations that are often among the sources; %low, %high: 64 bits, for addresses; %row: an address in shared memory
OVERLAPPING = """
mov.v2.b32 {R, R}, {r, r}
mov.v2.u32 {R, R}, {r, x}
mov.v2.f32 {R, _}, {r, r}
mov.v4.b32 {R, R, R, R}, {r, r, r, r}
mov.v4.s32 {R, R, R, R}, {r, r, r, r}
mov.v4.b32 {_, R, _, R}, {r, r, r, r}
mov.v2.b16 {H, H}, {h, h}
mov.v4.u16 {H, H, H, H}, {h, h, h, h}
mov.v4.b16 {H, H, H, H}, {h, h, h, h}
mov.v2.b64 {D, D}, {d, d}
mov.v2.f64 {D, D}, {d, d}
setp.lt.and.s32 P|P, r, r, p
setp.le.xor.u64 P|P, d, d, !p
setp.lt.and.f16x2 P|P, r, r, p
setp.neu.xor.f16x2 P|P, r, r, !p
setp.geu.or.bf16x2 P|P, r, r, p
lop3.or.b32 R|P, r, r, r, n, p
lop3.and.b32 R|P, r, r, r, n, !p
shfl.sync.bfly.b32 R|P, r, w, 31, -1
shfl.sync.up.b32 R|P, r, r, 0, -1
match.all.sync.b32 R|P, r, -1
vote.sync.ballot.b32 R, p, -1
and.b32 t, r, 48; mad.wide.u32 %low, t, 1, %near; ld.global.v2.b64 {%low, %high}, [%low]; xor.b64 D, %low, %high
and.b32 t, r, 48; mad.wide.u32 %low, t, 1, %near; ld.global.v2.b64 {%high, %low}, [%low]; sub.u64 D, %low, %high
and.b32 t, r, 48; mad.wide.u32 %low, t, 1, %near; ld.v2.u64 {D, %low}, [%low]; sub.u64 D, %low, d
mov.b32 t, %row; ld.shared.v4.b32 {R, t, R, R}, [t]; xor.b32 R, t, r
mov.b32 t, %row; atom.shared.add.u32 t, [t], r; xor.b32 R, t, r
mov.b32 t, %row; atom.shared.cas.b32 t, [t+4], r, t; xor.b32 R, t, r
mov.b32 t, r; atom.shared.exch.b32 t, [%row], t; xor.b32 R, t, r
st.shared.v4.b32 [%row], {r, r, r, r}; bar.warp.sync -1; mov.b32 t, %row; \
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {t, R, R, R}, [t]; bar.warp.sync -1; xor.b32 R, t, r
mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {R, R, R, R}, {r, r}, {r}, {r, r, r, r}
mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {R, R, R, R}, {r, r, r, r}, {r, r}, {r, r, r, r}
""".strip().splitlines()


#: the other instructions of such programs, without the lesser or greater of two numbers: ptxas knows that registers are
#: copies of one another, and that of a number and itself it compiles to a copy
OTHERS = [step for step in STEPS if not step.startswith(("min.f", "max.NaN.f"))]


def near(k: Kernel) -> None:
    """Declares %near, the address of 64 bytes of the input and of a few more."""
    k.declared.append(".reg .b64 %near;")
    k.emit(f"add.u64 %near, %in, {k.reserve_input(bytes(k.draw.bits(8) for _ in range(80)))};")


def narrow(name: str) -> Case:
    """One run of instructions on registers of 8 bits."""
    k = Kernel(name, "byte", (32,), (2,))
    near(k)
    k.declared += [f".shared .align 16 .b8 {name}_s[{ROOM * k.threads}];", ".reg .b64 %at, %mine;"]
    k.emit(f"mov.u64 %mine, {name}_s;", f"mad.wide.u32 %mine, %t, {ROOM}, %mine;")
    pool = Pool(k, words=4, steps=BYTES)
    pool.names["b"] = [f"%{dtype}_{i}" for i in range(2) for dtype in ("u8", "s8", "b8")]
    for reg in pool.names["b"]:
        k.declared.append(f".reg .{reg[1:3]} {reg};")
        k.load("b8", reg=reg)
    words = ", ".join(k.load("b32") for _ in range(ROOM // 4))
    k.emit(f"st.shared.v4.b32 [%mine], {{{words}}};")
    for _ in range(k.draw.between(20, 50)):
        k.emit(*pool.step())
    store(k, pool.columns())
    return k.case()


def overlapping(name: str) -> Case:
    """One run of instructions that write what they read, among others that change the registers."""
    k = Kernel(name, "overlap", (32,), (2,))
    near(k)
    k.declared += [f".shared .align 16 .b8 {name}_s[{ROOM * k.threads}];", ".reg .b64 %low, %high; .reg .b32 %row;"]
    k.emit(f"mov.u32 %row, {name}_s;", f"mad.lo.u32 %row, %t, {ROOM}, %row;")
    pool = Pool(k, doubles=3, halves=5)
    words = ", ".join(k.load("b32") for _ in range(ROOM // 4))
    k.emit(f"st.shared.v4.b32 [%row], {{{words}}};")
    for _ in range(k.draw.between(15, 35)):
        pool.steps = OVERLAPPING if k.draw.chance(70) else OTHERS
        k.emit(*pool.step())
    store(k, pool.columns())
    return k.case()


def cases() -> list[Case]:
    return [
        *(narrow(f"byte_{i:03d}") for i in range(60)),
        *(overlapping(f"overlap_{i:03d}") for i in range(100)),
    ]
