"""Parquet files of rows. Owns pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from ptxgen.errors import CorruptError, UnavailableError
from ptxgen.tuning.exchange import require_file

ROWS = 1 << 14  #: rows of a row group
#: Parquet's type of each kind of column
TYPES = {"text": "string", "number": "float64", "count": "int64", "flag": "bool_", "numbers": "list_"}


def require() -> Any:
    """The module pyarrow. UnavailableError: it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UnavailableError("Parquet files need pyarrow: pip install 'ptxgen[parquet]'") from error
    return pyarrow


def write(file: IO[bytes], columns: Mapping[str, str], rows: Iterable[Sequence[Any]], facts: Mapping[str, str]) -> None:
    """Writes rows with a value for each of ``columns``: name -> a key of ``TYPES``. ``facts``: texts about the file.

    UnavailableError: pyarrow is not installed."""
    arrow = require()
    types = {kind: getattr(arrow, name) for kind, name in TYPES.items()}
    fields = [
        (name, types[kind](arrow.float64()) if kind == "numbers" else types[kind]()) for name, kind in columns.items()
    ]
    schema = arrow.schema(fields, metadata=dict(facts))
    remaining = iter(rows)
    with arrow.parquet.ParquetWriter(file, schema) as writer:
        while block := list(islice(remaining, ROWS)):
            columns_of_block = [
                arrow.array(values, field.type) for values, field in zip(zip(*block, strict=True), schema, strict=True)
            ]
            writer.write_table(arrow.Table.from_arrays(columns_of_block, schema=schema))


def read(path: Path) -> tuple[dict[str, str], Iterator[dict[str, Any]]]:
    """The texts about the file, and its rows, which are read on demand.

    InputError: there is no such file. CorruptError: it is damaged. UnavailableError: pyarrow is not installed."""
    arrow = require()
    require_file(path)
    try:
        file = arrow.parquet.ParquetFile(path)
        facts = {k.decode(): v.decode() for k, v in (file.schema_arrow.metadata or {}).items()}
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CorruptError(f"{path} cannot be read as Parquet: {error}") from error
    return facts, _rows(path, file, arrow)


def _rows(path: Path, file: Any, arrow: Any) -> Iterator[dict[str, Any]]:
    try:
        for block in file.iter_batches(ROWS):
            yield from block.to_pylist()
    except (arrow.ArrowException, OSError) as error:
        raise CorruptError(f"{path} cannot be read as Parquet: {error}") from error
