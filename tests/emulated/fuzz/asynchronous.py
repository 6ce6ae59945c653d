"""Asynchronous work: mbarriers, bulk and tensor copies; shared memory of the blocks of a cluster."""

from __future__ import annotations

import itertools

from .kernel import Case, Kernel, Map

DEPTH = {"u8": 1, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}


def wait(k: Kernel, bar: str, parity: str | int) -> None:
    """Until the phase of that parity is complete."""
    again, p = k.label(), k.reg(1)
    form = k.draw.pick(("try_wait", "test_wait"))
    k.emit(f"{again}:", f"mbarrier.{form}.parity.shared::cta.b64 {p}, [{bar}], {parity};", f"@!{p} bra {again};")


def start(k: Kernel, name: str, room: int, count: int | str = 1) -> tuple[str, str, str]:
    """Shared memory and a barrier, ready: (address of memory, of the barrier, predicate of the first thread)."""
    k.declared.append(f".shared .align 1024 .b8 {name}_s[{room}];")
    k.declared.append(f".shared .align 8 .b64 {name}_b;")
    base, bar, first = k.reg(32), k.reg(32), k.reg(1)
    k.emit(
        f"mov.u32 {base}, {name}_s;",
        f"mov.u32 {bar}, {name}_b;",
        f"setp.eq.u32 {first}, %t, 0;",
        f"@{first} mbarrier.init.shared::cta.b64 [{bar}], {count};",
        f"@{first} fence.mbarrier_init.release.cluster;",
        "bar.sync 0;",
    )
    return base, bar, first


