"""``ptxgen emulate``: arguments, answers, faults, exit codes."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxgen.cli import app
from ptxgen.emulator.engine.arguments import TYPES, parse_argument
from ptxgen.errors import InputError

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
#: y[i] = a * x[i] + y[i] for i < n
SAXPY = (
    HEAD
    + """.visible .entry saxpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n)
{
.reg .b32 %r<4>; .reg .b64 %d<4>; .reg .f32 %f<4>; .reg .pred %p;
ld.param.u32 %r0, [n]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
setp.ge.u32 %p, %r1, %r0;
@%p ret;
ld.param.u64 %d0, [y]; ld.param.u64 %d1, [x]; ld.param.f32 %f0, [a];
mad.wide.u32 %d0, %r1, 4, %d0; mad.wide.u32 %d1, %r1, 4, %d1;
ld.global.f32 %f1, [%d1];
ld.global.f32 %f2, [%d0];
fma.rn.f32 %f2, %f1, %f0, %f2; st.global.f32 [%d0], %f2;
}
"""
)
Done = tuple[int, str, str]
Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``emulate`` in a folder of its own, with the given text as k.ptx."""
    monkeypatch.chdir(tmp_path)

    def call(text: str, *arguments: object) -> Done:
        Path("k.ptx").write_text(text)
        with pytest.raises(SystemExit) as ended:
            app(["emulate", "k.ptx", *map(str, arguments)])
        output = capsys.readouterr()
        return int(ended.value.code or 0), output.out, output.err

    return call


def saxpy(n: int, y: str = "f32[100]=iota:out=y.npy", x: str = "f32[100]=x.npy") -> list[str]:
    np.save("x.npy", np.linspace(-1, 1, 100, dtype="f4"))
    return ["--grid", "4,1,1", "--block", "32", "--arg", y, "--arg", x, "--arg", "f32:1.5", "--arg", f"u32:{n}"]


def test_launch_and_its_report(run):
    code, out, err = run(SAXPY, *saxpy(100))
    assert (code, err) == (0, "")
    x = np.linspace(-1, 1, 100, dtype="f4")
    # products and sums in float64 are exact enough: one rounding
    want = (x.astype("f8") * 1.5 + np.arange(100)).astype("f4")
    assert (np.load("y.npy") == want).all()
    lines = out.splitlines()
    assert lines[0].startswith("saxpy: 4 blocks, 128 threads")
    table = dict(line.split(None, 1) for line in lines if line.startswith(("fp32", "global_load", "global_store")))
    assert table["fp32"].split() == ["4", "100"]
    assert table["global_load"].split() == ["8", "200"]
    assert any(line.startswith("global loads   8 warp accesses, 800 bytes, 26 sectors") for line in lines)
    assert lines[-1] == "saved y.npy"


def test_json_document(run):
    code, out, _ = run(SAXPY, *saxpy(100), "--json", "--entry", "saxpy", "--statistics", "full", "--seed", 3)
    document = json.loads(out)
    assert code == 0
    assert (document["command"], document["file"], document["entry"]) == ("emulate", "k.ptx", "saxpy")
    assert (document["grid"], document["block"], document["fault"]) == ([4, 1, 1], [32], None)
    s = document["statistics"]
    assert (s["blocks"], s["threads"], s["atomics"], s["barriers"], s["mma"]) == (4, 128, 0, 0, 0)
    assert s["opcodes"]["fma.rn.f32"] == 4
    assert s["global_load"]["requests"] == 8
    assert s["global_store"]["bytes"] == 400
    assert [a["saved"] for a in document["arguments"]] == ["y.npy", None, None, None]
    assert document["arguments"][2] == {"name": "a", "type": "f32", "given": "f32:1.5", "saved": None}


