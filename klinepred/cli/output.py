"""In: rows or a report. Out: a table for people, or CSV, JSON, Parquet, on stdout or in a file."""

from __future__ import annotations

import io
import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from klinepred.cli.options import say
from klinepred.errors import UsageError

if TYPE_CHECKING:
    import polars as pl


def write_rows(
    frame: pl.DataFrame, *, form: str, output: Path | None, title: str = "", last: int | None = None
) -> None:
    """Put `frame` out.

    Parameters
    ----------
    form
        table, csv, json (a list of objects) or parquet (needs `output`, or a stdout that is no terminal).
    last
        A table shows only this many last rows and says so.
    """
    if form == "table":
        shown = frame if last is None else frame.tail(last)
        text = table(shown, title=title, plain=output is not None)
        if shown.height < frame.height:
            text += f"last {shown.height} of {frame.height} rows; all of them with --format csv|json|parquet\n"
        _emit(text.encode(errors="backslashreplace"), output)
    elif form == "csv":
        _emit(csv_text(frame).encode(), output)
    elif form == "json":
        _emit((json.dumps(plain(frame).to_dicts(), ensure_ascii=False, allow_nan=False) + "\n").encode(), output)
    else:
        if output is None:
            _refuse_terminal()
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        _emit(buffer.getvalue(), output)


@contextmanager
def open_rows(form: str, output: Path | None) -> Iterator[Callable[[pl.DataFrame], None]]:
    """Put frames of one schema out one after the other, as csv or parquet; a file appears whole at the end.

    Errors as `write_rows`.
    """
    if output is None and form == "parquet":
        _refuse_terminal()
    if output is None:
        with _writer(form, sys.stdout.buffer) as put:
            yield put
        sys.stdout.buffer.flush()
        return
    from klinepred.paths import open_atomic

    try:
        with open_atomic(output) as file, _writer(form, file) as put:
            yield put
    except OSError as error:
        raise UsageError(
            f"-o {output}", expected="a file that can be written", got=str(error), do="name another file"
        ) from error
    say(f"wrote {output}")


@contextmanager
def _writer(form: str, file: IO[bytes]) -> Iterator[Callable[[pl.DataFrame], None]]:
    if form == "csv":
        begun = False

        def put_csv(frame: pl.DataFrame) -> None:
            nonlocal begun
            file.write(csv_text(frame, header=not begun).encode())
            begun = True

        yield put_csv
        return
    import polars as pl
    from pyarrow import parquet

    writers: list[parquet.ParquetWriter] = []

    def put_parquet(frame: pl.DataFrame) -> None:
        rows = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        if not writers:
            writers.append(parquet.ParquetWriter(file, rows.schema, compression="zstd"))
        writers[0].write_table(rows)

    try:
        yield put_parquet
    finally:
        for writer in writers:
            writer.close()


def _refuse_terminal() -> None:
    if sys.stdout.isatty():
        raise UsageError(
            "--format parquet",
            expected="-o FILE, or stdout sent into a file",
            got="a terminal",
            do="add -o rows.parquet",
        )


def write_json(report: Any, *, output: Path | None = None) -> None:
    """Put `report` out as JSON; stamps as 2026-06-10T13:30:00Z, no NaN."""
    text = json.dumps(report, ensure_ascii=False, allow_nan=False, default=_json, indent=1) + "\n"
    _emit(text.encode(errors="backslashreplace"), output)  # half a sign of a file's name becomes its escape in JSON


def write_text(text: str, *, output: Path | None = None) -> None:
    """Put `text` out as it is."""
    _emit(text.encode(), output)


def table(frame: pl.DataFrame, *, title: str = "", plain: bool = False) -> str:
    """`frame` as text with aligned columns, as wide as the terminal, a row a line elsewhere; colours only on one.

    On a terminal too narrow for it headers are broken between words, text is folded, and columns of one value are said
    once; where even that does not do, a row takes several lines, with its column's name before each value. Numbers and
    stamps are never cut.
    """
    import polars as pl
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from klinepred.cli.narrow import flowing, layout, stacked, wrapped

    terminal = sys.stdout.isatty() and not plain
    console = Console(file=io.StringIO(), force_terminal=terminal, width=None if terminal else 10_000, highlight=False)
    cells = [[_cell(value) for value in row] for row in frame.iter_rows()]
    folds = [number > 0 and dtype == pl.String for number, dtype in enumerate(frame.dtypes)]
    form = layout(frame.columns, cells, text=folds, width=console.width if terminal else None)
    if form is None:
        lines = textwrap.wrap(title, console.width) + stacked(frame.columns, cells, width=console.width)
        return "\n".join(lines) + "\n"
    if title:
        console.print(Text(title, style="italic"))
    grid = Table(header_style="bold", box=None, pad_edge=False, padding=(0, form.gap - 1, 0, 1))
    for number, width in zip(form.columns, form.widths, strict=True):
        justify: Literal["left", "right"] = "right" if frame.dtypes[number].is_numeric() else "left"
        header = Text(wrapped(frame.columns[number], width))
        grid.add_column(header, justify=justify, overflow="fold", min_width=width, max_width=width)
    for row in cells:
        grid.add_row(*(Text(row[number]) for number in form.columns))
    console.print(grid)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    told = "\n".join(flowing(["in all rows:", *form.alike], console.width)).lstrip() if form.alike else ""
    return "\n".join(line.rstrip() for line in (text + told).splitlines()) + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.6g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%MZ}"
    return shown(str(value))


def shown(text: str) -> str:
    """`text` safe to print: names come from files of others, and one with a terminal's escape codes is not obeyed."""
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def plain(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    stamps = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Datetime)]
    days = [name for name, dtype in frame.schema.items() if dtype == pl.Date]
    floats = [name for name, dtype in frame.schema.items() if dtype.is_float()]
    return frame.with_columns(
        *(pl.col(name).dt.strftime("%Y-%m-%dT%H:%M:%SZ") for name in stamps),
        *(pl.col(name).cast(pl.String) for name in days),
        *(pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name) for name in floats),
    )


def csv_text(frame: pl.DataFrame, *, header: bool = True) -> str:
    """Rows as CSV, of which no cell is a formula to a spreadsheet."""
    from klinepred.spreadsheet import guarded

    return guarded(plain(frame)).write_csv(include_header=header)


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def _emit(payload: bytes, output: Path | None) -> None:
    if output is None:
        sys.stdout.buffer.write(payload)
        sys.stdout.buffer.flush()
        return
    from klinepred.paths import write_atomic

    try:
        write_atomic(output, payload)
    except OSError as error:
        raise UsageError(
            f"-o {output}", expected="a file that can be written", got=str(error), do="name another file"
        ) from error
    say(f"wrote {output}")
