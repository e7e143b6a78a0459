"""In: a request that got no answer. Out: what is wrong with it: expected, got and do this; None where unseen."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from klinepred.schema import CALENDAR, VALUES

TEXTS: Final = ("symbol", "ts")
NEEDED: Final = (*TEXTS, *VALUES)
SPLIT: Final = "dataframe_split"
RECORDS: Final = "dataframe_records"
OTHERS: Final = ("instances", "inputs")
PARAMS: Final = ("now", "start", "end")
SHAPE: Final = f'a JSON object with "{SPLIT}" or "{RECORDS}", and "params" if there are any'
SEE: Final = "see docs/serving.md, or the model's input example"
NAMES: Final = {
    dict: "an object",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


class Complaint(NamedTuple):
    """The three parts of a message."""

    expected: str
    got: str
    do: str = SEE

    def __str__(self) -> str:
        return f"request\n  expected: {self.expected}\n  got:      {self.got}\n  do this:  {self.do}"


def complaint(body: bytes, kind: str) -> Complaint | None:
    """What is wrong with a body; rows are counted from 1. None where its form is right.

    Parameters
    ----------
    kind
        Its content type, without parameters.
    """
    if not body.strip():
        return Complaint("bars", "an empty body")
    if kind == "application/json":
        return _json(body)
    return _csv(body) if kind == "text/csv" else _parquet(body)


def _json(body: bytes) -> Complaint | None:
    try:
        told = json.loads(body)
    except UnicodeDecodeError:
        return Complaint("JSON in UTF-8", f"bytes that are none: {body[:12]!r}", "encode it as UTF-8")
    except RecursionError:
        return Complaint(SHAPE, "brackets within brackets, too deep to read")
    except ValueError as error:
        return Complaint(SHAPE, f"text that is not JSON: {error}", "check the body as it is sent, to its last bracket")
    if not isinstance(told, dict):
        return Complaint(SHAPE, _named(told))
    if (odd := _params(told.get("params"))) is not None:
        return odd
    given = [name for name in (SPLIT, RECORDS, *OTHERS) if name in told]
    if len(given) != 1:
        got = f"both {' and '.join(given)}" if given else f"an object with {_few(list(told)) or 'nothing in it'}"
        return Complaint(SHAPE, got)
    if given[0] in OTHERS:
        return Complaint(SHAPE, f'"{given[0]}", which is for arrays', f'send the bars as "{SPLIT}"')
    return _split(told[SPLIT]) if given[0] == SPLIT else _records(told[RECORDS])


def _params(params: Any) -> Complaint | None:
    wanted = f'params as an object of text, such as {{"now": "2026-06-10T20:00:00Z"}}; names: {", ".join(PARAMS)}'
    if params is None:
        return None
    if not isinstance(params, dict):
        return Complaint(wanted, _named(params))
    for name, value in params.items():
        if name in PARAMS and not isinstance(value, str):
            return Complaint(wanted, f"{name}: {_named(value)}", "write the moment as text, or leave it out")
    return None


def _split(table: Any) -> Complaint | None:
    wanted = f'"{SPLIT}" as {{"columns": [names], "data": [rows]}}'
    if not isinstance(table, dict):
        return Complaint(wanted, _named(table))
    columns, rows = table.get("columns"), table.get("data")
    if not isinstance(columns, list) or not isinstance(rows, list):
        lacks = "columns" if not isinstance(columns, list) else "data"
        return Complaint(wanted, f"no list of {lacks}")
    if odd := [name for name in table if name not in ("columns", "data", "index")]:
        return Complaint(wanted, f"{_few(odd)} beside them", "leave it out")
    if (bad := _columns(columns)) is not None:
        return bad
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list) or len(row) != len(columns):
            got = f"{len(row)} values" if isinstance(row, list) else _named(row)
            return Complaint(f"a list of {len(columns)} values in each row, one a column", f"{got} in row {number}")
    if not rows:
        return Complaint("rows", "none", "send the newest bars of every symbol")
    places = [(name, columns.index(name)) for name in NEEDED]
    for number, row in enumerate(rows, 1):
        for name, place in places:
            if (bad := _value(name, row[place], number)) is not None:
                return bad
    return None


def _records(rows: Any) -> Complaint | None:
    wanted = f'"{RECORDS}" as a list of objects, one a bar'
    if not isinstance(rows, list):
        return Complaint(wanted, _named(rows))
    if not rows:
        return Complaint(wanted, "an empty list", "send the newest bars of every symbol")
    names: set[str] = set()
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            return Complaint(wanted, f"{_named(row)} in row {number}")
        names.update(row)
    if (bad := _columns(sorted(names))) is not None:
        return bad
    for number, row in enumerate(rows, 1):
        for name in NEEDED:
            if name not in row:
                return Complaint(f"{', '.join(NEEDED)} in each row", f"row {number} without {name}")
            if (bad := _value(name, row[name], number)) is not None:
                return bad
    return None


def _columns(columns: Sequence[Any]) -> Complaint | None:
    wanted = f"the columns {', '.join(NEEDED)}, and {CALENDAR} if the model does not know a symbol"
    if twice := [str(name) for name, count in Counter(map(str, columns)).items() if count > 1]:
        return Complaint(wanted, f"{_few(twice)} more than once", "send each column once")
    if absent := [name for name in NEEDED if name not in columns]:
        return Complaint(wanted, f"none named {_few(absent)}", "name the columns so")
    return None


def _value(name: str, value: Any, row: int) -> Complaint | None:
    """Missing numbers are left to the check of bars, which says more of them."""
    if name in TEXTS:
        if isinstance(value, str) and value.strip():
            return None
        example = "AAPL" if name == "symbol" else "2026-06-10T13:30:00Z"
        got = "empty text" if isinstance(value, str) else _named(value)
        return Complaint(f"text in {name}, such as {example}", f"{got} in row {row}", "write it, or leave the row out")
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return None
    return Complaint(f"numbers in {name}", f"{_named(value)} in row {row}", "write it as a number, without quotes")


def _csv(body: bytes) -> Complaint | None:
    try:
        lines = csv.reader(io.StringIO(body.decode("utf-8"), newline=""))
        columns = next(lines, [])
        if (bad := _columns(columns)) is not None:
            return bad
        places = [(name, columns.index(name)) for name in VALUES]
        for number, row in enumerate((row for row in lines if row), 1):
            if len(row) != len(columns):
                got = f"{len(row)} values in row {number}"
                return Complaint(f"{len(columns)} values in each row, one a column", got)
            for name, place in places:
                if not _is_number(row[place]):
                    got = f"{row[place][:40]!r} in row {number}"
                    return Complaint(f"numbers in {name}", got, "write it as a number, with a point")
    except UnicodeDecodeError:
        return Complaint("CSV in UTF-8", f"bytes that are none: {body[:12]!r}", "encode it as UTF-8")
    except csv.Error as error:
        return Complaint("CSV with a header", f"text that is none: {error}")
    return None


def _is_number(text: str) -> bool:
    try:
        float(text or "nan")
    except ValueError:
        return False
    return True


def _parquet(body: bytes) -> Complaint | None:
    import polars as pl

    try:
        schema = pl.read_parquet_schema(io.BytesIO(body))
    except (pl.exceptions.PolarsError, OSError) as error:
        got = f"bytes that cannot be read as Parquet: {' '.join(str(error).split())[:120]}"
        return Complaint("a Parquet file", got, "write it with DataFrame.to_parquet (pandas) or write_parquet (polars)")
    if (bad := _columns(list(schema))) is not None:
        return bad
    for name in NEEDED:
        kind = schema[name]
        if name in TEXTS and kind not in (pl.String, pl.Categorical, pl.Null):
            do = 'ts.dt.tz_convert("UTC").dt.strftime("%Y-%m-%dT%H:%M:%SZ") in pandas' if name == "ts" else "cast it"
            return Complaint(f"text in {name}", str(kind), do)
        if name in VALUES and not (kind.is_numeric() or kind == pl.Null):
            return Complaint(f"numbers in {name}", str(kind), "cast it")
    return None


def _named(value: Any) -> str:
    if value is None:
        return "null"
    name = NAMES.get(type(value), type(value).__name__)
    if isinstance(value, (dict, list)):
        return f"{name} of {len(value)}" if value else f"{name} with nothing in it"
    return f"{name} ({json.dumps(value, ensure_ascii=False)[:40]})"


def _few(names: Sequence[Any]) -> str:
    return ", ".join(str(name)[:40] for name in names[:5]) + (" …" if len(names) > 5 else "")
