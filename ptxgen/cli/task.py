"""The command ``task run``, which computes a matmul-like task on arrays from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ptxgen.arguments import word
from ptxgen.cli.checks import INPUT_FILE, OUTPUT_FILE, Check
from ptxgen.cli.command import Answer, Common, command
from ptxgen.cli.command import task as group
from ptxgen.errors import InputError

if TYPE_CHECKING:
    from ptxgen.operations.task.program import Program


def given_input(name: str, text: str) -> None:
    """Requires the text NAME=FILE.npy or NAME=NUMBER. InputError: ``text`` has another form, or there is no such
    file."""
    key, equals, value = text.partition("=")
    if not key or not equals or not value:
        raise InputError(f"{name} is {text}; it must be NAME=FILE.npy or NAME=NUMBER")
    if _number(value) is None:
        INPUT_FILE.function(name, Path(value))


def _number(text: str) -> int | float | None:
    for number_type in (int, float):
        try:
            return number_type(text)
        except ValueError:
            pass
    return None


INPUT = Check(given_input)


@command(
    group,
    "run",
    "distances.task --input P=p.npy --input R=r.npy --save distances.npy",
    "--expr 'where (i,j) { reduce (k) { s max= A[i,k]*B[k,j]; } C[i,j] = s; }'",
    tables=False,
)
def run(
    options: Common,
    file: Annotated[Path | None, typer.Argument(help="File with the text of the task."), INPUT_FILE] = None,
    expr: Annotated[str | None, typer.Option(metavar="TEXT", help="The text of the task, in place of a file.")] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=FILE", help="An array, NAME=FILE.npy, or a number, NAME=0.5."),
        INPUT,
    ] = None,
    dtype: Annotated[str, typer.Option(help="Type of inputs that neither the text nor --input gives.")] = "f32",
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the result to this .npy file, or all arrays to this .npz file."),
        OUTPUT_FILE,
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what kernels compute: the step, its instructions, the result.")
    ] = False,
    algebra: Annotated[
        bool,
        typer.Option(
            "--algebra/--no-algebra", help="Rewrite the task by laws that hold for finite numbers, or do not."
        ),
    ] = True,
    precision: Annotated[
        str,
        typer.Option(help="exact; or fast: squares of differences may be computed as products.", metavar="exact|fast"),
    ] = "exact",
    groups: Annotated[
        str,
        typer.Option(metavar="G,H", help="Rows and columns of results in groups. [default: as the greatest keys need]"),
    ] = "",
    keys: Annotated[
        str, typer.Option(metavar="dense|any", help="dense: keys are from 0 on; any: they are any integers.")
    ] = "dense",
) -> Answer:
    """Compute a matmul-like task: an inner operator of your own over pairs of rows and columns. `run` may be left out.

    The language is described in docs/tasks.md. A list of pairs becomes an array with fields, ordered by (i, j) if it
    has both. All outputs of a task are printed, and with --keys any the keys of rows and columns. Without inputs, the
    canonical text is printed, with the types of all inputs. tune, select, emit, check and bench take tasks by --task.
    """
    import numpy as np

    from ptxgen.api.selection import lists_pairs
    from ptxgen.api.task import task, types_of, unknown_input
    from ptxgen.operations.task.language.canonical import canonical, digest
    from ptxgen.operations.task.language.parser import input_ranks, parse
    from ptxgen.operations.task.program import Aggregate, Select

    if (file is None) == (expr is None):
        raise InputError("a file or --expr must be given, and not both")
    word("precision", precision, ("exact", "fast"))
    text = expr if expr is not None else Path(str(file)).read_text()
    ranks = input_ranks(text)
    values: dict[str, Any] = {}
    for item in inputs or ():
        name, _, value = item.partition("=")
        if name not in ranks:
            raise unknown_input(name, ranks)
        number = _number(value)
        values[name] = number if number is not None else np.load(value)
    types = {**dict.fromkeys(ranks, dtype), **{name: str(x) for name, x in types_of(values).items()}}
    program = parse(text, types)
    document: dict[str, Any] = {"command": "task", "text": canonical(program), "digest": digest(program)}
    lines = [document["text"]]
    if explain:
        document["explanation"] = _explanation(program, algebra, precision == "fast")
        lines += document["explanation"]
    if values:
        outputs, with_keys = program.outputs, keys == "any" and any(isinstance(x, Aggregate) for x in program.outputs)
        several = len(outputs) > 1 or with_keys
        if save is not None and save.suffix not in ((".npz",) if several else (".npy", ".npz")):
            names = ", ".join(x.name for x in outputs)
            why = "keys are any" if with_keys else f"the task has the outputs {names}"
            rule = f"in .npz, because {why}" if several else "in .npy or .npz"
            raise InputError(f"save is {save}; it must end {rule}")
        listed = [x for x in program.outputs if isinstance(x, Select)]
        in_order = bool(listed) and all(lists_pairs(x.values) for x in listed)
        given: dict[str, Any] = {"algebra": algebra, "precision": precision, "groups": _groups(groups), "keys": keys}
        made = task(text)(**values, sorted=in_order, **given)
        results: dict[str, Any] = {}
        for x, y in zip(outputs, made if len(outputs) > 1 else (made,), strict=True):
            results |= _arrays(x.name, y)
        rows = [{"name": name, "shape": list(x.shape), "dtype": _type_name(x)} for name, x in results.items()]
        document |= {"outputs": rows} if several else {name: rows[0][name] for name in ("shape", "dtype")}
        for name, x in results.items():
            lines.append(f"{name if several else 'result'}: {_type_name(x)}, {' x '.join(map(str, x.shape))}")
            if save is None:
                lines.append(np.array2string(x, threshold=64, edgeitems=3))
        if save is not None:
            if save.suffix == ".npz":
                np.savez(save, **results)
            else:
                np.save(save, *results.values())
            lines.append(f"written to {save}")
    elif save is not None:
        raise InputError(f"save is {save}; it needs the inputs {', '.join(ranks)}")
    return Answer(document, "\n".join(lines))


def _groups(text: str) -> Any:
    """The argument ``groups`` of a call. A text that is not G,H is returned as it is: the call refuses it."""
    words = text.split(",")
    return (tuple(map(int, words)) if all(x.strip().isdecimal() for x in words) else text) or None


def _arrays(name: str, x: Any) -> dict[str, Any]:
    """Name -> array of a result; a result with the keys of its rows and columns has several."""
    from ptxgen.api.task_keys import Groups

    if not isinstance(x, Groups):
        return {name: _array(x)}
    keys = {f"{name}_rows": x.rows, f"{name}_columns": x.columns}
    return {name: x.values, **{key: y for key, y in keys.items() if y is not None}}


def _array(x: Any) -> Any:
    """The array of a result. A list of pairs, of best values or of distinct keys becomes an array with fields.
    InputError: it is the lists of a batch."""
    import numpy as np

    from ptxgen.api.distinct_calls import DistinctKeys
    from ptxgen.api.selection import Selection
    from ptxgen.api.top_calls import Best

    if isinstance(x, Selection):
        columns = x.columns
    elif isinstance(x, DistinctKeys):
        columns = {"row": x.rows, "column": x.columns}
    elif isinstance(x, Best):
        columns = {name: y for name, y in (("value", x.values), ("i", x.i), ("j", x.j)) if y is not None}
    elif isinstance(x, tuple):
        raise InputError(f"the inputs have a batch of {len(x)}, whose lists have no common array; call ptxgen.task")
    else:
        return x
    records = np.empty(next(iter(columns.values())).shape, [(name, y.dtype) for name, y in columns.items()])
    for name, y in columns.items():
        records[name] = y
    return records


def _type_name(x: Any) -> str:
    """The text with the type of an array, or with the types of its fields."""
    if x.dtype.names is None:
        return str(x.dtype)
    return ", ".join(f"{name} {x.dtype[name]}" for name in x.dtype.names)


def _explanation(program: Program, algebra: bool, fast: bool) -> list[str]:
    """The lines that explain what kernels compute for a program."""
    from ptxgen.operations.task.explanation import explanation

    return explanation(program, algebra, fast)