def test_fault_is_reported_with_exit_code_1(run):
    code, out, err = run(SAXPY, *saxpy(101))
    assert (code, err) == (1, "")
    line = SAXPY[: SAXPY.index("ld.global.f32 %f1")].count("\n") + 1
    output = out.splitlines()
    assert output[0] == "OutOfBoundsFault: 4 bytes at offset 400, 0 bytes past the end of x, f32[100]"
    assert output[1:6] == [
        "  kernel       saxpy",
        f"  line         k.ptx:{line}",
        "  instruction  ld.global.f32 %f1, [%d1];",
        "  block        (3, 0, 0)",
        "  thread       (4, 0, 0)",
    ]
    assert output[6].startswith("  address      0x")
    assert not Path("y.npy").exists()
    code, out, _ = run(SAXPY, *saxpy(101), "--json")
    fault = json.loads(out)["fault"]
    assert code == 1
    assert (fault["kind"], fault["line"], fault["thread"]) == ("OutOfBoundsFault", line, [4, 0, 0])
    assert fault["address"] is not None
    assert json.loads(out)["statistics"] is None


def test_kernels_have_cpp_names(run):
    """Any part of the name that is unique; errors and answers show the C++ names."""
    symbols = "_ZN3app5countEPi", "_ZN3app5scaleIfEEvPT_i", "_ZN3app5scaleIdEEvPT_i"
    text = HEAD + "".join(f".visible .entry {name}(.param .u64 {name}_param_0) {{ ret; }}\n" for name in symbols)
    for name in ("app::count", "app::count(int*)", symbols[0]):
        code, out, _ = run(text, "--entry", name, "--arg", "s32[4]")
        assert (code, out.partition(":")[0]) == (0, "app")
        assert out.startswith("app::count(int*): 1 blocks")
    assert run(text, "--entry", "app::scale<float>", "--arg", "f32[4]")[0] == 0
    code, _, err = run(text, "--entry", "app::scale", "--arg", "f32[4]")
    assert code == 2
    assert "it must name one of the kernels of k.ptx: app::scale<float>(float*, int); app::scale<double>" in err
    code, _, err = run(text, "--entry", "app::count")
    assert code == 2
    assert "app::count(int*) takes 1 arguments (.u64 parameter 0), 0 --arg are given" in err


def test_continue_lists_several_faults(run):
    """The command exits with 1, shows one report for each line, and saves nothing."""
    arguments = saxpy(128, y="f32[120]:out=y.npy")
    code, out, err = run(SAXPY, *arguments, "--continue", 9)
    assert (code, err) == (1, "")
    assert out.count("OutOfBoundsFault: ") == 3
    assert "  occurred     28 times" in out
    assert out.endswith("\n\n3 different faults, which occurred 44 times\n")
    assert not Path("y.npy").exists()
    code, out, _ = run(SAXPY, *arguments, "--continue", 9, "--json")
    document = json.loads(out)
    assert code == 1
    assert [fault["count"] for fault in document["faults"]] == [28, 8, 8]
    assert document["fault"] == document["faults"][0]


def test_fault_of_several_lines(run):
    text = HEAD + ".visible .entry k() { .reg .b32 %r; mov.u32 %r, 0; L: add.u32 %r, %r, 1; bra L; }"
    code, out, _ = run(text, "--watchdog", 50_000)
    assert code == 1
    assert out.startswith("DeadlockFault: a warp has executed over 50000 instructions")
    assert "    warp 0 of block (0, 0, 0), line 4" in out
    assert "  instruction  add.u32 %r, %r, 1;" in out


ROUNDING = (
    HEAD
    + """.visible .entry k(.param .u64 y)
{
.reg .b32 %r<6>; .reg .b64 %d; .reg .f32 %f<4>; ld.param.u64 %d, [y]; mov.b32 %r0, 0x3c003c00; mov.b32 %r1, %r0;
mov.f32 %f0, 0f35400000;
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r0}, {%f0, %f0, %f0, %f0};
st.global.f32 [%d], %f0;
}
"""
)
COPY = (
    HEAD
    + """.extern .shared .align 16 .b8 sm[];
.visible .entry k(.param .u64 x, .param .u64 y)
{
.reg .b32 %r<4>; .reg .b64 %d<4>; ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y]; mov.u32 %r0, sm;
cp.async.ca.shared.global [%r0], [%d0], 4; mov.u32 %r1, 7; st.global.u32 [%d0], %r1; cp.async.wait_all;
ld.shared.u32 %r2, [%r0]; st.global.u32 [%d1], %r2;
}
"""
)


