"""The command ``paper batchgemm``: tables and figures of the article of Zhang et al. on irregular batches."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from ptxgen.cli.command import Answer, command, paper
from ptxgen.cli.measured import DEVICE, MeasuredOptions, answer
from ptxgen.cli.progress import progress as shown_progress

NAME, FILE = "paper batchgemm", "batchgemm"


@command(paper, "batchgemm", "figure5 --picture figure5.png", "--measure --save batchgemm.json")
def batchgemm(
    options: MeasuredOptions,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="table2, table3, table6, or figure3 to figure11.")
    ] = "figure5",
    most_items: Annotated[
        int, typer.Option(metavar="ITEMS", min=1, help="With --measure: leave out lists with more items.")
    ] = 1024,
) -> Answer:
    """Print a table or figure of Zhang et al. on irregular batches.

    Compares their method, its ablations and libraries on random lists and Inception modules, on NVIDIA GPUs in place of
    the article's. Reads shipped times, which --device selects, and needs no GPU; the default is an H200 for Figures 4
    and 8 if its times ship, else an H100. With --measure, measures the data of all tables and figures: some minutes.
    """
    from ptxgen.cli import batchgemm_tables
    from ptxgen.errors import InputError
    from ptxgen.tuning.store import paper_files

    if name not in batchgemm_tables.TABLES:
        raise InputError(f"name is {name!r}; it must be one of {', '.join(batchgemm_tables.TABLES)}")
    shown = batchgemm_tables.TABLES[name]
    second = shown.device if shown.device and paper_files.path_of(shown.device, FILE).exists() else None
    default = second or DEVICE

    def measure() -> dict[str, Any]:
        return measured(options, most_items)

    return answer(options, NAME, FILE, measure, shown.table, default, optional=not shown.times)


def measured(options: MeasuredOptions, most_items: int) -> dict[str, Any]:
    """Measures the document with the data of all tables and figures."""
    from ptxgen.operations.grouped import article_times
    from ptxgen.tuning.selection import require

    driver = options.gpu(NAME)
    cases = list(article_times.list_cases(most_items))
    tiles = len(article_times.SWEEP_TILES) * len(article_times.SWEEP_THREADS)
    lists, swept = [], []
    with options.reading() as database, shown_progress() as progress:
        progress.phase("figure3", tiles)
        for tile in article_times.sweep(driver):
            swept.append(asdict(tile))
            progress.step(f"{tile.m}x{tile.n}, {tile.threads} threads")
        progress.phase("lists", len(cases))
        for times in article_times.list_times(
            driver, cases, lambda p: require(p, driver.device, database)[0].config, options.path
        ):
            lists.append(asdict(times))
            progress.step(times.name)
    return {
        "command": NAME,
        "device": driver.device.name,
        "assembler": driver.assembler,
        "settings": article_times.settings_on(driver.device, options.path),
        "sweep": swept,
        "lists": lists,
    }
