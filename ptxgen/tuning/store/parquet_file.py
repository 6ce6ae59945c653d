"""Reads and writes rows as Parquet files. Only this module imports pyarrow.

A file of a few kilobytes can have gigabytes of values, because Parquet stores repeated values once and compresses them.
Therefore a file must have exactly the columns that ``write`` writes, its row groups and texts have limits, and repeated
texts are read once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from ptxgen.errors import CorruptError, InputError, UnavailableError
from ptxgen.tuning.store.exchange import LINE_LIMIT, require_file

ROWS = 1 << 14  #: rows of a row group that is written, and of a block that is read
BYTES_MOST = 1 << 28  #: the most bytes of the values of a row group, and of the texts and lists of a block
NUMBER_BYTES = 32  #: bytes of a number as a Python object
#: column type -> type of Parquet
TYPES = {"text": "string", "number": "float64", "count": "int64", "flag": "bool_", "numbers": "list_"}


def require() -> Any:
    """The module pyarrow. UnavailableError: it is not installed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise UnavailableError("Parquet files need pyarrow: pip install 'ptxgen[parquet]'") from error
    return pyarrow


def _types(arrow: Any) -> dict[str, Any]:
    """The types of Arrow by column type."""
    return {
        column_type: arrow.list_(arrow.float64()) if column_type == "numbers" else getattr(arrow, name)()
        for column_type, name in TYPES.items()
    }


def write(file: IO[bytes], columns: Mapping[str, str], rows: Iterable[Sequence[Any]], facts: Mapping[str, str]) -> None:
    """Writes rows, each with one value per column. ``columns``: name -> column type, a key of ``TYPES``; ``facts``:
    texts about the file, by name.

    UnavailableError: pyarrow is not installed."""
    arrow = require()
    types = _types(arrow)
    schema = arrow.schema([(name, types[column_type]) for name, column_type in columns.items()], metadata=dict(facts))
    remaining = iter(rows)
    with arrow.parquet.ParquetWriter(file, schema) as writer:
        while block := list(islice(remaining, ROWS)):
            columns_of_block = [
                arrow.array(values, field.type) for values, field in zip(zip(*block, strict=True), schema, strict=True)
            ]
            writer.write_table(arrow.Table.from_arrays(columns_of_block, schema=schema))


def read(path: Path, columns: Mapping[str, str]) -> tuple[dict[str, str], Iterator[dict[str, Any]]]:
    """The texts about the file, and its rows, which are read on demand.

    InputError: there is no such file. CorruptError: the file is damaged, its columns are not exactly ``columns``, or
    its values exceed a limit. UnavailableError: pyarrow is not installed."""
    arrow = require()
    require_file(path)
    with _errors_of(path, arrow):
        file = arrow.parquet.ParquetFile(path)
        facts = {k.decode(): v.decode() for k, v in (file.schema_arrow.metadata or {}).items()}
    return facts, _rows(path, file, columns, arrow)


@contextmanager
def _errors_of(path: Path, arrow: Any) -> Iterator[None]:
    """Converts errors within the block to a CorruptError that names the file."""
    try:
        yield
    except InputError as error:
        raise CorruptError(f"{path}: {error}") from error
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise CorruptError(f"{path} cannot be read as Parquet: {error}") from error


def _rows(path: Path, file: Any, columns: Mapping[str, str], arrow: Any) -> Iterator[dict[str, Any]]:
    with _errors_of(path, arrow):
        _require_columns(file.schema_arrow, columns, arrow)
        _require_size(file.metadata)
        texts = [name for name, column_type in columns.items() if column_type == "text"]
        blocks = arrow.parquet.ParquetFile(path, read_dictionary=texts, metadata=file.metadata).iter_batches(ROWS)
    first = 1
    while True:
        with _errors_of(path, arrow):
            block = next(blocks, None)
            if block is None:
                return
            values = _values(block, columns, f"rows {first} to {first + len(block) - 1}", arrow)
        for row in zip(*values.values(), strict=True):
            yield dict(zip(values, row, strict=True))
        first += len(block)


def _require_columns(schema: Any, columns: Mapping[str, str], arrow: Any) -> None:
    """Raises InputError if the columns of a file are not ``columns``, each once and of its type."""
    types = _types(arrow)
    for name, count in Counter(schema.names).items():
        if name not in columns:
            raise InputError(f"has the column {name!r}; the columns are {', '.join(columns)}")
        if count > 1:
            raise InputError(f"has the column {name} {count} times; it must have it once")
    for name, column_type in columns.items():
        if name not in schema.names:
            raise InputError(f"has no column {name}; the columns are {', '.join(columns)}")
        type_stored, wanted = schema.field(name).type, types[column_type]
        if type_stored != wanted and not (
            column_type == "text" and type_stored == arrow.dictionary(arrow.int32(), wanted)
        ):
            raise InputError(f"the column {name} is of type {type_stored}; it must be {wanted}")


def _require_size(metadata: Any) -> None:
    """Raises InputError if the values of a row group take more than ``BYTES_MOST`` bytes."""
    for number in range(metadata.num_row_groups):
        size = metadata.row_group(number).total_byte_size  # pyarrow ends the process at damaged facts of a column
        if size > BYTES_MOST:
            raise InputError(f"row group {number} has values of {size} bytes; it must have at most {BYTES_MOST}")


def _values(block: Any, columns: Mapping[str, str], which: str, arrow: Any) -> dict[str, list[Any]]:
    """The values of each column of a block. InputError: the values of a column are invalid; the message names the
    column and the rule."""
    size, out = 0, {}
    for name, column in zip(block.schema.names, block.columns, strict=True):
        if columns[name] == "text":
            lengths = arrow.compute.binary_length(column.dictionary)
            if (arrow.compute.max(lengths).as_py() or 0) > LINE_LIMIT:
                raise InputError(f"the column {name} has a text of more than {LINE_LIMIT} bytes in {which}")
            size += arrow.compute.sum(lengths.take(column.indices)).as_py() or 0
        elif columns[name] == "numbers":
            size += NUMBER_BYTES * len(column.flatten())
        if size > BYTES_MOST:
            raise InputError(f"{which} have values of more than {BYTES_MOST} bytes, the limit for {ROWS} rows")
        if columns[name] != "text":
            out[name] = column.to_pylist()
            continue
        try:
            texts = column.dictionary.to_pylist()
        except ValueError as error:
            raise InputError(f"the column {name} has a text that is not UTF-8 in {which}: {error}") from error
        out[name] = [None if i is None else texts[i] for i in column.indices.to_pylist()]
    return out