def read_back(k: Kernel, base: str, room: int, label: str) -> None:
    """Copies shared memory to the output, 16 bytes for each thread and iteration."""
    region = k.column("b32", label=label, count=room // 4)
    at, to, p = k.reg(32), k.reg(64), k.reg(1)
    v = [k.reg(32) for _ in range(4)]
    again = k.label()
    k.emit(
        f"mul.lo.u32 {at}, %t, 16;",
        f"{again}:",
        f"add.u32 %w, {base}, {at};",
        f"cvt.u64.u32 {to}, {at};",
        f"add.u64 {to}, {to}, %out;",
        f"ld.shared.v4.b32 {{{', '.join(v)}}}, [%w];",
        f"st.global.v4.b32 [{to}+{region.offset}], {{{', '.join(v)}}};",
        f"add.u32 {at}, {at}, {16 * k.threads};",
        f"setp.lt.u32 {p}, {at}, {room};",
        f"@{p} bra {again};",
    )


def loaded(name: str) -> Case:
    """Bulk copies from global to shared memory, several on one barrier, round after round."""
    k = Kernel(name, "bulk", (64,))
    d = k.draw
    room = 1024
    base, bar, first = start(k, name, room)
    data = k.reserve_input(bytes(d.bits(8) for _ in range(2048)))
    source, at = k.reg(64), k.reg(32)
    k.emit(f"add.u64 {source}, %in, {data};")
    total = k.reg(32)
    k.emit(f"mov.u32 {total}, 0;")
    for iteration in range(d.between(1, 3)):
        cuts = sorted({0, 1024, *(16 * d.below(64) for _ in range(d.between(0, 3)))})
        if d.chance(30):
            k.emit(
                f"@{first} mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [{bar}], 1024;",
                f"@{first} mbarrier.arrive.shared::cta.b64 _, [{bar}];",
            )
        else:
            k.emit(f"@{first} mbarrier.arrive.expect_tx.shared::cta.b64 _, [{bar}], 1024;")
        for a, b in itertools.pairwise(cuts):
            where = 16 * d.below((2048 - (b - a)) // 16 + 1)
            k.emit(
                f"@{first} cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                f"[{base}+{a}], [{source}+{where}], {b - a}, [{bar}];"
            )
        wait(k, bar, iteration & 1)
        word = k.reg(32)
        k.emit(
            f"xor.b32 {at}, %t, {d.below(64)};",
            f"mad.lo.u32 {at}, {at}, 16, {base};",
            f"ld.shared.b32 {word}, [{at}+{4 * d.below(4)}];",
            f"mad.lo.u32 {total}, {total}, 31, {word};",
            "bar.sync 0;",
        )
        k.store(total, "b32", label="cp.async.bulk to shared memory")
    return k.case()


REDUCTIONS = (
    ("add", "u32"),
    ("add", "s32"),
    ("add", "u64"),
    ("min", "s32"),
    ("max", "u32"),
    ("min", "u64"),
    ("max", "s64"),
    ("inc", "u32"),
    ("dec", "u32"),
    ("and", "b32"),
    ("or", "b64"),
    ("xor", "b32"),
    ("add", "f32"),
    ("add", "f64"),
    ("add.noftz", "f16"),
    ("add.noftz", "bf16"),
    ("min", "f16"),
    ("max", "bf16"),
)


def stored(name: str) -> Case:
    """Bulk copies and reductions from shared to global memory."""
    k = Kernel(name, "bulk", (64,))
    d = k.draw
    base, _, first = start(k, name, 1024)
    op, dtype = d.pick(REDUCTIONS)
    at, to = k.reg(32), k.reg(64)
    plain = k.column("b32", label="cp.async.bulk to global memory", count=256)
    rule = "nan" if dtype == "f64" else ""
    width = int(dtype.lstrip("bfsu")) // 8
    reduced = k.column(dtype, rule, label=f"cp.reduce.async.bulk.{op}.{dtype}", count=1024 // width)
    k.emit(f"mad.lo.u32 {at}, %t, 16, {base};", f"mad.wide.u32 {to}, %t, 16, %out;")
    for i in range(16 // width):
        k.emit(
            f"st.shared.b{8 * width} [{at}+{i * width}], {k.load(dtype)};",
            f"st.global.b{8 * width} [{to}+{reduced.offset + i * width}], {k.load(dtype)};",
        )
    k.emit("fence.proxy.async;", "bar.sync 0;")
    size = 16 * d.between(1, 64)
    where = 16 * d.below((1024 - size) // 16 + 1)
    source = 16 * d.below((1024 - size) // 16 + 1)
    k.emit(
        f"@{first} cp.async.bulk.global.shared::cta.bulk_group "
        f"[%out+{plain.offset + where}], [{base}+{source}], {size};"
    )
    k.emit(
        f"@{first} cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{dtype} "
        f"[%out+{reduced.offset}], [{base}], 1024;"
    )
    k.emit(f"@{first} cp.async.bulk.commit_group;", f"@{first} cp.async.bulk.wait_group{d.pick(('', '.read'))} 0;")
    return k.case()


def mbarrier(name: str) -> Case:
    """mbarriers that threads arrive at, once or by a count, in several phases; also with cp.async."""
    k = Kernel(name, "mbarrier", (96,))
    d = k.draw
    share = d.pick((1, 1, 2))
    copies = d.chance(40)
    base, bar, _ = start(k, name, 16 * 96, 96 * share)
    mine, at = k.reg(32), k.reg(32)
    value = k.load("b32")
    k.emit(f"mad.lo.u32 {mine}, %t, 16, {base};")
    data = k.reserve_input(bytes(d.bits(8) for _ in range(16 * 96)))
    source = k.reg(64)
    k.emit(f"mad.wide.u32 {source}, %t, 16, %in;")
    for iteration in range(d.between(1, 4)):
        state = k.reg(64)
        r = k.reg(32)
        if copies:
            k.emit(f"cp.async.ca.shared.global [{mine}], [{source}+{data}], 16;")
            k.emit(
                f"cp.async.mbarrier.arrive.noinc.shared::cta.b64 [{bar}];"
                if share == 1
                else f"cp.async.mbarrier.arrive.shared::cta.b64 [{bar}];"
            )
        else:
            k.emit(f"st.shared.b32 [{mine}], {value};")
        if not copies or share == 2:
            how = d.below(3)
            amount = f", {share}" if share > 1 else d.pick(("", ", 1"))
            if how == 0:
                k.emit(f"mbarrier.arrive.shared::cta.b64 {state}, [{bar}]{amount};")
                again, p = k.label(), k.reg(1)
                k.emit(f"{again}:", f"mbarrier.try_wait.shared::cta.b64 {p}, [{bar}], {state};", f"@!{p} bra {again};")
            else:
                k.emit(f"mbarrier.arrive{d.pick(('', '.release.cta'))}.shared::cta.b64 _, [{bar}]{amount};")
                wait(k, bar, iteration & 1)
        else:
            wait(k, bar, iteration & 1)
        k.emit(
            f"add.u32 {at}, %t, {d.between(1, 95)};",
            f"rem.u32 {at}, {at}, 96;",
            f"mad.lo.u32 {at}, {at}, 16, {base};",
            f"ld.shared.b32 {r}, [{at}];",
            f"mad.lo.u32 {value}, {value}, 7, {r};",
            "bar.sync 0;",
        )
    k.store(value, "b32", label="mbarrier")
    return k.case()


def clustered(name: str) -> Case:
    """Blocks that write to, read from and count in each other's shared memory."""
    size = Kernel(name, "", (1,)).draw.pick((2, 2, 4))
    k = Kernel(name, "cluster", (32,), (2 * size,))
    d = k.draw
    k.directives = f" .reqnctapercluster {size}, 1, 1"
    k.declared.append(f".shared .align 16 .b32 {name}_s[64];")
    base, mine, rank, peer, remote = (k.reg(32) for _ in range(5))
    k.emit(f"mov.u32 {base}, {name}_s;", f"mad.lo.u32 {mine}, %t, 4, {base};", f"mov.u32 {rank}, %cluster_ctarank;")
    value = k.load("b32")
    k.emit(f"st.shared.b32 [{mine}], {value};", f"st.shared.b32 [{mine}+128], %t;")
    k.emit("barrier.cluster.arrive;", "barrier.cluster.wait;")
    k.emit(
        f"add.u32 {peer}, {rank}, {d.between(1, size - 1)};",
        f"rem.u32 {peer}, {peer}, {size};",
        f"mapa.shared::cluster.u32 {remote}, {mine}, {peer};",
    )
    r = k.reg(32)
    k.emit(f"ld.shared::cluster.b32 {r}, [{remote}];")
    k.store(r, "b32", label="ld.shared::cluster")
    k.emit("barrier.cluster.arrive.release;", "barrier.cluster.wait.acquire;")
    how = d.below(3)
    if how == 0:
        k.emit(f"mad.lo.u32 {r}, {r}, 3, {rank};", f"st.shared::cluster.b32 [{remote}], {r};")
    elif how == 1:
        k.emit(f"red.relaxed.cluster.shared::cluster.{d.pick(('add.u32', 'xor.b32', 'max.s32'))} [{remote}], {r};")
    else:
        g = k.reg(64)
        k.emit(f"cvt.u64.u32 {g}, {remote};", f"cvta.shared::cluster.u64 {g}, {g};", f"st.b32 [{g}], {r};")
    k.emit("barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;")
    k.emit(f"ld.shared.b32 {r}, [{mine}];")
    k.store(r, "b32", label="shared memory written by another block")
    who = k.reg(32)
    k.emit(f"getctarank.shared::cluster.u32 {who}, {remote};")
    k.store(who, "b32", label="getctarank")
    for special in d.shuffled(
        ("%clusterid.x", "%nclusterid.x", "%cluster_ctaid.x", "%cluster_nctaid.x", "%cluster_nctarank")
    )[:2]:
        s = k.reg(32)
        k.emit(f"mov.u32 {s}, {special};")
        k.store(s, "b32", label=special)
    k.emit("barrier.cluster.arrive;", "barrier.cluster.wait;")
    return k.case()


def spread(name: str) -> Case:
    """One block's copy goes to all blocks of its cluster, each of which waits at its own barrier."""
    size = Kernel(name, "", (1,)).draw.pick((2, 4))
    k = Kernel(name, "cluster", (32,), (2 * size,))
    d = k.draw
    k.directives = f" .reqnctapercluster {size}, 1, 1"
    base, bar, first = start(k, name, 512)
    data = k.reserve_input(bytes(d.bits(8) for _ in range(1024)))
    sender, source, rank = k.reg(1), k.reg(64), k.reg(32)
    mask = d.between(1, (1 << size) - 1)
    k.emit(
        f"mov.u32 {rank}, %cluster_ctarank;",
        f"setp.eq.and.u32 {sender}, {rank}, {d.below(size)}, {first};",
        f"add.u64 {source}, %in, {data + 16 * d.below(32)};",
    )
    # a block that receives no data expects no bytes
    mine, expects = k.reg(32), k.reg(1)
    at, r = k.reg(32), k.reg(32)
    k.emit(
        f"mad.lo.u32 {at}, %t, 16, {base};",
        f"st.shared.v4.b32 [{at}], {{%t, %t, {rank}, {rank}}};",
        f"shr.u32 {mine}, {mask}, {rank};",
        f"and.b32 {mine}, {mine}, 1;",
        f"setp.eq.and.u32 {expects}, {mine}, 1, {first};",
        f"mul.lo.u32 {mine}, {mine}, 512;",
        f"@{first} mbarrier.arrive.expect_tx.shared::cta.b64 _, [{bar}], {mine};",
        "fence.proxy.async;",
        "barrier.cluster.arrive;",
        "barrier.cluster.wait;",
        f"mov.u32 {r}, {mask};",
    )
    half = k.reg(16)
    k.emit(
        f"cvt.u16.u32 {half}, {r};",
        f"@{sender} cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        f"[{base}], [{source}], 512, [{bar}], {half};",
    )
    wait(k, bar, 0)
    words = [k.reg(32) for _ in range(4)]
    k.emit(f"ld.shared.v4.b32 {{{', '.join(words)}}}, [{at}];")
    for w in words:
        k.store(w, "b32", label="multicast")
    k.emit("barrier.cluster.arrive;", "barrier.cluster.wait;")
    return k.case()


def sent(name: str) -> Case:
    """st.async, red.async and arrivals at the barrier of another block."""
    k = Kernel(name, "cluster", (32,), (4,))
    d = k.draw
    k.directives = " .reqnctapercluster 2, 1, 1"
    how = d.below(3)
    base, bar, first = start(k, name, 512, 32 if how == 2 else 1)
    mine, remote, theirs, peer, r = (k.reg(32) for _ in range(5))
    vector = d.pick((1, 2, 4))
    size = {0: 4 * vector, 1: 4, 2: 4}[how]
    k.emit(
        f"mad.lo.u32 {mine}, %t, 16, {base};",
        f"st.shared.v4.b32 [{mine}], {{%t, %i, 7, 9}};",
        f"mov.u32 {peer}, %cluster_ctarank;",
        f"xor.b32 {peer}, {peer}, 1;",
        f"mapa.shared::cluster.u32 {remote}, {mine}, {peer};",
        f"mapa.shared::cluster.u32 {theirs}, {bar}, {peer};",
    )
    if how < 2:
        k.emit(f"@{first} mbarrier.arrive.expect_tx.shared::cta.b64 _, [{bar}], {32 * size};")
    k.emit("barrier.cluster.arrive;", "barrier.cluster.wait;")
    if how == 0:
        values = [k.load("b32") for _ in range(vector)]
        shown = values[0] if vector == 1 else "{" + ", ".join(values) + "}"
        k.emit(
            f"st.async.shared::cluster.mbarrier::complete_tx::bytes{'' if vector == 1 else f'.v{vector}'}.b32 "
            f"[{remote}], {shown}, [{theirs}];"
        )
    elif how == 1:
        op = d.pick(("inc.u32", "dec.u32", "min.u32", "max.s32", "add.u32", "and.b32", "or.b32", "xor.b32"))
        k.emit(
            f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op} "
            f"[{remote}], {k.load('b32')}, [{theirs}];"
        )
    else:
        k.emit(
            f"st.shared::cluster.b32 [{remote}], {k.load('b32')};",
            f"mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{theirs}];",
        )
    again, p = k.label(), k.reg(1)
    k.emit(
        f"{again}:",
        f"mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 {p}, [{bar}], 0;",
        f"@!{p} bra {again};",
    )
    for i in range(max(1, size // 4)):
        k.emit(f"ld.shared.b32 {r}, [{mine}+{4 * i}];")
        k.store(r, "b32", label=("st.async", "red.async", "arrival at another block")[how])
    k.emit("barrier.cluster.arrive;", "barrier.cluster.wait;")
    return k.case()


def matrix(k: Kernel, where: str, dtype: str) -> tuple[Map, int]:
    """A map of a new matrix, and the bytes of its box."""
    d = k.draw
    size = DEPTH[dtype]
    swizzle = d.pick((16, 32, 64, 128))
    inner = (swizzle if swizzle > 16 else d.pick((16, 32, 64, 128))) // size
    rows = d.pick((8, 16, 24))
    columns = d.between(inner // 2 + 1, 3 * inner)
    height = d.between(5, 40)
    pitch = -(-columns * size // 16) * 16 + 16 * d.below(3)
    if where == "in":
        offset = k.reserve_input(bytes(d.bits(8) for _ in range(pitch * height)))
    else:
        offset = k.column("b32", label="tensor copies to global memory", count=pitch * height // 4).offset
    tensor = Map(where, offset, dtype, (columns, height), pitch, (inner, rows), swizzle)
    k.maps.append(tensor)
    return tensor, inner * rows * size


def corner(k: Kernel, tensor: Map, low: tuple[int, int], high: tuple[int, int]) -> tuple[int, int]:
    """Where a box begins: in steps of 16 bytes, or the copy is an illegal instruction."""
    step = 16 // DEPTH[tensor.dtype]
    return k.draw.between(low[0], high[0]) // step * step, k.draw.between(low[1], high[1])


def tensor_loaded(name: str) -> Case:
    """Boxes of a matrix to shared memory, partly or wholly outside of it, in every swizzle."""
    k = Kernel(name, "tensor", (64,))
    d = k.draw
    dtype = d.pick(tuple(DEPTH))
    tensor, size = matrix(k, "in", dtype)
    room = -(-size // 1024) * 1024
    iterations = d.between(1, 2)
    base, bar, first = start(k, name, room)
    # bytes that the copies do not cover are defined too
    at, p, again = k.reg(32), k.reg(1), k.label()
    k.emit(
        f"mul.lo.u32 {at}, %t, 4;",
        f"{again}:",
        f"add.u32 %w, {base}, {at};",
        f"st.shared.b32 [%w], {at};",
        f"add.u32 {at}, {at}, 256;",
        f"setp.lt.u32 {p}, {at}, {room};",
        f"@{p} bra {again};",
        "fence.proxy.async;",
        "bar.sync 0;",
    )
    map_, x, y = k.reg(64), k.reg(32), k.reg(32)
    k.emit(f"mov.b64 {map_}, map0;", f"cvta.param.u64 {map_}, {map_};")
    for iteration in range(iterations):
        where = corner(
            k, tensor, (-tensor.box[0] - 2, -tensor.box[1] - 2), (tensor.extents[0] + 2, tensor.extents[1] + 2)
        )
        k.emit(f"mov.s32 {x}, {where[0]};", f"mov.s32 {y}, {where[1]};")
        k.emit(
            f"@{first} mbarrier.arrive.expect_tx.shared::cta.b64 _, [{bar}], {size};",
            f"@{first} cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [{base}], "
            f"[{map_}, {{{x}, {y}}}], [{bar}];",
        )
        wait(k, bar, iteration & 1)
        read_back(k, base, room, f"tensor copy to shared memory, swizzle {tensor.swizzle}")
        k.emit("fence.proxy.async;", "bar.sync 0;")
    return k.case()


def tensor_stored(name: str) -> Case | None:
    """Boxes from shared memory to a matrix, stored or added; elements outside the matrix are unchanged.

    None if one begins left of the matrix or above it: to store that is an illegal instruction.
    """
    k = Kernel(name, "tensor", (64,))
    d = k.draw
    dtype = d.pick(("u8", "f16", "bf16", "f32"))
    tensor, size = matrix(k, "out", dtype)
    room = -(-size // 1024) * 1024
    base, _, first = start(k, name, room)
    element = {"u8": "b32", "f16": "f16x2", "bf16": "bf16x2", "f32": "f32"}[dtype]
    at = k.reg(32)
    k.emit(f"mad.lo.u32 {at}, %t, 4, {base};")
    for i in range(room // 256):
        k.emit(f"st.shared.b32 [{at}+{256 * i}], {k.load(element)};")
    k.emit("fence.proxy.async;", "bar.sync 0;")
    map_, x, y = k.reg(64), k.reg(32), k.reg(32)
    k.emit(f"mov.b64 {map_}, map0;", f"cvta.param.u64 {map_}, {map_};")
    inside = True
    for iteration in range(2):
        where = corner(
            k, tensor, (-tensor.box[0] // 2, -tensor.box[1] // 2), (tensor.extents[0] - 1, tensor.extents[1] - 1)
        )
        inside = inside and min(where) >= 0
        k.emit(f"mov.s32 {x}, {where[0]};", f"mov.s32 {y}, {where[1]};")
        op = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
        if iteration and dtype != "u8":
            how = d.pick(("add", "add", "min", "max") if dtype != "f32" else ("add",))
            op = f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{how}.tile.bulk_group"
        k.emit(
            f"@{first} {op} [{map_}, {{{x}, {y}}}], [{base}];",
            f"@{first} cp.async.bulk.commit_group;",
            f"@{first} cp.async.bulk.wait_group 0;",
        )
    return k.case() if inside else None


def cases() -> list[Case]:
    stores = [tensor_stored(f"tensor_store_{i:02d}") for i in range(24)]
    return [
        *(loaded(f"bulk_load_{i:02d}") for i in range(16)),
        *(stored(f"bulk_store_{i:02d}") for i in range(36)),
        *(mbarrier(f"mbarrier_{i:02d}") for i in range(30)),
        *(clustered(f"cluster_{i:02d}") for i in range(20)),
        *(spread(f"multicast_{i:02d}") for i in range(10)),
        *(sent(f"sent_{i:02d}") for i in range(20)),
        *(tensor_loaded(f"tensor_load_{i:02d}") for i in range(30)),
        *(case for case in stores if case is not None),
    ]