def test_options_reach_the_machine(run):
    for mma, want in (("hopper", 8.0), ("f32", 8.0 + 2.0**-20)):
        # 8 products of 1, and three quarters of the last place of 8
        assert run(ROUNDING, "--arg", "f32[1]=zeros:out=y.npy", "--mma", mma)[0] == 0
        assert np.load("y.npy")[0] == want
    np.save("five.npy", np.array([5], "u4"))
    copy = ["--arg", "u32[1]=five.npy", "--arg", "u32[1]:out=y.npy", "--block", 1]
    for completion, want in (("early", 5), ("late", 7)):
        assert run(COPY, *copy, "--shared-bytes", 16, "--completion", completion)[0] == 0
        assert np.load("y.npy")[0] == want
    code, out, _ = run(COPY, *copy)
    assert code == 1
    assert out.startswith("OutOfBoundsFault: 4 bytes of shared memory outside")


EXCHANGE = (
    HEAD
    + """.visible .entry k(.param .u64 y)
{
.shared .align 4 .b8 sm[256];
.reg .b32 %r<6>; .reg .b64 %d; ld.param.u64 %d, [y]; mov.u32 %r0, %tid.x; mov.u32 %r1, sm; mad.lo.u32 %r2, %r0, 4, %r1;
st.shared.u32 [%r2], %r0;
xor.b32 %r3, %r2, 128; ld.shared.u32 %r4, [%r3]; mad.wide.u32 %d, %r0, 4, %d; st.global.u32 [%d], %r4;
}
"""
)
NOBODY = (
    HEAD
    + """.visible .entry k(.param .u64 y)
{
.reg .b32 %r; .reg .b64 %d; ld.param.u64 %d, [y]; st.global.u32 [%d], %r;
}
"""
)


def test_checks_that_can_be_switched_off(run):
    code, out, _ = run(EXCHANGE, "--block", 64, "--arg", "u32[64]")
    assert (code, out.startswith("RaceFault: ")) == (1, True)
    assert run(EXCHANGE, "--block", 64, "--arg", "u32[64]", "--races", "off", "--uninitialised", "off")[0] == 0
    code, out, _ = run(EXCHANGE, "--block", 64, "--arg", "u32[64]", "--races", "off")
    assert (code, out.startswith("UninitialisedFault: ")) == (1, True)
    code, out, _ = run(NOBODY, "--arg", "u32[1]")
    assert (code, out.startswith("UninitialisedFault: register %r is read before it is written")) == (1, True)
    assert run(NOBODY, "--arg", "u32[1]", "--uninitialised", "off")[0] == 0
    for engine in ("auto", "numpy"):
        assert run(SAXPY, *saxpy(100), "--engine", engine)[0] == 0


def test_engine_option(run, monkeypatch):
    monkeypatch.setattr("ptxgen.emulator.engine.jit_blocks.available", lambda: False)
    code, _, err = run(SAXPY, *saxpy(100), "--engine", "llvm")
    assert code == 3
    assert "llvmlite" in err
    assert run(SAXPY, *saxpy(100))[0] == 0


def test_shared_sectors(run):
    """One word of each sector is used, by however many lanes."""
    text = (
        HEAD
        + """.visible .entry k(.param .u64 y) { .reg .b64 %d; ld.param.u64 %d, [y]; st.global.u32 [%d], 7;
    st.global.v4.u32 [%d+32], {1, 2, 3, 4}; }"""
    )
    code, out, _ = run(text, "--arg", "u32[64]")
    assert code == 0
    # 4 and 16 bytes of two sectors
    assert "global stores  2 warp accesses, 640 bytes, 2 sectors, 31% of them used" in out
    code, out, _ = run(text, "--arg", "u32[64]", "--json")
    assert json.loads(out)["statistics"]["global_store"]["distinct"] == 20


