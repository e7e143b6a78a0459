"""In: chance, bars. Out: the same as JSON in the forms of services, or as Parquet and Arrow; some with faults."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

import numpy as np
import polars as pl

from tests.bars.fuzz.hostile import NUMBERS, STAMPS, SYMBOLS
from tests.bars.fuzz.market import ZONE_OF, Bar, make_bars
from tests.bars.fuzz.names import COLUMNS

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LEAVES: Final[tuple[Any, ...]] = (
    None,
    True,
    "",
    [],
    {},
    [1],
    {"a": 1},
    0,
    -1,
    1e308,
    -0.0,
    10**30,
    float("nan"),
    float("inf"),
    "1,5",
)
FIELDS: Final = ("open", "high", "low", "close", "volume")


def make_json(chance: Random) -> tuple[bytes, str, str]:
    """Bytes, a file name, the calendar."""
    calendar = chance.choice(list(ZONE_OF))
    symbol = chance.choice(("AAPL", "BTCUSDT", "BRK.B", "NA"))
    bars = make_bars(chance, calendar, [symbol], chance.choice((5, 5, 1)))
    form = chance.choice(
        ("records", "lines", "lists", "columns", "split", "index", "nested", "by_symbol", "yahoo", "alpha")
    )
    answer = _answer(form, bars, symbol, chance)
    for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
        _spoil(answer, chance)
    name = f"{symbol}_5m.{'jsonl' if form == 'lines' else 'json'}"
    if form == "lines" and isinstance(answer, list):
        return "\n".join(json.dumps(row) for row in answer).encode(), name, calendar
    text = json.dumps(answer, ensure_ascii=chance.random() < 0.8, indent=chance.choice((None, None, 1)))
    return text.encode(errors="surrogatepass"), name, calendar


def _answer(form: str, bars: list[Bar], symbol: str, chance: Random) -> Any:
    factor = chance.choice((1, 1000, 10**6, 10**9))
    stamps: list[Any] = [int((bar.ts - EPOCH).total_seconds()) * factor for bar in bars]
    if chance.random() < 0.5:
        stamps = [f"{bar.ts:%Y-%m-%dT%H:%M:%SZ}" for bar in bars]
    values: list[list[Any]] = [[bar.open, bar.high, bar.low, bar.close, bar.volume] for bar in bars]
    if chance.random() < 0.3:
        values = [[str(value) for value in row] for row in values]
    records = [{"timestamp": ts, **dict(zip(FIELDS, row, strict=True))} for ts, row in zip(stamps, values, strict=True)]
    lists = [[ts, *row] for ts, row in zip(stamps, values, strict=True)]
    columns = {"timestamp": stamps, **{name: [row[spot] for row in values] for spot, name in enumerate(FIELDS)}}
    if form in ("records", "lines"):
        return [{"symbol": symbol, **row} for row in records] if chance.random() < 0.5 else records
    if form == "lists":
        return lists
    if form == "columns":
        return columns
    if form == "split":
        return {"columns": ["timestamp", *FIELDS], "index": list(range(len(lists))), "data": lists}
    if form == "index":
        return {str(number): row for number, row in enumerate(records)}
    if form == "nested":
        return {"status": "OK", "ticker": symbol, "results": records, "next_url": None}
    if form == "by_symbol":
        return {"bars": {symbol: records, "MSFT": records}, "next_page_token": None}
    if form == "yahoo":
        quote = {name: columns[name] for name in FIELDS}
        meta = {"symbol": symbol, "exchangeTimezoneName": "America/New_York"}
        return {"chart": {"result": [{"meta": meta, "timestamp": stamps, "indicators": {"quote": [quote]}}]}}
    series = {
        str(ts): {f"{n + 1}. {key}": value for n, (key, value) in enumerate(zip(FIELDS, row, strict=True))}
        for ts, row in zip(stamps, values, strict=True)
    }
    return {"Meta Data": {"2. Symbol": symbol, "6. Time Zone": "US/Eastern"}, "Time Series (5min)": series}


def _spoil(node: Any, chance: Random) -> None:
    """One fault somewhere in an answer, in place."""
    for _ in range(6):
        inner = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
        below = [item for item in inner if isinstance(item, (dict, list)) and item]
        if not below or chance.random() < 0.2:
            break
        node = chance.choice(below)
    if not node:
        return
    leaf: Any = chance.choice((*LEAVES, chance.choice(NUMBERS), chance.choice(STAMPS), chance.choice(SYMBOLS)))
    leaf = deepcopy(leaf)  # a later fault may fall into it
    if chance.random() < 0.01:
        for _ in range(chance.choice((30, 300))):
            leaf = [leaf]
    if isinstance(node, list):
        spot = chance.randrange(len(node))
        change = chance.randrange(4)
        if change == 0:
            del node[spot]
        elif change == 1:
            node.insert(spot, deepcopy(node[spot]))
        else:
            node[spot] = leaf
    else:
        key = chance.choice(list(node))
        value = node.pop(key) if chance.random() < 0.4 else node[key]
        if chance.random() < 0.5:
            node[chance.choice((key, *COLUMNS))] = deepcopy(chance.choice((leaf, value)))


def make_binary(chance: Random) -> tuple[bytes, str, str]:
    """Bytes of a Parquet, Arrow or Feather file, its name, the calendar."""
    calendar = chance.choice(list(ZONE_OF))
    symbols = chance.sample(["AAPL", "BRK.B", "NA", "^GSPC"], chance.choice((1, 2)))
    bars = make_bars(chance, calendar, symbols, chance.choice((5, 5, 5, 1, 2)))
    frame = pl.DataFrame(
        {
            "symbol": [bar.symbol for bar in bars],
            "ts": [bar.ts for bar in bars],
            **{name: [getattr(bar, name) for bar in bars] for name in FIELDS},
        },
        schema_overrides={"ts": pl.Datetime("us", "UTC")},
    )
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        frame = _bend(frame, calendar, chance)
    out = io.BytesIO()
    kind = chance.choice(("parquet", "feather", "arrow"))
    if kind == "parquet":
        frame.write_parquet(out, compression=chance.choice(("zstd", "snappy", "uncompressed")))
    elif chance.random() < 0.8:
        frame.write_ipc(out, compression=chance.choice(("uncompressed", "zstd", "lz4")))
    else:
        frame.write_ipc_stream(out)
    return out.getvalue(), f"{symbols[0]}_5m.{kind}", calendar


def _bend(frame: pl.DataFrame, calendar: str, chance: Random) -> pl.DataFrame:
    """Another type, hostile values, other names, fewer or more columns."""
    if not frame.height or not frame.width:
        return frame
    name = chance.choice(frame.columns)
    kind = chance.randrange(8)
    if kind == 0 and "ts" in frame.columns and frame.schema["ts"] == pl.Datetime("us", "UTC"):
        ts = pl.col("ts")
        forms = (
            ts.cast(pl.Datetime("ms", "UTC")),
            ts.cast(pl.Datetime("ns", "UTC")),
            ts.dt.convert_time_zone(ZONE_OF[calendar]),
            ts.dt.convert_time_zone(ZONE_OF[calendar]).dt.replace_time_zone(None),
            ts.dt.epoch("s"),
            ts.dt.epoch("ms").cast(pl.Float64),
            ts.dt.epoch("ns"),
            ts.dt.strftime("%Y-%m-%d %H:%M:%S"),
            ts.dt.date(),
            ts.dt.epoch("s").cast(pl.Int32),
        )
        return frame.with_columns(chance.choice(forms).alias("ts"))
    if kind == 1 and frame.schema[name] == pl.Float64:
        number = chance.choice((np.nan, np.inf, -np.inf, -0.0, 0.0, -1.0, 1e308, 5e-324, None, 1e9))
        spots = set(chance.sample(range(frame.height), chance.choice((1, 1, frame.height))))
        column = [number if spot in spots else value for spot, value in enumerate(frame.get_column(name))]
        return frame.with_columns(pl.Series(name, column, dtype=pl.Float64))
    if kind == 2:
        types: tuple[Any, ...] = (
            pl.String,
            pl.Float32,
            pl.Int32,
            pl.Int64,
            pl.UInt64,
            pl.Decimal(18, 4),
            pl.Categorical,
            pl.Binary,
        )
        types += (pl.Boolean, pl.Null, pl.Date, pl.Time, pl.Duration("us"), pl.List(pl.Float64), pl.Int128, pl.Float16)
        try:
            return frame.with_columns(pl.col(name).cast(chance.choice(types), strict=False))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return frame
    if kind == 3:
        new = chance.choice(COLUMNS)
        return frame if new in frame.columns else frame.rename({name: new})
    if kind == 4:
        return frame.drop(name)
    if kind == 5:
        return pl.concat([frame, frame.sample(fraction=0.5, seed=chance.randrange(99))])
    if kind == 6 and frame.schema.get("symbol") == pl.String:
        names = [chance.choice((value, chance.choice(SYMBOLS[:-1]))) for value in frame.get_column("symbol")]
        return frame.with_columns(pl.Series("symbol", names, dtype=pl.String))
    odd = pl.struct(name) if chance.random() < 0.5 else pl.concat_list(pl.col(name))
    more = chance.choice(COLUMNS)
    return frame if more in frame.columns else frame.with_columns(odd.alias(more))
