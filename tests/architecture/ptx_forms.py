"""The rows of docs/ptx.md: the instructions of PTX, from the tables of the emulated device."""

from __future__ import annotations

from collections.abc import Iterable

from ptxgen.emulator.ops.asynchronous import remote_store
from ptxgen.emulator.ops.matrix import mma, mma_sparse, wgmma, wmma
from ptxgen.emulator.ptx import catalogue, operand_checks
from ptxgen.emulator.ptx.signatures import MODIFIERS, TYPES
from ptxgen.emulator.ptx.signatures import TABLE as SIGNATURES
from ptxgen.emulator.ptx.syntax import SIZES
from tests import ptx_catalogue

BITS = {name: i for i, name in enumerate((*SIZES, "f16", "bf16", "f32", "f64"))}


def ordered(types: Iterable[str]) -> list[str]:
    return sorted(types, key=lambda t: (BITS[t], t))


def alternatives(words: str) -> str:
    """``.a`` or ``.(a/b)``."""
    words = "/".join(MODIFIERS.get(word, word) for word in words.split("/"))
    return f".({words})" if "/" in words else f".{words}"


def form(names: str, modifiers: str, types: str) -> str:
    """One row of the signatures as PTX writes it: ``add{.sat}.s32``, with (a/b) for one of several words."""
    out = ""
    for group in modifiers.split():
        text = "…" if group == "*" else alternatives(group.rstrip("?"))
        out += f"{{{text}}}" if group.endswith("?") else text
    if types == "-":
        return f"`{names}{out}`"
    single = [t for several in types.split() if "." not in several for t in TYPES.get(several, several).split()]
    pairs = [several for several in types.split() if "." in several]
    forms = [f"`{names}{out}{alternatives('/'.join(single))}`"] if single else []
    for first in dict.fromkeys(t.split(".")[0] for t in pairs):
        seconds = [t.split(".")[1] for t in pairs if t.split(".")[0] == first]
        expanded = (TYPES.get(t, t).replace(" ", "/") for t in (first, "/".join(TYPES.get(t, t) for t in seconds)))
        forms.append(f"`{names}{out}{''.join(alternatives(t.replace(' ', '/')) for t in expanded)}`")
    return "<br>".join(forms)


def signature_forms() -> dict[str, list[str]]:
    """The forms of each instruction that has signatures."""
    out: dict[str, list[str]] = {}
    for line in SIGNATURES.splitlines():
        if not line.strip():
            continue
        names, mods, types, _ = operand_checks.columns(line)
        for name in names.split():
            out.setdefault(name, []).append(form(name, mods, types))
    return {name: list(dict.fromkeys(forms)) for name, forms in out.items()}


def matrix_forms() -> dict[str, list[str]]:
    """The forms of mma, wmma and wgmma: shapes and types of D, A, B and C."""
    out: dict[str, list[str]] = {"mma": [], "mma.sp": [], "wgmma": [], "wmma": []}
    grouped: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for (a, b, c), shapes in mma.SHAPES.items():
        grouped.setdefault((c, *shapes), {}).setdefault(a, []).append(b)
    for (c, *shapes), factors in grouped.items():
        kinds = ", ".join(f"{c}.{a}.{'/'.join(bs)}.{c}" for a, bs in factors.items())
        out["mma"].append(f"{' '.join(shapes)}: {kinds}")
    sparse: dict[tuple[int, int, str], dict[str, list[str]]] = {}
    for (a, b, c), depths in mma_sparse.DEPTHS.items():
        sparse.setdefault((*depths, c), {}).setdefault(a, []).append(b)
    for (*depths, c), factors in sparse.items():
        shapes = dict.fromkeys(f"m16n8k{k}" for k in depths)
        kinds = ", ".join(f"{c}.{a}.{'/'.join(bs)}.{c}" for a, bs in factors.items())
        out["mma.sp"].append(f"{' '.join(shapes)}: {kinds}")
    out["mma.sp"].append("also `mma.sp::ordered_metadata`")
    for a, k in wgmma.DEPTHS.items():
        results = [c for c in ("f16", "f32", "s32") if any(wgmma.allowed(c, a, b) for b in wgmma.DEPTHS)]
        others = [b for b in wgmma.DEPTHS if wgmma.allowed(results[-1], a, b)]
        types = f"{'/'.join(results)}.{a}.{'/'.join(others)}"
        sparse = f", `wgmma.mma_async.sp` m64nNk{2 * k}" if a != "b1" else ""
        out["wgmma"].append(f"`wgmma.mma_async` m64nNk{k}{sparse}: {types}")
    for a, (shapes, sums) in wmma.SHAPES.items():
        out["wmma"].append(f"{' '.join(shapes)}: A and B {a}, C and D {'/'.join(sums)}")
    return out


