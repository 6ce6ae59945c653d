"""Collective operations of threads: shuffles, votes, matches, reductions under masks; barriers with ids, counts and votes."""

from __future__ import annotations

from .kernel import Case, Kernel

FULL = "0xffffffff"


def few(k: Kernel, dtype: str = "b32") -> str:
    """Values of which several lanes have the same."""
    values = [k.draw.value(dtype) for _ in range(k.draw.between(2, 5))]
    same = k.draw.chance(25)
    return k.load(dtype, [values[0] if same else k.draw.pick(values) for _ in range(k.total)])


def shuffle(name: str) -> Case:
    """All modes, with segments and clamps, by constant amounts and by amounts that differ between lanes."""
    k = Kernel(name, "shuffle", (64,))
    d = k.draw
    value = k.load("b32")
    for _ in range(4):
        mode = d.pick(("up", "down", "bfly", "idx"))
        width = d.pick((32, 32, 16, 8, 4, 2))
        clamp = 0 if mode == "up" else 31
        c = (32 - width) << 8 | (clamp if d.chance(75) else d.below(32))
        segment = 32 - width
        if d.chance(50):
            by = str(d.below(40))
        else:
            by = k.load("u32", [d.below(32) if d.chance(90) else d.bits(32) for _ in range(k.total)])
        r, p = k.reg(32), k.reg(1)
        limit = str(c)
        if d.chance(30):
            limit = k.load("u32", [segment << 8 | (d.below(32) if mode != "up" else 0) for _ in range(k.total)])
        k.emit(f"shfl.sync.{mode}.b32 {r}|{p}, {value}, {by}, {limit}, {FULL};")
        k.store(r, "b32", label=f"shfl.{mode} {width}")
        k.store(p, "pred", label=f"shfl.{mode} {width}")
        if d.chance(50):
            value = r
    return k.case()


def grouped(name: str) -> Case:
    """Shuffles within aligned groups of lanes, under the masks of the groups, by some lanes only."""
    k = Kernel(name, "shuffle", (64,))
    d = k.draw
    lane, group, mask, p = k.reg(32), k.reg(32), k.reg(32), k.reg(1)
    log = d.between(1, 4)
    size = 1 << log
    k.emit(f"mov.u32 {lane}, %laneid;", f"shr.u32 {group}, {lane}, {log};", f"mov.u32 {mask}, {(1 << size) - 1};")
    first = k.reg(32)
    k.emit(f"shl.b32 {first}, {group}, {log};", f"shl.b32 {mask}, {mask}, {first};")
    value = k.load("b32")
    result, ok = k.reg(32), k.reg(1)
    k.emit(f"mov.b32 {result}, 0;", f"setp.ne.u32 {ok}, 0, 0;")
    bit = k.reg(32)
    other, end = k.label(), k.label()
    k.emit(f"and.b32 {bit}, {group}, 1;", f"setp.eq.u32 {p}, {bit}, 0;", f"@{p} bra {other};")
    for label in ("", other):
        if label:
            k.emit(f"bra {end};", f"{label}:")
        mode = d.pick(("up", "down", "bfly", "idx"))
        c = (32 - size) << 8 | (0 if mode == "up" else 31)
        k.emit(f"shfl.sync.{mode}.b32 {result}|{ok}, {value}, {d.below(size)}, {c}, {mask};")
        if d.chance(50):
            k.emit(f"redux.sync.{d.pick(('and', 'or', 'xor'))}.b32 {bit}, {result}, {mask};")
    k.emit(f"{end}:")
    k.store(result, "b32", label=f"shfl.{mode} in groups of {size}")
    k.store(ok, "pred")
    k.store(bit, "b32")
    return k.case()


