"""In: a bundle, raw bars as a pandas frame. Out: `klinepred predict`'s rows as one; faults as MlflowException."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars as pl

from klinepred.bars.check import check_bars, symbol_is_odd
from klinepred.bars.latest import last_bars
from klinepred.crowd import forecast_many
from klinepred.errors import BarsError, KlinepredError, UsageError
from klinepred.model.bundle import ModelBundle, features_of, load_bundle
from klinepred.moment import SPAN, read_moment
from klinepred.prediction import longest_day, reach_of
from klinepred.schema import CALENDAR, TS, VALUES, Bars

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("klinepred.serving")

STAMP = "%Y-%m-%dT%H:%M:%SZ"


def open_bundle(folder: str) -> ModelBundle:
    """The bundle of a logged model.

    Raises
    ------
    mlflow.exceptions.MlflowException
        It is damaged, or of a newer klinepred.
    """
    with faults():
        return load_bundle(folder)


def answer(bundle: ModelBundle, frame: pd.DataFrame, *, params: Mapping[str, Any]) -> pd.DataFrame:
    """One row a symbol: the columns of `klinepred predict`, stamps as ISO 8601 text, NaN where it has none.

    Symbols that cannot be predicted are named in a warning and, with the reason, in the frame's `attrs["left_out"]`;
    if none can, that is an error.

    Parameters
    ----------
    frame
        `symbol`, `ts` (open of the bar, ISO 8601 with Z or an offset), open, high, low, close, volume; `calendar` is
        needed only for symbols that the model was not trained on.
    params
        `now` sets the clock; `start` and `end` ask for every bar between them instead of the newest. All are text and
        may be empty.

    Raises
    ------
    mlflow.exceptions.MlflowException
        INVALID_PARAMETER_VALUE, with the three parts of klinepred's messages: columns, stamps or values that no bar
        has, a calendar that is not known, too little history.
    """
    with faults():
        bars = bars_of(bundle, _polars(frame))
        now = moment(params.get("now"), name="now")
        first, last = moment(params.get("start"), name="start"), moment(params.get("end"), name="end")
        if last is not None and first is None:
            raise UsageError("params", expected="start beside end", got="end alone", do="add start")
        span = (first, last or now or datetime.now(UTC)) if first is not None else None
        table = bars.collect() if span is None else _reached(bundle, bars.collect(), span[0])
        names = table.get_column("symbol").unique().to_list()
        done = forecast_many(
            bundle,
            lambda some: Bars(table.lazy().filter(pl.col("symbol").is_in(some))),
            symbols=names,
            stored=set(names),
            span=span,
            now=now,
        )
    for symbol, reason in done.failures.items():
        log.warning("no prediction: %s: %s", symbol, reason)
    told = done.rows.with_columns(pl.col(TS).dt.strftime(STAMP)).to_pandas()
    told.attrs["left_out"] = dict(done.failures)
    return told


def _reached(bundle: ModelBundle, table: pl.DataFrame, start: datetime) -> pl.DataFrame:
    """The bars from `start` on, and as many before as `klinepred predict --start` reads.

    Sums that roll over the bars begin with the first one: another first one would change their last digits.
    """
    clocks = {*bundle.calendars.values(), *table.get_column(CALENDAR).cast(pl.String).unique()}
    reach = reach_of(bundle, features_of(bundle), day=longest_day(clocks))
    earlier = last_bars(table.lazy(), before=start, reach=reach)
    return pl.concat([earlier, table.filter(pl.col("ts") >= start)]).sort("symbol", "ts")


def _polars(frame: pd.DataFrame) -> pl.DataFrame:
    """The same table; a BarsError where a column mixes kinds, has lists in it, or bears a name twice."""
    import pyarrow as pa

    try:
        return pl.from_pandas(frame)
    except (pa.ArrowException, pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
        raise BarsError(
            "bars",
            expected="columns of one kind each: text in symbol, ts and calendar, numbers in the others",
            got=" ".join(str(error).split())[:200],
            do="send one value a cell, of its column's kind",
        ) from error


def bars_of(bundle: ModelBundle, table: pl.DataFrame) -> Bars:
    """Checked bars, sorted; the calendar of a symbol is the column's, else the one it was trained with.

    Raises
    ------
    BarsError
        No bars, a column is absent or of another kind, a stamp is no UTC time, a symbol has no calendar, or the rows
        are no bars (see `check_bars`).
    """
    wanted = ("symbol", "ts", *VALUES)
    if absent := [name for name in wanted if name not in table.columns]:
        raise BarsError(
            "bars",
            expected=f"the columns {', '.join(wanted)}",
            got=f"none named {', '.join(absent)}",
            do="name the columns so",
        )
    if table.is_empty():
        raise BarsError("bars", expected="rows", got="none", do="send the newest bars of every symbol")
    numbers = table.select(VALUES)
    if worded := [name for name, kind in numbers.schema.items() if not (kind.is_numeric() or kind == pl.Null)]:
        raise BarsError("bars", expected=f"numbers in {worded[0]}", got=str(numbers.schema[worded[0]]), do="cast it")
    named = table.with_columns(pl.col("symbol").cast(pl.String), pl.col(VALUES).cast(pl.Float64))
    if (odd := named.select(symbol_is_odd()).to_series()).any():
        where, row = _spot(odd)
        raise BarsError(
            "bars: column symbol",
            expected="a symbol in each row, without blanks around it or signs that cannot be seen",
            got=f"{_quoted(named.item(where, 'symbol'))} {row}",
            do="write the symbol, or leave the row out",
        )
    if CALENDAR not in named.columns:
        named = named.with_columns(pl.lit(None, pl.String).alias(CALENDAR))
    own = pl.col("symbol").replace_strict(bundle.calendars, default=None, return_dtype=pl.String)
    clocked = named.with_columns(
        ts=_stamps(named.get_column("ts")), **{CALENDAR: pl.coalesce(pl.col(CALENDAR).cast(pl.String), own)}
    )
    unknown = clocked.filter(pl.col(CALENDAR).is_null()).get_column("symbol").unique().sort().to_list()
    if unknown:
        raise BarsError(
            f"bars of {', '.join(map(str, unknown[:5]))}",
            expected=f"symbols the model was trained on ({', '.join(sorted(bundle.universe)[:12])}"
            f"{' …' if len(bundle.universe) > 12 else ''}), or a calendar for others",
            got="neither",
            do='add a column calendar, such as "XNYS" or "24/7", or leave these symbols out',
        )
    return check_bars(clocked.select("symbol", "ts", *VALUES, CALENDAR).sort("symbol", "ts"))


def moment(text: Any, *, name: str) -> datetime | None:
    """An ISO 8601 stamp of `params` in UTC (without an offset it is UTC); None where it is empty.

    Raises
    ------
    UsageError
        It is no such stamp.
    """
    if text in (None, ""):
        return None
    try:
        return read_moment(str(text))
    except ValueError as error:
        raise UsageError(
            f"params: {name}",
            expected=f"a stamp {SPAN} such as 2026-06-10T13:30:00Z",
            got=repr(text),
            do="write it so",
        ) from error


def _spot(bad: pl.Series) -> tuple[int, str]:
    """The first row that is bad, from 0, and where that is in words, with how many more there are."""
    where, more = int(bad.arg_true()[0]), int(bad.sum()) - 1
    return where, f"in row {where + 1}" + (f", and {more} more of that kind" if more else "")


def _stamps(ts: pl.Series) -> pl.Series:
    """Stamps as Datetime us UTC from ISO 8601 text with Z or an offset, or from stamps that have a zone."""
    if isinstance(ts.dtype, pl.Datetime) and ts.dtype.time_zone is not None:
        return ts.dt.convert_time_zone("UTC").cast(TS)
    text = ts.cast(pl.String, strict=False)
    whole = text.str.replace(r"^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(Z|[+-])", "${1}T${2}:00${3}")
    parsed = whole.str.replace(" ", "T", literal=True).str.to_datetime("%+", time_unit="us", strict=False)
    stamps = parsed.dt.convert_time_zone("UTC").cast(TS) if parsed.dtype != TS else parsed
    if (bad := stamps.is_null()).any():
        where, row = _spot(bad)
        raise BarsError(
            "bars: column ts",
            expected="the open of the bar as ISO 8601 text with Z or an offset, such as 2026-06-10T13:30:00Z",
            got=f"{text[where]!r} {row}",
            do="write its zone: ts.dt.tz_convert('UTC').dt.strftime('%Y-%m-%dT%H:%M:%SZ') in pandas",
        )
    return stamps


def _quoted(text: str | None) -> str:
    return "none" if text is None else repr(text[:80])


@contextmanager
def faults() -> Iterator[None]:
    """klinepred's errors become MLflow's, which its server answers with status 400 and their text."""
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE

    try:
        yield
    except KlinepredError as error:
        raise MlflowException(str(error), error_code=INVALID_PARAMETER_VALUE) from error