def test_notes(run):
    """Two warps store the same value at the same addresses."""
    text = EXCHANGE.replace("mad.lo.u32 %r2, %r0, 4", "and.b32 %r5, %r0, 31; mad.lo.u32 %r2, %r5, 4")
    text = text.replace("[%r2], %r0;", "[%r2], %r5;").replace("xor.b32 %r3, %r2, 128;", "mov.u32 %r3, %r2; bar.sync 0;")
    line = text[: text.index("st.shared")].count("\n") + 1
    note = f"line {line}: several warps store the same value at one address of shared memory, with no barrier between"
    code, out, _ = run(text, "--block", 64, "--arg", "u32[64]")
    assert code == 0
    assert f"note: {note}" in out.splitlines()
    code, out, _ = run(text, "--block", 64, "--arg", "u32[64]", "--json")
    assert json.loads(out)["statistics"]["notes"] == [note]


def test_source_line_of_a_fault(run):
    text = SAXPY.replace("ld.global.f32 %f1", ".loc 1 12 3\nld.global.f32 %f1") + '.file 1 "saxpy.cu"\n'
    code, out, _ = run(text, *saxpy(101))
    assert code == 1
    assert "  source       saxpy.cu:12" in out.splitlines()
    assert json.loads(run(text, *saxpy(101), "--json")[1])["fault"]["source"] == "saxpy.cu:12"
    assert json.loads(run(SAXPY, *saxpy(101), "--json")[1])["fault"]["source"] is None


