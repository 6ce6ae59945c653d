"""Order of mbarrier initialisation and use in emitted PTX.

One thread initialises the mbarriers of a block. Every other thread, those of the same warp included, may use one only
after a barrier that both have waited at: ``bar.sync`` or ``barrier.cluster.wait``. ``bar.arrive`` is not enough: the
threads that arrive do not wait.
"""

from __future__ import annotations

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.emulator.ptx.parser import parse
from ptxgen.emulator.ptx.syntax import Function, Instruction
from ptxgen.families.plan_factory import plan_for
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse as parse_problem
from tests.cases import SOURCES
from tests.golden.test_golden import GOLDEN

H200 = device("h200")
BEFORE, OWN, ORDERED = range(3)  # no barrier yet; this thread initialised; a barrier has been waited at


def waits(ins: Instruction) -> bool:
    blocks = ins.op in ("bar", "barrier") and "sync" in ins.mods and "warp" not in ins.mods
    return blocks or ins.name.startswith("barrier.cluster.wait")


def uses(ins: Instruction) -> bool:
    return (ins.op == "mbarrier" and "init" not in ins.mods) or "mbarrier::complete_tx::bytes" in ins.mods


def unordered(function: Function) -> list[Instruction]:
    """Uses of an mbarrier that a path from the entry reaches before it initialises the mbarrier or waits at a barrier."""
    early, seen, work = [], set(), [(0, BEFORE)]
    while work:
        place = at, state = work.pop()
        if place in seen or at >= len(function.code):
            continue
        seen.add(place)
        ins = function.code[at]
        if uses(ins) and state == BEFORE:
            early.append(ins)
            continue
        if ins.name.startswith("mbarrier.init"):
            state = OWN
        elif waits(ins):
            state = ORDERED
        falls = ins.op not in ("bra", "ret", "exit") or ins.pred is not None
        if ins.op == "bra":
            work.append((ins.scope, state))  # the parser puts the target there
        if falls:
            work.append((at + 1, state))
    return early


def kernels(text: str) -> list[Function]:
    unit = parse(text)
    return [f for f in unit.functions.values() if any(ins.name.startswith("mbarrier.init") for ins in f.code)]


def checked(text: str) -> int:
    """Asserts the order in every kernel of ``text`` that has mbarriers; returns their number."""
    functions = kernels(text)
    for function in functions:
        late = unordered(function)
        assert not late, f"{function.name}: {late[0].text} (line {late[0].line}) may run before a barrier"
    return len(functions)


@pytest.mark.parametrize("name", [name for name in GOLDEN if name.startswith("wgmma_")])
def test_golden_kernels(name):
    where, problem, config = GOLDEN[name]
    assert checked(render(plan_for(parse_problem(problem), parse_config(config), device(where))).text)


@pytest.mark.parametrize(("seed", "source"), [(78, "wgmma"), (72, "bf16x3")])
def test_random_kernels(seed, source):
    texts = [render(plan_for(p, c, H200)).text for p, c in SOURCES[source].cases(seed, 24, H200, limit=700)]
    assert all(checked(text) for text in texts)
    if source == "wgmma":  # clusters, register reallocation and the transposition kernel are among them
        for part in ("barrier.cluster.wait", "setmaxnreg", "_transpose("):
            assert any(part in text for text in texts), part


BODY = """.version 8.1
.target sm_90a
.address_size 64
.visible .entry k() {{
    .shared .align 8 .b8 bar[8];
    .reg .pred %one, %ready;
    elect.sync _|%one, 0xffffffff;
    @!%one bra JOIN;
    mbarrier.init.shared::cta.b64 [bar], 1;
{own}
JOIN:
{order}
    mbarrier.try_wait.parity.shared::cta.b64 %ready, [bar], 0;
    ret;
}}
"""


@pytest.mark.parametrize(
    ("own", "order", "early"),
    [
        ("", "bar.warp.sync 0xffffffff; bar.arrive 0, 64;", 1),
        ("", "bar.warp.sync 0xffffffff; bar.sync 0, 64;", 0),
        ("", "barrier.cluster.arrive; barrier.cluster.wait;", 0),
        ("", "", 1),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;", "bar.sync 0;", 0),
    ],
)
def test_the_check_finds_a_missing_barrier(own, order, early):
    (function,) = kernels(BODY.format(own=own, order=order))
    assert len(unordered(function)) == early
