"""Programmatic dependent launch: kernels between copies that write their inputs and fills that overwrite them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from ptxgen.operations.gemm.strided_arrays import C, elements, padded
from ptxgen.problem.reference import compare, epilogue_arrays, operands, reference
from ptxgen.runtime import cuda_graph
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.check import check
from ptxgen.runtime.open_driver import open_driver
from ptxgen.runtime.runner import Runner, Workspace, generate
from tests.cases import SOURCES
from tests.emulated.test_s8_outputs import EPILOGUES, OPTIONS, OUT_DTYPES, parse_config, problem, supported

pytestmark = pytest.mark.gpu
EACH = 60


@pytest.fixture(scope="module")
def driver():
    opened = open_driver("cuda")
    if opened.device.sm != 90:
        pytest.skip(f"{opened.device.name} has no wgmma")
    return opened


def test_kernels_in_streams_and_graphs(driver):
    chosen = []
    for n, name in enumerate(("simt", "mma", "wgmma")):
        for p, c in SOURCES[name].cases(90 + n, EACH, driver.device, limit=200):
            if p.m * p.n and not c.stream_k:  # blocks that share iterations start after the kernel before them
                chosen.append((p, replace(c, pdl=1 + len(chosen) % 2)))

    def build(pair):
        plan, source = generate(*pair, driver)
        assemble(source)
        return plan, source

    with ThreadPoolExecutor(16) as pool:
        made = list(zip(chosen, pool.map(build, chosen), strict=True))
    workspace, wrong = Workspace(driver), []
    for n, ((p, c), (plan, source)) in enumerate(made):
        runner = Runner(driver, plan, driver.load(source), p, workspace)
        arrays = operands(p, n) | epilogue_arrays(p, n)
        stored = padded(p, arrays)
        wide = tuple(stored.values())
        kept, used = ([driver.allocate(max(x.nbytes, 1)) for x in wide] for _ in range(2))
        result = driver.allocate(wide[2].nbytes)
        for address, x in zip(kept, wide, strict=True):
            driver.upload(address, x)
        for address, x in zip(used[3:], wide[3:], strict=True):
            driver.upload(address, x)
        beta = 0.0 if p.gated else 1.0  # a gated activation has no beta
        go = runner.bind(dict(zip(stored, used, strict=True)), 1.0, beta)
        stream = driver.stream

        def sequence(go=go, kept=kept, used=used, wide=wide, result=result, stream=stream):
            def copy(to, source_, size, stream):
                cuda_graph.call(cuda_graph.load().cuMemcpyDtoDAsync, to, source_, size, stream)

            for to, source_, x in zip(used[:3], kept, wide, strict=False):
                if x.nbytes:
                    copy(to, source_, x.nbytes, stream)
            go()
            copy(result, used[2], wide[2].nbytes, stream)
            for to, x in zip(used[:3], wide, strict=False):  # must not begin before the kernel has ended
                driver._fill(to, x.nbytes, 0xFF)

        with driver.context():
            sequence()
            sequence()
            with cuda_graph.Graph(driver.stream, lambda: (sequence(), sequence())) as replay:
                replay.launch()
                replay.launch()
        driver.synchronize()
        out = np.empty_like(wide[2])
        driver.download(result, out)
        deviation = compare(elements(p, C, out), reference(p, arrays, 1.0, beta))
        if not deviation.ok:
            wrong.append(f"{p.key()} | {c}: {deviation}")
        for address in (*kept, *used, result):
            driver.release(address)
    assert not wrong, f"{len(wrong)} of {len(made)}:\n" + "\n".join(wrong[:10])


@pytest.mark.parametrize("out", OUT_DTYPES["s8"])
def test_s8_products_are_stored_in_every_type(driver, out):
    for options, text in OPTIONS.items():
        for epilogue in ("", *(EPILOGUES if out != "s32" else ())):
            if supported(options, out):
                for result in check(driver, problem(out, epilogue), parse_config(text), 1):
                    assert result.ok, f"{options} {epilogue} {result.inputs}: {result.deviation}"
