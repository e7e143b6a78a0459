"""In: JSON of bars as services and programs write it. Out: the same bars each time, or one refusal."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from klinepred.bars.delivery import Delivery
from klinepred.bars.ingest import ingest
from klinepred.bars.sources import json_text
from klinepred.bars.sources.files import read_files
from klinepred.errors import SourceError
from klinepred.paths import Workspace
from tests.bars.made import NOW, XNYS, from_files, utc
from tests.conftest import Typed

STAMPS = ["2026-06-01T13:30:00Z", "2026-06-01T13:35:00Z", "2026-06-01T13:40:00Z"]
MS = [1780320600000 + 300_000 * number for number in range(3)]
LOCAL = ["2026-06-01 09:30:00", "2026-06-01 09:35:00", "2026-06-01 09:40:00"]
OP, HI, LO, CL, VO = [1.0, 1.5, 1.25], [2.0, 2.5, 2.25], [0.5, 0.75, 0.25], [1.5, 1.25, 1.0], [100, 200, 300]
COLUMNS: list[list[Any]] = [OP, HI, LO, CL, VO]
OHLCV = list(zip(OP, HI, LO, CL, VO, strict=True))
WANT = [("AAA", utc(stamp[:-1]), *row) for stamp, row in zip(STAMPS, OHLCV, strict=True)]

Json = Any


def _objects(stamp: str, stamps: list[Any], names: str, **more: Json) -> list[dict[str, Json]]:
    keys = names.split()
    return [{stamp: at, **dict(zip(keys, row, strict=True)), **more} for at, row in zip(stamps, OHLCV, strict=True)]


def _lists(*, text: bool = False, order: str = "ohlc", more: tuple[Json, ...] = ()) -> list[list[Json]]:
    made = []
    for at, row in zip(MS, OHLCV, strict=True):
        fields = [row["ohlc".index(part)] for part in order] + [row[4]]
        made.append([at, *(f"{value:.8f}" if text else value for value in fields), *more])
    return made


LONG = "open high low close volume"
FORMS: dict[str, Json] = {
    "array of objects": _objects("ts", STAMPS, LONG),
    "prices as text": [{key: str(value) for key, value in row.items()} for row in _objects("ts", MS, LONG)],
    "binance klines": _lists(text=True, more=(1780320899999, "1.0", 5, "1.0", "1.0", "0")),
    "freqtrade": _lists(),
    "coinbase": _lists(order="lhoc"),
    "bitfinex": _lists(order="ochl"),
    "polygon": {"ticker": "AAA", "status": "OK", "resultsCount": 3,
                "results": [{**row, "vw": 1.1, "n": 7} for row in _objects("t", MS, "o h l c v")]},
    "alpaca, by symbol": {"bars": {"AAA": _objects("t", STAMPS, "o h l c v", n=3, vw=1.1)}, "next_page_token": None},
    "alpaca, one symbol": {"bars": _objects("t", STAMPS, "o h l c v"), "symbol": "AAA", "next_page_token": None},
    "alpha vantage": {
        "Meta Data": {"1. Information": "Intraday", "2. Symbol": "AAA", "6. Time Zone": "US/Eastern"},
        "Time Series (5min)": {
            at: {f"{n}. {name}": str(value) for n, (name, value) in enumerate(zip(LONG.split(), row, strict=True), 1)}
            for at, row in zip(LOCAL, OHLCV, strict=True)
        },
    },
    "yahoo chart": {"chart": {"result": [{
        "meta": {"symbol": "AAA", "exchangeTimezoneName": "America/New_York"},
        "timestamp": [at // 1000 for at in MS],
        "indicators": {"quote": [{"open": OP, "high": HI, "low": LO, "close": CL, "volume": VO}]},
    }], "error": None}},
    "twelve data": {"meta": {"symbol": "AAA", "interval": "5min", "exchange_timezone": "America/New_York"},
                    "values": [{k: str(v) for k, v in row.items()} for row in _objects("datetime", LOCAL, LONG)],
                    "status": "ok"},
    "finnhub": {"c": CL, "h": HI, "l": LO, "o": OP, "s": "ok", "t": [at // 1000 for at in MS], "v": VO},
    "kraken": {"error": [], "result": {"AAA": [[at // 1000, *row[:4], "1.1", row[4], 9] for at, row in
                                               zip(MS, OHLCV, strict=True)], "last": MS[-1] // 1000}},
    "bybit": {"retCode": 0, "result": {"symbol": "AAA", "list": _lists(text=True, more=("9",))[::-1]}},
    "okx": {"code": "0", "msg": "", "data": _lists(text=True, more=("1", "1", "1"))},
    "pandas records": _objects("Datetime", MS, "Open High Low Close Volume"),
    "pandas columns": {name: {str(at): value for at, value in zip(MS, column, strict=True)}
                       for name, column in zip(LONG.split(), COLUMNS, strict=True)},
    "pandas columns, numbered": {name: {str(n): value for n, value in enumerate(column)}
                                 for name, column in zip(["ts", *LONG.split()], (MS, *COLUMNS), strict=True)},
    "pandas split": {"columns": LONG.split(), "index": MS, "data": [list(row) for row in OHLCV]},
    "pandas index": {str(at): dict(zip(LONG.split(), row, strict=True)) for at, row in zip(MS, OHLCV, strict=True)},
    "pandas index, numbered": {str(n): row for n, row in enumerate(_objects("ts", MS, LONG))},
    "pandas table": {"schema": {"fields": [{"name": "ts", "type": "datetime"}]}, "data": _objects("ts", STAMPS, LONG)},
    "columns as lists": {"ts": STAMPS, "open": OP, "high": HI, "low": LO, "close": CL, "volume": VO},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    yield
    assert list(scratch.iterdir()) == []


def _read(tmp_path: Path, content: str | bytes, name: str = "AAA_5m.json", symbols: tuple[str, ...] = ()) -> Delivery:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    (delivery,) = read_files([path], clock=XNYS, tz=None, stamp="open", symbols=symbols)
    return delivery


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("indent", [None, 2])
def test_each_form_of_json_gives_the_same_bars(tmp_path: Path, form: str, indent: int | None) -> None:
    got = _read(tmp_path, json.dumps(FORMS[form], indent=indent))
    assert got.frame.sort("ts").rows() == WANT
    assert got.rejects is None or got.rejects.is_empty()


@pytest.mark.parametrize("name", ["AAA_5m.jsonl", "AAA_5m.ndjson", "AAA_5m.json", "AAA_5m.txt"])
@pytest.mark.parametrize("form", ["array of objects", "binance klines"])
def test_json_lines_are_read_whatever_they_hold(tmp_path: Path, name: str, form: str) -> None:
    text = "\n".join(json.dumps(row) for row in FORMS[form])
    assert _read(tmp_path, text).frame.rows() == WANT
    assert _read(tmp_path, text.replace("\n", "\r\n\r\n") + "\n", name).frame.rows() == WANT


def test_answers_one_a_line_and_batches_are_added_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "BATCH", 2)
    rows = FORMS["polygon"]["results"]
    pages = [{"ticker": "AAA", "results": rows[:1]}, {"ticker": "AAA", "results": rows[1:]}]
    assert _read(tmp_path, "\n".join(map(json.dumps, pages))).frame.rows() == WANT
    assert _read(tmp_path, json.dumps(pages)).frame.rows() == WANT
    assert _read(tmp_path, json.dumps(FORMS["array of objects"])).frame.rows() == WANT
    assert _read(tmp_path, "\n".join(map(json.dumps, FORMS["freqtrade"]))).frame.rows() == WANT


def test_an_answer_of_several_symbols_gives_all_of_them(tmp_path: Path) -> None:
    bars = {name: _objects("t", STAMPS, "o h l c v") for name in ("AAA", "BRK.B", "005930", "NA")}
    got = _read(tmp_path, json.dumps({"bars": bars, "next_page_token": "abc"}))
    assert got.frame.group_by("symbol").len().sort("symbol").rows() == [
        ("005930", 3),
        ("AAA", 3),
        ("BRK.B", 3),
        ("NA", 3),
    ]
    assert any("one page of several" in line and "next_page_token" in line for line in got.remarks)
    latest = {"bars": {name: _objects("t", STAMPS, "o h l c v")[0] for name in ("AAA", "BBB")}}
    assert _read(tmp_path, json.dumps(latest)).frame["symbol"].to_list() == ["AAA", "BBB"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_json_in_other_encodings_is_read(tmp_path: Path, encoding: str) -> None:
    got = _read(tmp_path, json.dumps(FORMS["array of objects"], indent=1).encode(encoding), "AAA.dat")
    assert got.frame.rows() == WANT


def test_words_for_nothing_and_infinite_numbers_are_missing_values(tmp_path: Path) -> None:
    rows = _objects("ts", STAMPS, LONG)
    rows[0]["volume"], rows[1]["close"], rows[2]["open"] = float("nan"), float("inf"), None
    del rows[2]["high"]
    got = _read(tmp_path, json.dumps(rows)).frame
    assert got["volume"].to_list() == [None, 200.0, 300.0]
    assert got["close"].to_list() == [1.5, None, 1.0]
    assert got["open"].to_list() == [1.0, 1.5, None]
    assert got["high"].to_list() == [2.0, 2.5, None]


def test_symbols_stay_text_and_numbers_for_them_are_said(tmp_path: Path) -> None:
    rows = [
        {**row, "symbol": name}
        for row, name in zip(_objects("ts", STAMPS, LONG), ("NA", "TRUE", "005930"), strict=True)
    ]
    assert _read(tmp_path, json.dumps(rows)).frame["symbol"].sort().to_list() == ["005930", "NA", "TRUE"]
    numbers = _read(tmp_path, json.dumps(_objects("ts", STAMPS, LONG, code=5930)))
    assert numbers.frame["symbol"].unique().to_list() == ["5930"]
    assert any("zeros in front may be lost" in line for line in numbers.remarks)


def test_times_beside_the_zone_they_are_of_are_read_by_it_and_it_is_said(tmp_path: Path) -> None:
    answer = json.dumps(FORMS["twelve data"]).replace("America/New_York", "Europe/London")
    got = _read(tmp_path, answer)
    assert got.frame["ts"].min() == utc("2026-06-01T08:30")
    assert any("Europe/London" in line and "as the file says" in line for line in got.remarks)
    (told,) = read_files([tmp_path / "AAA_5m.json"], clock=XNYS, tz="America/New_York", stamp="open", symbols=())
    assert told.frame["ts"].min() == utc("2026-06-01T13:30")


def test_a_key_that_comes_twice_loses_no_bar(tmp_path: Path) -> None:
    text = json.dumps(FORMS["alpha vantage"])
    equal = text.replace('"2026-06-01 09:35:00"', '"2026-06-01 09:30:00"').replace('"1.5"', '"1.0"')
    with pytest.raises(SourceError, match="twice, with other values"):
        _read(tmp_path, equal)
    row = '"2026-06-01 09:30:00": {"open": 1, "high": 1, "low": 1, "close": 1, "volume": 1}'
    got = _read(tmp_path, f"{{{row}, {row}}}")
    assert got.frame.height == 1
    assert any("1 entries twice under one key" in line for line in got.remarks)


def test_a_few_rows_of_another_length_are_set_aside(tmp_path: Path) -> None:
    rows = [[1780320600000 + 300_000 * n, 1, 2, 0.5, 1.5, n] for n in range(300)]
    rows[9].append(7)
    rows[10].pop(1)
    path = tmp_path / "AAA_5m.json"
    path.write_text(json.dumps(rows))
    report = ingest(from_files(path, calendar="24/7"), Workspace(tmp_path / "w"), now=NOW)
    (row,) = report.symbols
    assert (row.symbol, row.received, row.new) == ("AAA", 300, 298)
    assert sorted(bad.reason for bad in row.quarantined) == [
        "a row of 5 fields, the header names 6",
        "a row of 7 fields, the header names 6",
    ]
    with pytest.raises(SourceError, match="that are not"):
        _read(tmp_path, json.dumps(rows[:20]))


def test_a_last_line_that_is_cut_off_is_set_aside(tmp_path: Path) -> None:
    text = "\n".join(json.dumps(row) for row in FORMS["array of objects"])
    got = _read(tmp_path, text + '\n{"ts": "2026-06-01T13:4', "AAA.jsonl")
    assert got.frame.rows() == WANT
    assert got.rejects is not None
    assert got.rejects["reason"].to_list() == ["a line that is cut off"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[", "at its end"),
        (json.dumps(FORMS["freqtrade"])[:-9], "cut off"),
        (json.dumps(FORMS["polygon"])[:-9], "at its end"),
        (json.dumps(FORMS["freqtrade"]) + "]", "Extra data"),
        ('{"a":1}\n{"b":\n{"c":2}\n', "line 2"),
        ("[]", "at least one row"),
        ("{}", "at least one row"),
        ('{"results": [], "status": "OK"}', "an object without any"),
        ('{"Note": "Our standard limit is 25 requests a day."}', "25 requests"),
        (
            '{"chart": {"result": null, "error": {"code": "Not Found", "description": "No data found"}}}',
            "No data found",
        ),
        ('{"error": ["EQuery:Unknown asset pair"]}', "Unknown asset pair"),
        ('[{"foo": 1}]', "no column for time stamp"),
        ("[1, 2, 3]", "at least one row"),
        ("[[1780320600000, 1, 2, 3]]", "at least 6 fields"),
        ("[[1780320600000, 5, 1, 3, 4, 100]]", "contradict"),
        ('[{"ts": 1780320600, "open": {"bid": 1}, "high": 1, "low": 1, "close": 1, "volume": 1}]', "without any"),
        ("[" * 100_000, "nested"),
        ('{"a":' * 100_000, "nested"),
        ("[" * 100_000 + "]" * 100_000, "nested"),
        ('[{"ts": ' + "9" * 6000 + ', "open": 1, "high": 1, "low": 1, "close": 1, "volume": 1}]', "digits"),
        ("{not json at all}", "Expecting property name"),
        (b'[{"ts": "\xff\xfe"}]', "another encoding"),
        ("null", "at least one row"),
    ],
)
def test_json_without_bars_is_one_message(tmp_path: Path, typed: Typed, content: str | bytes, words: str) -> None:
    with pytest.raises(SourceError) as refusal:
        _read(tmp_path, content)
    assert words in str(refusal.value)
    code, out, err = typed("ingest", str(tmp_path / "AAA_5m.json"), "-w", str(tmp_path / "w"))
    assert (code, out, err.count("do this:")) == (1, "", 1)


@pytest.mark.parametrize(("limit", "form"), [("MAX_JSON", "freqtrade"), ("MAX_OBJECT", "polygon")])
def test_json_that_is_too_large_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, form: str
) -> None:
    monkeypatch.setattr(json_text, limit, 50)
    with pytest.raises(SourceError, match="JSON Lines"):
        _read(tmp_path, json.dumps(FORMS[form]))


def test_a_number_beyond_64_bits_is_set_aside_like_any_stamp_that_is_none(tmp_path: Path) -> None:
    rows = _objects("ts", [*MS[:2], 10**30], LONG)
    frame = _read(tmp_path, json.dumps(rows)).frame
    assert frame["ts"].null_count() == 1
    assert isinstance(frame, pl.DataFrame)