def test_structures_by_value(run):
    text = (
        HEAD
        + """.visible .entry k(.param .align 16 .b8 box[32], .param .u64 y)
    {
    .reg .b32 %r; .reg .b64 %d; ld.param.u64 %d, [y]; ld.param.u32 %r, [box+12]; st.global.u32 [%d], %r;
    }
    """
    )
    np.save("box.npy", np.arange(8, dtype="u4").view("u1"))
    assert run(text, "--arg", "b8[32]=box.npy", "--arg", "u32[1]:out=y.npy")[0] == 0
    assert np.load("y.npy").tolist() == [3]
    code, _, err = run(text, "--arg", "b8[16]=iota", "--arg", "u32[1]")
    assert code == 2
    assert "has 16 bytes; it must have 32" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "takes 1 arguments (.u64 y), 0 --arg are given"),
        (["--arg", "f32"], "'f32' is neither"),
        (["--arg", "x32:1"], "no type 'x32'"),
        (["--arg", "f32:1"], "4 bytes"),
        (["--arg", "f32[1]=nothing"], "neither a .npy file nor one of"),
        (["--arg", "f32[]=zeros"], "needs an extent"),
        (["--arg", "f32[a]=zeros"], "extent"),
        (["--arg", "f32[1]=none.npy"], "none.npy"),
        (["--arg", "f32[4294967296x4294967296]=zeros"], "bytes; it must have at most 1099511627776"),
        (["--arg", f"f32[{'9' * 5000}]=zeros"], "not a number or several"),
        (["--arg", "f32[\u00b2]=zeros"], "not a number or several"),
        (["--arg", f"u32:{'9' * 5000}"], "is no number of type u32"),
        (["--arg", "f32[1]", "--grid", "9" * 5000], "--grid is '999"),
        (["--arg", "f32[1]", "--grid", "9" * 50], "grid"),
        (["--arg", "f32[1]", "--entry", "other"], "'other'"),
        (["--arg", "f32[1]", "--grid", "1,x"], "--grid"),
        (["--arg", "f32[1]", "--block", "2000"], "block.x"),
        (["--arg", "f32[1]", "--mma", "volta"], "mma"),
        (["--arg", "f32[1]", "--completion", "never"], "completion"),
        (["--arg", "f32[1]", "--statistics", "some"], "stats"),
        (["--arg", "f32[1]", "--races", "maybe"], "--races is 'maybe'; it must be on or off"),
        (["--arg", "f32[1]", "--uninitialised", "true"], "--uninitialised is 'true'; it must be on or off"),
        (["--arg", "f32[1]", "--engine", "cuda"], "engine is 'cuda'; it must be one of auto, numpy, llvm"),
    ],
)
def test_invalid_input_is_exit_code_2(run, arguments, words):
    code, out, err = run(ROUNDING, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err


def test_invalid_files(run, capsys, monkeypatch):
    for text, place in (
        ("nonsense", "line 1: a module begins with .version"),
        (HEAD + ".visible .entry k() {\nret }", "line 5"),
        (HEAD + ".visible .entry k() {\n.reg .b64 %d; mov.u32 %d, 1; }", "line 5: operand 1 of `mov.u32` is %d"),
    ):
        code, out, err = run(text)
        assert (code, out) == (2, "")
        assert err.startswith(f"error: k.ptx: {place}")
        code, out, _ = run(text, "--json")
        assert (code, json.loads(out)["error"]["kind"]) == (2, "ParseError")
    code, _, err = run(HEAD + ".visible .entry k() { frob.u32 1; }")
    assert code == 1
    assert err.startswith("error: k.ptx: line 4: frob.u32 is not emulated: frob.u32 1;")
    monkeypatch.setattr(sys, "stdin", io.StringIO("nonsense"))
    with pytest.raises(SystemExit) as ended:
        app(["emulate", "-"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: standard input: line 1")
    code, _, err = run(HEAD)
    assert code == 2
    assert "it has none" in err
    two = ".visible .entry a() { ret; } .visible .entry b() { ret; }"
    code, _, err = run(HEAD + two)
    assert code == 2
    assert "a; b" in err
    assert run(HEAD + two, "--entry", "b")[0] == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO(HEAD + ".visible .entry fine() { ret; }"))
    with pytest.raises(SystemExit) as ended:
        app(["emulate", "-"])
    assert not ended.value.code
    assert capsys.readouterr().out.startswith("fine: 1 blocks")
    with pytest.raises(SystemExit) as ended:
        app(["emulate", "missing.ptx"])
    assert ended.value.code == 2


# ---- arguments


def argument(text: str, seed: int = 0) -> Any:
    return parse_argument(text, np.random.default_rng(seed)).value


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("u32:7", 7, "u4"),
        ("s8:-128", -128, "i1"),
        ("b16:-1", 65535, "u2"),
        ("u64:0xFFFFFFFFFFFFFFFF", (1 << 64) - 1, "u8"),
        ("f32:1.5", 1.5, "f4"),
        ("f64:-inf", -np.inf, "f8"),
        ("f16:0.1", float(np.float16(0.1)), "f2"),
        ("bf16:1.00390625", 1.0, ml_dtypes.bfloat16),
        ("e4m3:448", 448.0, ml_dtypes.float8_e4m3fn),
    ],
)
def test_scalars(text, value, dtype):
    got = argument(text)
    assert got.dtype == np.dtype(dtype)
    assert float(got) == value if isinstance(value, float) else int(got) == value
    assert len(got.tobytes()) == np.dtype(dtype).itemsize


@pytest.mark.parametrize("text", ["u32:-1", "u8:256", "s8:128", "b16:-32769", "u32:1.5", "f32:x", "f32:", "u32:"])
def test_scalars_out_of_range(text):
    with pytest.raises(InputError, match=text.partition(":")[0]):
        argument(text)


@pytest.mark.parametrize("element", TYPES)
def test_buffers(element):
    dtype = TYPES[element]
    assert (argument(f"{element}[3]") == np.zeros(3, dtype)).all()
    assert argument(f"{element}[3x4]=zeros").shape == (3, 4)
    assert (argument(f"{element}[3]=ones").astype("f8") == 1).all()
    assert argument(f"{element}[9]=iota").astype("f8").tolist() == list(range(9))
    one, other = argument(f"{element}[1000]=random", 1), argument(f"{element}[1000]=random", 2)
    assert one.dtype == dtype
    assert one.tobytes() != other.tobytes()
    assert one.tobytes() == argument(f"{element}[1000]=random", 1).tobytes()
    x = one.astype("f8")
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        assert x.min() < info.min + (info.max - info.min) * 0.05
        assert x.max() > info.max - (info.max - info.min) * 0.05
    else:
        assert abs(x.mean()) < 0.2
        assert 0.8 < x.std() < 1.2