def other_forms() -> dict[str, list[str]]:
    """The forms of the instructions that functions check."""
    checks = operand_checks
    types = "types: " + " ".join(ordered(checks.STORED))
    scopes = "/".join(sorted(checks.SCOPES))

    def accesses(wrong_order: str, caches: str) -> list[str]:
        orders = "/".join(sorted(checks.ORDERS - {wrong_order}))
        caches = "/".join(c for c in caches.split() if c in checks.CACHE_OPERATIONS)
        return [types, "v2, v4, v8", f"orders {orders}, scopes {scopes}, caches {caches}, `.L1::…`, `.L2::…`, `.mmio`"]

    atomic = [f".{op}: {' '.join(ordered(types))}" for op, types in checks.ATOMIC_TYPES.items()]
    return {
        "mov": ["types: " + " ".join(checks.MOVED), "packs and unpacks vectors; `.v2`, `.v4`"],
        "cvt": [
            "between all of " + " ".join(ordered(checks.CONVERTED)),
            "to and from f16x2, bf16x2, e4m3x2, e5m2x2; to tf32; `cvt.pack`",
        ],
        "ld": [*accesses("release", "ca cg cs lu cv"), "`.nc`"],
        "st": accesses("acquire", "wb cg cs wt"),
        "ldu": [types, "v2, v4"],
        "atom": [*atomic, "v2, v4, v8"],
        "red": [*(x for x in atomic if not x.startswith((".exch", ".cas"))), "v2, v4, v8"],
        "st.async": ["of words and double words, v2 and v4, to `.shared::cluster`"],
        "red.async": [f".{op}: {' '.join(ordered(types))}" for op, types in remote_store.REDUCTIONS.items()],
    }


def taken(name: str) -> bool:
    """True if an instruction of the catalogue is emulated, at least in some form."""
    return (
        name not in catalogue.NOT_TAKEN
        and name not in catalogue.LATER
        and name.replace(".", " ") not in catalogue.LATER
    )


def forms_of(name: str) -> list[str]:
    signatures, matrices, others = signature_forms(), matrix_forms(), other_forms()
    if name in ptx_catalogue.FORMS:
        return [ptx_catalogue.FORMS[name]]
    op, _, rest = name.partition(".")
    rows = [] if rest == "sp" else [row for row in signatures.get(op, []) if row.startswith(f"`{name}")]
    return [*rows, *matrices.get(name, []), *others.get(name, [])]


def instructions() -> list[list[str]]:
    return [
        [chapter, f"`{name}`", "<br>".join(forms_of(name))]
        for chapter, names in ptx_catalogue.CHAPTERS.items()
        for name in names.split()
        if taken(name)
    ]


def described(key: str) -> str:
    """A key of the tables of the catalogue: ``name`` with ``.modifier``."""
    name, *mods = key.split()
    return f"`{name}`" + (" with " + ", ".join(f"`.{m}`" for m in mods) if mods else "")


def not_taken() -> list[list[str]]:
    rows = [[described(key), why] for key, why in catalogue.NOT_TAKEN.items()]
    return rows + [[what, why] for what, why in ptx_catalogue.OPERANDS_NOT_TAKEN.items()]


def later() -> list[list[str]]:
    by_target: dict[str, list[str]] = {}
    for key, target in catalogue.LATER.items():
        by_target.setdefault(target, []).append(described(key))
    return [[f"`{target}`", "; ".join(keys)] for target, keys in by_target.items()]


def directives() -> list[list[str]]:
    rows = [["taken", " ".join(f"`{name}`" for name in ptx_catalogue.DIRECTIVES.split())]]
    return rows + [[f"`{name}`", f"not taken: {why}"] for name, why in ptx_catalogue.DIRECTIVES_NOT_TAKEN.items()]


def special_registers() -> list[list[str]]:
    rows = [["taken", " ".join(f"`%{name}`" for name in ptx_catalogue.REGISTERS.split())]]
    return rows + [[f"`%{name}`", f"not taken: {why}"] for name, why in ptx_catalogue.REGISTERS_NOT_TAKEN.items()]