def together(k: Kernel, mask: str) -> None:
    """Votes, matches and reductions."""
    d = k.draw
    p = k.load("pred", [int(d.chance(90)) for _ in range(k.total)] if d.chance(40) else None)
    for _ in range(3):
        how = d.below(8)
        r, q = k.reg(32), k.reg(1)
        if how == 0:
            k.emit(f"vote.sync.ballot.b32 {r}, {d.pick(('', '!'))}{p}, {mask};")
            k.store(r, "b32", label="vote.ballot")
        elif how < 3:
            mode = d.pick(("all", "any", "uni"))
            k.emit(f"vote.sync.{mode}.pred {q}, {d.pick(('', '!'))}{p}, {mask};")
            k.store(q, "pred", label=f"vote.{mode}")
        elif how < 5:
            dtype = d.pick(("b32", "b64"))
            mode = d.pick(("any", "all"))
            x = few(k, dtype)
            if mode == "any":
                k.emit(f"match.any.sync.{dtype} {r}, {x}, {mask};")
            else:
                k.emit(f"match.all.sync.{dtype} {r}|{q}, {x}, {mask};")
                k.store(q, "pred", label=f"match.{mode}.{dtype}")
            k.store(r, "b32", label=f"match.{mode}.{dtype}")
        elif how < 7:
            op = d.pick(
                ("add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32")
            )
            k.emit(f"redux.sync.{op} {r}, {k.load('b32')}, {mask};")
            k.store(r, "b32", label=f"redux.{op}")
        else:
            k.emit(f"elect.sync {r}|{q}, {mask};")
            k.store(r, "b32", label="elect")
            k.store(q, "pred", label="elect")


def converged(name: str) -> Case:
    """All lanes, of whole warps or not."""
    k = Kernel(name, "vote", (Kernel(name, "", (1,)).draw.pick((64, 64, 41, 96)),))
    together(k, FULL)
    return k.case()


def masked(name: str) -> Case:
    """Two sides of a branch, each with the mask of its own lanes, then all again."""
    k = Kernel(name, "vote", (64,))
    d = k.draw
    p = k.load("pred")
    yes, no = k.reg(32), k.reg(32)
    other, end = k.label(), k.label()
    k.emit(f"vote.sync.ballot.b32 {yes}, {p}, {FULL};", f"not.b32 {no}, {yes};", f"@!{p} bra {other};")
    together(k, yes)
    leader = k.reg(32)
    r = k.reg(32)
    k.emit(f"bfind.u32 {leader}, {yes};", f"shfl.sync.idx.b32 {r}, {k.load('b32')}, {leader}, 31, {yes};")
    k.store(r, "b32", label="shfl from the highest lane of a mask")
    k.emit(f"bra {end};", f"{other}:")
    together(k, no)
    low = k.reg(32)
    k.emit(
        f"neg.s32 {low}, {no};",
        f"and.b32 {low}, {low}, {no};",
        f"bfind.u32 {low}, {low};",
        f"shfl.sync.idx.b32 {r}, {k.load('b32')}, {low}, 31, {no};",
    )
    k.store(r, "b32", label="shfl from the lowest lane of a mask")
    k.emit(f"{end}:", f"bar.warp.sync {FULL};")
    k.emit(f"shfl.sync.down.b32 {r}, {r}, {d.between(1, 5)}, 31, {FULL};")
    k.store(r, "b32")
    return k.case()


def exchange(name: str) -> Case:
    """Rounds of store, barrier, load through shared memory; barriers with votes between."""
    warps = Kernel(name, "", (1,)).draw.between(2, 4)
    k = Kernel(name, "barrier", (32 * warps,))
    d = k.draw
    k.declared.append(f".shared .align 16 .b8 {name}_s[{4 * k.threads}];")
    base, mine, theirs, at = k.reg(32), k.reg(32), k.reg(32), k.reg(32)
    k.emit(f"mov.u32 {base}, {name}_s;", f"mad.lo.u32 {mine}, %t, 4, {base};")
    value = k.load("b32")
    p = k.load("pred")
    sync = d.pick(("bar.sync", "barrier.sync", "barrier.cta.sync.aligned", "barrier.sync.aligned"))
    for turn in range(d.between(2, 3)):
        number = d.below(16)
        count = f", {k.threads}" if d.chance(40) else ""
        k.emit(f"st.shared.b32 [{mine}], {value};")
        if d.chance(40):
            how = d.pick(("popc", "and", "or"))
            r, q = k.reg(32), k.reg(1)
            arguments = f"{number}{count}, {d.pick(('', '!'))}{p};"
            if how == "popc":
                k.emit(f"bar.red.popc.u32 {r}, {arguments}")
                k.store(r, "b32", label="bar.red.popc")
                k.emit(f"and.b32 {r}, {r}, %t;", f"setp.gt.u32 {p}, {r}, {d.below(8)};")
            else:
                k.emit(f"bar.red.{how}.pred {q}, {arguments}")
                k.store(q, "pred", label=f"bar.red.{how}")
                k.emit(f"xor.pred {p}, {p}, {q};")
        else:
            k.emit(f"{sync} {number}{count};")
        step = d.pick([n for n in (5, 7, 11, 31, 33) if k.threads % n])
        k.emit(
            f"mad.lo.u32 {at}, %t, {step}, {d.below(200)};",
            f"rem.u32 {at}, {at}, {k.threads};",
            f"mad.lo.u32 {theirs}, {at}, 4, {base};",
        )
        other = k.reg(32)
        k.emit(f"ld.shared.b32 {other}, [{theirs}];", f"mad.lo.u32 {value}, {value}, 33, {other};")
        k.emit(f"{sync} {d.pick((0, number))};")
        k.store(value, "b32", label=f"exchange {turn}")
    return k.case()


