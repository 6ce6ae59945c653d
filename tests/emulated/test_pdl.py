"""Programmatic dependent launch: each entry waits before it accesses memory; results are the same."""

from __future__ import annotations

import re

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import ConfigError
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from tests.emulated.test_epilogue import right

H200 = device("h200")
#: kernels of each family with an auxiliary kernel before, and with one after
KERNELS = {
    "simt": (Gemm(33, 40, 64), "ms=4 ns=4 ml=16 nl=32 kg=2 splitk=memset_red"),
    "flags": (Gemm(33, 40, 64), "ms=4 ns=4 ml=16 nl=32 kg=2 splitk=flag_red"),
    "mma": (
        Gemm(33, 37, 65, "NN", "f16"),
        "family=mma ms=16 ns=16 ml=32 nl=32 u=32 operand_path_a=pack operand_path_b=pack vec_a=8 vec_b=8",
    ),
    "wgmma": (Gemm(70, 40, 200, "NT", "f16"), "family=wgmma ml=64 nl=32 u=64 kg=2 splitk=workspace"),
    "persistent": (
        Gemm(150, 72, 136, "NT", "f16", epilogue="residual"),
        "family=wgmma ml=64 nl=32 u=64 epilogue_smem=1 persistent=1",
    ),
    "copies": (
        Gemm(65, 37, 67, "TN", "e4m3"),
        "family=wgmma ml=64 nl=64 u=64 stages=2 operand_path_a=pack operand_path_b=pack",
    ),
    "planes": (Gemm(70, 40, 72, "NN", "f32", "f32_bf16x6"), "family=wgmma ml=64 nl=16 u=32 stages=2"),
    "skinny": (
        Gemm(3, 130, 259, "NT", "f16"),
        "family=skinny ms=2 ns=4 ml=8 nl=32 u=512 kl=8 vec_b=8 lanes_long=8 long_n=1 mma_m16=1",
    ),
    "direct operands": (
        Gemm(65, 37, 67, "NN", "f16"),
        "family=wgmma ml=64 nl=64 u=32 stages=3 operand_path_a=realign operand_path_b=realign epilogue_smem=1",
    ),
    "blocks share": (Gemm(150, 72, 136, "NT", "f16"), "family=wgmma ml=64 nl=32 u=32 stages=2 cluster_x=2 cluster_y=2"),
    "split-K fix-up": (
        Gemm(64, 64, 256, "NT", "f16"),
        "family=wgmma ml=64 nl=64 u=64 kg=2 splitk=last_cta epilogue_smem=1",
    ),
}
#: instructions that access memory that another kernel may write or read
TOUCHES = re.compile(
    r"\b(ld\.(?!param|shared)|st\.(?!shared|async)|red\.|atom\.|cp\.async(?!\.\w*wait|\.commit|\.mbarrier))"
)


def entries(text: str) -> list[str]:
    return re.sub(r"//[^\n]*", "", text).split(".visible .entry")[1:]


@pytest.mark.each_value
@pytest.mark.parametrize("opens", ["on_exit", "on_start"])
@pytest.mark.parametrize("name", KERNELS)
def test_no_memory_access_before_griddepcontrol_wait(name: str, opens: str) -> None:
    """In text order; a path that jumps over the wait begins with a wait of its own."""
    p, text = KERNELS[name]
    source = render(plan_for(p, parse_config(f"{text} pdl={opens}"), H200))
    assert source.pdl_entries
    for entry in entries(source.text):
        assert entry.count("griddepcontrol.launch_dependents") == 1
        for path in entry.split("CONSUMER:"):
            waits, touch = path.find("griddepcontrol.wait"), TOUCHES.search(path)
            assert 0 <= waits < (touch.start() if touch else len(path))


@pytest.mark.parametrize("name", KERNELS)
def test_results_do_not_change(name: str) -> None:
    p, text = KERNELS[name]
    right(p, text + " pdl=on_exit")


def test_kernels_without_pdl_have_no_griddepcontrol() -> None:
    p, text = KERNELS["wgmma"]
    source = render(plan_for(p, parse_config(text), H200))
    assert "griddepcontrol" not in source.text
    assert not source.pdl_entries


@pytest.mark.parametrize(
    ("key", "text", "follow"),
    [
        (
            "gemm 129,130,131 NT f16",
            "family=wgmma ml=64 nl=64 u=64 stages=3 operand_path_a=pack operand_path_b=pack pdl=within_launch",
            ["gemm_f16_nt"],
        ),
        (
            "gemm 64,64,512 NT f16",
            "family=wgmma ml=64 nl=64 u=64 kg=4 splitk=workspace pdl=within_launch",
            ["gemm_f16_nt_reduce"],
        ),
        ("gemm 64,64,512 NT f32", "kg=4 pdl=within_launch", ["gemm_f32_nt"]),
        ("gemm 64,64,512 NT f16", "family=wgmma ml=64 nl=64 u=64 pdl=within_launch", []),
        (
            "gemm 65,67,43 NT f16",
            "family=wgmma ml=64 nl=64 u=32 stages=3 operand_path_a=realign operand_path_b=realign pdl=within_launch",
            [],
        ),
        (
            "conv N=2,C=16,H=5,W=7,K=24,R=3,S=2,pad=1 NCHW f16",
            "family=wgmma ml=64 nl=64 u=64 stages=3 operand_path_a=pack operand_path_b=pack pdl=within_launch",
            ["conv_f16_nn"],
        ),
        (
            "conv N=2,C=6,H=9,W=7,K=6,R=3,S=3,pad=1,groups=6 NCHW f32 direction=weight_grad",
            "family=depthwise strip_results=4 block_rows=2 block_lanes=32 kg=2 splitk=workspace pdl=within_launch",
            ["conv_f32_nt_add"],
        ),
        (
            "gemm 129,130,131 NT f16",
            "family=wgmma ml=64 nl=64 u=64 stages=3 operand_path_a=pack operand_path_b=pack pdl=on_exit",
            ["gemm_f16_nt_pack", "gemm_f16_nt"],
        ),
    ],
)
def test_pdl_within_a_launch(key: str, text: str, follow: list[str]) -> None:
    """With pdl=within_launch the first kernel of a launch does not overlap with the previous launch."""
    source = render(plan_for(parse(key), parse_config(text), H200))
    assert sorted(source.pdl_entries) == sorted(follow)
    right(parse(key), text)


@pytest.mark.parametrize("group", ["7,64,64+0,64,64 NN bf16 jagged=m", "64,64,7+64,64,0 TN bf16 jagged=k"])
def test_kernels_of_experts_start_while_their_table_is_made(group: str) -> None:
    source = render(
        plan_for(parse(f"grouped {group}"), parse_config("family=wgmma ml=64 nl=64 u=64 persistent=1"), H200)
    )
    product, table = entries(source.text)
    assert source.pdl_entries == (f"grouped_bf16_{group.split()[1].lower()}",)
    for path in (*product.split("CONSUMER:"), table):
        touch = TOUCHES.search(path)
        assert touch is not None
        assert 0 <= path.find("griddepcontrol.wait") < touch.start()


def test_pdl_needs_sm_90() -> None:
    with pytest.raises(ConfigError, match="pdl"):
        plan_for(Gemm(64, 64, 64), parse_config("pdl=on_exit"), device("a100"))
    with pytest.raises(ConfigError, match="pdl"):
        plan_for(Gemm(64, 64, 64), parse_config("pdl=4"), H200)
