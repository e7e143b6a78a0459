"""In: bodies that are wrong in one way each. Out: the words for it, with row and column; none where all is right."""

from __future__ import annotations

import io
import json
from typing import Any

import polars as pl
import pytest

from klinepred.serving.complaint import NEEDED, complaint

ROW: list[Any] = ["AAPL", "2026-06-10T13:30:00Z", 1.0, 2.0, 0.5, 1.5, 100]
JSON = "application/json"


def split(rows: list[Any], columns: list[Any] | None = None, **more: Any) -> bytes:
    table = {"columns": [*NEEDED] if columns is None else columns, "data": rows}
    return json.dumps({"dataframe_split": table, **more}).encode()


def records(*rows: Any) -> bytes:
    return json.dumps({"dataframe_records": rows}).encode()


def changed(name: str, value: Any) -> list[Any]:
    return [value if column == name else old for column, old in zip(NEEDED, ROW, strict=True)]


def test_bodies_of_the_right_form_are_complained_of_by_nobody() -> None:
    frame = pl.DataFrame([ROW], schema=[*NEEDED], orient="row")
    packed = io.BytesIO()
    frame.write_parquet(packed)
    assert complaint(split([ROW, changed("close", None)], params={"now": "2026-06-10T20:00:00Z"}), JSON) is None
    assert complaint(records(dict(zip(NEEDED, ROW, strict=True))), JSON) is None
    assert complaint(frame.write_csv().encode(), "text/csv") is None
    assert complaint(packed.getvalue(), "application/vnd.apache.parquet") is None


@pytest.mark.parametrize(
    ("body", "got"),
    [
        (b"", "an empty body"),
        (b" \n", "an empty body"),
        (b"{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2"),
        (b"\xff{}", "bytes that are none"),
        (b"[" * 100_000, "too deep"),
        (b"null", "null"),
        (b"7", "a number (7)"),
        (b"[1, 2]", "a list of 2"),
        (b"{}", "nothing in it"),
        (b'{"rows": [], "x": 1}', "rows, x"),
        (b'{"dataframe_split": {}, "dataframe_records": []}', "both dataframe_split and dataframe_records"),
        (b'{"inputs": null}', '"inputs"'),
        (split([ROW], params=5), "a number (5)"),
        (split([ROW], params={"now": 5}), "now: a number (5)"),
        (b'{"dataframe_split": 5}', "a number (5)"),
        (b'{"dataframe_split": {"columns": ["a"]}}', "no list of data"),
        (split([ROW, ROW[:6]]), "6 values in row 2"),
        (split([[*ROW, 1]]), "8 values in row 1"),
        (split([7]), "a number (7) in row 1"),
        (split([]), "none"),
        (split([ROW], ["symbol", "ts", "open", "high", "low", "close", "close"]), "close more than once"),
        (split([ROW], ["symbol", "ts", "open", "high", "low", "close", "vol"]), "none named volume"),
        (split([ROW, changed("close", "dear")]), 'text ("dear") in row 2'),
        (split([changed("open", True)]), "true or false (true) in row 1"),
        (split([changed("symbol", 7)]), "a number (7) in row 1"),
        (split([changed("symbol", None)]), "null in row 1"),
        (split([ROW, changed("symbol", " ")]), "empty text in row 2"),
        (split([changed("ts", 1_781_098_200)]), "a number (1781098200) in row 1"),
        (records(), "an empty list"),
        (records(5), "a number (5) in row 1"),
        (b'{"dataframe_records": {}}', "an object with nothing in it"),
        (records(dict(zip(NEEDED, ROW, strict=True)), {"symbol": "AAPL"}), "row 2 without ts"),
        (records({"symbol": "AAPL"}), "none named ts, open, high, low, close …"),
    ],
)
def test_json_that_is_wrong_is_told_where(body: bytes, got: str) -> None:
    found = complaint(body, JSON)
    assert found is not None
    assert got in found.got
    assert len(found.got) < 200
    assert found.expected
    assert found.do


def test_csv_and_parquet_that_are_wrong_are_told_where() -> None:
    head = ",".join(NEEDED)
    good = "AAPL,2026-06-10T13:30:00Z,1,2,0.5,1.5,100"
    for text, got in (
        ("a,b\n1,2", "none named symbol, ts"),
        (f"{head}\n{good}\n{good},7", "8 values in row 2"),
        (f"{head}\n{good}\nAAPL,x,1", "3 values in row 2"),
        (f"{head}\n{good.replace('1.5', 'dear')}", "'dear' in row 1"),
        (f"{head},volume\n{good},7", "volume more than once"),
    ):
        found = complaint(text.encode(), "text/csv")
        assert found is not None
        assert got in found.got
    found = complaint(b"\xff\xfea", "text/csv")
    assert found is not None
    assert "UTF-8" in found.expected
    for frame, got in (
        (pl.DataFrame([changed("close", "dear")], schema=[*NEEDED], orient="row"), "String"),
        (pl.DataFrame([ROW], schema=[*NEEDED], orient="row").with_columns(ts=pl.datetime(2026, 6, 10)), "Datetime"),
        (pl.DataFrame([ROW], schema=[*NEEDED], orient="row").drop("low"), "none named low"),
    ):
        packed = io.BytesIO()
        frame.write_parquet(packed)
        found = complaint(packed.getvalue(), "application/vnd.apache.parquet")
        assert found is not None
        assert got in found.got
    found = complaint(b"PAR1 but not really PAR1", "application/vnd.apache.parquet")
    assert found is not None
    assert "cannot be read as Parquet" in found.got
