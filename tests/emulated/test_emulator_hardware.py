"""The emulated device against GPUs of sm_90: random modules, recorded on the hardware, give the same bits."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest
from fuzz import generate, recording
from fuzz.kernel import Case, Column

from ptxgen.emulator import Machine
from ptxgen.runtime.emulated import EmulatedDriver

FAMILIES = (
    "integer",
    "real",
    "convert",
    "compare",
    "carry",
    "predicate",
    "approximate",
    "straight",
    "byte",
    "overlap",
    "control",
    "call",
    "jump",
    "shuffle",
    "vote",
    "barrier",
    "memory",
    "atomic",
    "copy",
    "mma",
    "fragment",
    "wgmma",
    "bulk",
    "mbarrier",
    "cluster",
    "tensor",
)
#: of the cases of these families, every second, fourth or sixteenth one is executed; but for the last four families,
#: these have every form of an instruction that the others have
STEPS = {
    **dict.fromkeys(("straight", "control"), 16),
    **dict.fromkeys(("predicate", "byte", "overlap", "call", "jump", "shuffle", "vote", "barrier"), 4),
    **dict.fromkeys(("integer", "real", "convert", "memory"), 2),
}
ENGINES = ["numpy", pytest.param("llvm", marks=pytest.mark.skipif(not find_spec("llvmlite"), reason="no llvmlite"))]
#: where the moment at which something asynchronous happens could matter: every other module is executed with each
ASYNCHRONOUS = {"copy", "wgmma", "bulk", "mbarrier", "cluster", "tensor"}


@cache
def recorded() -> recording.Recording:
    return recording.read()


def run(machine: Machine, module, case: Case) -> bytes:
    source, out = machine.alloc(max(len(case.input), 16)), machine.alloc(max(case.output, 16))
    machine.write(source, case.input)
    try:
        parameters = case.parameters(source, out, EmulatedDriver().tensor_map)
        machine.launch(module, case.name, case.grid, case.block, parameters, case.shared)
        return machine.read(out, case.output)
    finally:
        machine.free(source)
        machine.free(out)


@pytest.mark.parametrize("family", FAMILIES)
def test_results_match_the_recording(family, draws):
    """The recording is that of these cases. With --exhaustive, all are executed."""
    step, wrong = STEPS.get(family, 1) if draws == 1 else 1, []
    for number, file in enumerate(generate.files_of(family)):
        machine = Machine(seed=number, stats="off")
        module = machine.load(file.text)
        assert [recorded().digests.get(case.name) for case in file.cases] == [case.digest() for case in file.cases]
        for at, case in enumerate(file.cases):
            if (at + number) % step:
                continue
            completion = ("late", "early")[(at if family in ASYNCHRONOUS else number) % 2]
            machine.options = replace(machine.options, completion=completion)
            wrong += recording.differences(case, recorded().outputs[case.name], run(machine, module, case))
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(map(str, wrong[:20]))


@pytest.mark.parametrize("engine", ENGINES)
def test_directed_results_match_the_recording(engine):
    machine = Machine(stats="off", engine=engine)
    module = machine.load(generate.directed_file().text)
    wrong = []
    for case in generate.directed():
        assert recorded().digests[case.name] == case.digest()
        wrong += recording.differences(case, recorded().outputs[case.name], run(machine, module, case))
    assert not wrong, "\n".join(map(str, wrong[:20]))


@pytest.mark.gpu
def test_directed_results_match_this_gpu():
    from ptxgen.codegen.source import Source, Step
    from ptxgen.runtime.open_driver import open_driver

    driver, machine, file = open_driver("cuda"), Machine(stats="off"), generate.directed_file()
    names = tuple(c.name for c in file.cases)
    kernel = driver.load(Source(file.text, names, "sm_90a", max(c.shared for c in file.cases)))
    module = machine.load(file.text)
    wrong = []
    for case in file.cases:
        source, out = driver.allocate(max(len(case.input), 16)), driver.allocate(case.output + 16)
        driver.upload(source, np.frombuffer(case.input or b"\0", np.uint8))
        driver.fill(out, -(-case.output // 4) * 4)
        step = Step(case.name, case.grid, case.block, case.shared)
        driver.launch(kernel, step, case.parameters(source, out, driver.tensor_map))
        driver.synchronize()
        data = np.zeros(case.output, np.uint8)
        driver.download(out, data)
        wrong += recording.differences(case, data.tobytes(), run(machine, module, case))
    assert not wrong, "\n".join(map(str, wrong[:20]))


def test_recording_is_of_every_family(draws):
    """``test_results_match_the_recording`` compares the digests of the cases. With --exhaustive, no other is generated."""
    assert len(recorded().digests) > 2500
    assert draws == 1 or {case.family for case in generate.cases()} == set(FAMILIES)
    assert set(recorded().facts["device"].split(", ")) <= {"h200", "h100"}


@pytest.mark.parametrize(
    ("rule", "want", "got", "equal"),
    [
        ("", 1.0, 1.0, True),
        ("", 1.0, 1.0000001, False),
        ("", 0.0, -0.0, False),
        ("nan", np.nan, -np.nan, True),
        ("nan", 0.0, -0.0, False),
        ("ulp 1", 1.0000001, 1.0, True),
        ("ulp 1", 1.0000004, 1.0, False),
        ("ulp 1", np.inf, 3.4028235e38, True),
        ("ulp 1", np.inf, 1e38, False),
        ("abs 0.001", 0.5, 0.5009, True),
        ("abs 0.001", 0.5, 0.502, False),
        ("rel 0.001", 0.0005, 0.0006, False),
        ("rel 0.001", np.nan, 1.0, False),
        ("rel 0.001", -np.inf, np.inf, False),
        ("log 0.001", 100.0, 100.05, True),
        ("log 0.001", 0.0001, 0.0009, True),
    ],
)
def test_rules_of_equality(rule, want, got, equal):
    column = Column(0, 1, "f32", rule)
    pair = [np.array([x], "<f4").tobytes() for x in (want, got)]
    assert (len(recording.disagreeing(column, *pair)) == 0) == equal


def test_wrong_bit_is_reported_with_its_position():
    case = generate.files_of("integer")[0].cases[0]
    want = recorded().outputs[case.name]
    column = case.columns[1]
    got = bytearray(want)
    got[column.offset + 9] ^= 4
    (difference,) = recording.differences(case, want, bytes(got))
    size = recording.raw_dtype(column).itemsize
    assert (difference.case, difference.column, difference.thread) == (case.name, column, 9 // size)
    assert column.label in str(difference)
