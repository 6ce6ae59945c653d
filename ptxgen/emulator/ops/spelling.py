"""Suggestions for misspelt instructions."""

from __future__ import annotations

from dataclasses import replace

from ptxgen.arguments import closest
from ptxgen.emulator.ops.registry import TABLE, find
from ptxgen.emulator.ptx.syntax import SIZES, Instruction

#: modifiers of instructions, other than types, shapes and vectors
_WORDS = """
a1d a2d acq_rel acquire add adds aligned all alloc and any approx arrive async atom ballot bfly bulk bulk_group ca
cache_hint cas cc cg clamp clear cluster col commit_group complete_tx const cs cta cu cv dec down eq equ evict_first
evict_last exch expect_tx explicit fence finite ftz full ge gequ geu global gpu gt gtu hi hs idx im2col inc infinite
init inval is le left leu lo local ls lt ltu lu lut m8n8 mask max mbarrier mbarrier_init min mma_async mode
multicast nan NaN nc ne neu noftz noinc normal notanumber num oob or param pack popc proxy prefetch pred read red
reduce relaxed release relu right rm rn rna rni rnd row rp rs rz rzi rmi rpi sat satfinite shared shiftamt sp
subnormal sync sys tensor test_wait tile to trans try_wait uni unified unpack up volatile wait wait_all wait_group
warp wb wide wrap wt x1 x2 x4 xor xorsign
"""


MODIFIERS = {*SIZES, *_WORDS.split()}


def suggestion(ins: Instruction) -> str:
    """A suggestion such as ", did you mean bar.sync" for bar.snyc; empty if no instruction is similar."""
    names = {name.partition(".")[0] for name in TABLE if name[0] != "*"}
    op = ins.op if ins.op in names else closest(ins.op, names) or ins.op
    mods = tuple(
        m if m in MODIFIERS or "::" in m or any(ch.isdigit() for ch in m) else closest(m, MODIFIERS) or m
        for m in ins.mods
    )
    corrected = replace(ins, op=op, mods=mods)
    return f", did you mean {corrected.name}" if corrected.name != ins.name and find(corrected) is not None else ""