@pytest.mark.parametrize("dtype", TYPES)
def test_files_round_trip(dtype, tmp_path):
    x = argument(f"{dtype}[6x7]=random")
    path = tmp_path / "x.npy"
    given = parse_argument(f"{dtype}[6x7]=random:out={path}", np.random.default_rng(0))
    given.store()
    held = np.load(path)
    assert held.shape == (6, 7)
    assert (held.astype("f8") == x.astype("f8")).all()
    for extent in ("", "42", "6x7"):
        again = argument(f"{dtype}[{extent}]={path}")
        assert again.dtype == x.dtype
        assert again.tobytes() == x.tobytes()
    with pytest.raises(InputError, match="42 elements"):
        argument(f"{dtype}[41]={path}")


def test_files_of_a_wrong_type(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(4, dtype="f8"))
    with pytest.raises(InputError, match="float64, not float32"):
        argument(f"f32[4]={path}")
    assert argument(f"bf16[4]={path}").astype("f8").tolist() == [0, 1, 2, 3]
    np.save(path, np.arange(4, dtype="u4"))
    assert argument(f"s32[4]={path}").tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match="uint32"):
        argument(f"u16[4]={path}")
    np.save(path, np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="not an array file"):
        argument(f"f32[1]={path}")
    with pytest.raises(InputError, match="no file"):
        argument("f32[1]=zeros:out=")
    with pytest.raises(InputError, match="neither"):
        argument("f32:1:out=x.npy")


#: each block writes its rank in the cluster, and how many blocks that has
RANKS = (
    HEAD
    + """.visible .entry k(.param .u64 y) .explicitcluster
{
.reg .b32 %r<3>; .reg .b64 %d;
ld.param.u64 %d, [y]; mov.u32 %r0, %cluster_ctarank; mov.u32 %r1, %cluster_nctarank; mov.u32 %r2, %ctaid.x;
mad.wide.u32 %d, %r2, 8, %d;
st.global.u32 [%d], %r0; st.global.u32 [%d+4], %r1;
}
"""
)


def test_cluster_option(run):
    options = ["--grid", 6, "--block", 1, "--arg", "u32[6x2]:out=y.npy"]
    code, out, _ = run(RANKS, *options, "--cluster", "3,1", "--json")
    assert (code, json.loads(out)["cluster"]) == (0, [3, 1])
    assert np.load("y.npy").tolist() == [[n % 3, 3] for n in range(6)]
    for cluster, words in (
        ("4", "grid.x is 6; it must be a multiple of the cluster size 4"),
        ("x", "--cluster is 'x'"),
        ("17", "it must have 1 to"),
        (None, "cluster is None; it must be the cluster size"),
    ):
        code, _, err = run(RANKS, *options, *(() if cluster is None else ("--cluster", cluster)))
        assert code == 2
        assert words in err


HELLO = """.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .b8 format[4] = {104, 105, 10, 0};
.visible .entry hello() {
.reg .b64 %d; .reg .b32 %r; .reg .pred %p; mov.u64 %d, format;
{ .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %d; st.param.b64 [a], 0; call.uni (r), vprintf, (f, a); }
mov.u32 %r, %ntid.x; setp.gt.u32 %p, %r, 2; @%p trap; ret;
}
"""


def test_output_of_printf(run):
    """Before the report; with --json a field of the document."""
    code, out, _ = run(HELLO, "--grid", "1", "--block", "2")
    assert (code, out[:6]) == (0, "hi\nhi\n")
    code, out, _ = run(HELLO, "--grid", "1", "--block", "2", "--json")
    assert (code, json.loads(out)["printed"]) == (0, "hi\nhi\n")
    code, out, _ = run(HELLO, "--grid", "1", "--block", "3")
    assert (code, out[:9]) == (1, "hi\nhi\nhi\n")