def divided(name: str) -> Case:
    """Warps in two halves, each with its own barrier; producers that arrive, consumers that wait."""
    k = Kernel(name, "barrier", (128,))
    d = k.draw
    k.declared.append(f".shared .align 16 .b8 {name}_s[512];")
    mine, at, p, r = k.reg(32), k.reg(32), k.reg(1), k.reg(32)
    base = k.reg(32)
    k.emit(f"mov.u32 {base}, {name}_s;", f"mad.lo.u32 {mine}, %t, 4, {base};", f"mov.b32 {r}, 0;")
    value = k.load("b32")
    k.emit(f"setp.ge.u32 {p}, %t, 64;")
    other, end = k.label(), k.label()
    a, b = d.shuffled(range(1, 16))[:2]  # 0 is for all
    if d.chance(50):
        k.emit(f"@{p} bra {other};")
        for number, label in ((a, ""), (b, other)):
            if label:
                k.emit(f"bra {end};", f"{label}:")
            for _ in range(d.between(1, 3)):
                k.emit(
                    f"st.shared.b32 [{mine}], {value};",
                    f"bar.sync {number}, 64;",
                    f"xor.b32 {at}, %t, {d.between(1, 63)};",
                    f"mad.lo.u32 {at}, {at}, 4, {base};",
                    f"ld.shared.b32 {r}, [{at}];",
                    f"add.u32 {value}, {value}, {r};",
                    f"bar.sync {number}, 64;",
                )
        k.emit(f"{end}:")
    else:
        # producers of the upper half write the data that the lower half reads, once in each iteration
        rounds = d.between(1, 3)
        k.emit(f"@{p} bra {other};")
        for _ in range(rounds):
            k.emit(
                f"bar.sync {a}, 128;",
                f"xor.b32 {at}, %t, {d.below(64)};",
                f"mad.lo.u32 {at}, {at}, 4, {base};",
                f"ld.shared.b32 {r}, [{at}+256];",
                f"mad.lo.u32 {value}, {value}, 5, {r};",
                f"bar.arrive {b}, 128;",
            )
        k.emit(f"bra {end};", f"{other}:")
        for _ in range(rounds):
            k.emit(
                f"st.shared.b32 [{mine}], {value};",
                f"bar.arrive {a}, 128;",
                f"mad.lo.u32 {value}, {value}, 9, %t;",
                f"bar.sync {b}, 128;",
            )
        k.emit(f"{end}:")
    k.emit("bar.sync 0;")
    k.store(value, "b32")
    return k.case()


def cases() -> list[Case]:
    return [
        *(shuffle(f"shuffle_{i:03d}") for i in range(60)),
        *(grouped(f"grouped_{i:03d}") for i in range(30)),
        *(converged(f"vote_{i:03d}") for i in range(60)),
        *(masked(f"masked_{i:03d}") for i in range(40)),
        *(exchange(f"exchange_{i:03d}") for i in range(60)),
        *(divided(f"divided_{i:03d}") for i in range(30)),
    ]
