"""In: health of good, bad and hostile stores. Out: a page that is whole, escaped, of bounded size, without scripts."""

from __future__ import annotations

from datetime import date, timedelta
from html.parser import HTMLParser

import numpy as np
import polars as pl

from klinepred.bars.gaps import DAYTIMES
from klinepred.bars.health import Health, examine
from klinepred.bars.health_page import render_health
from klinepred.bars.heatmap import draw_daytimes, draw_heatmap
from klinepred.schema import CALENDAR, Bars
from tests.bars.made import NOW, utc, walk

HOSTILE = "<script>alert('1')</script>"


class Page(HTMLParser):
    """Tags with their attributes, and the text outside of styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._skip = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._skip = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._skip = False

    def handle_data(self, data: str) -> None:
        self.text += "" if self._skip else data


def _health(frame: pl.DataFrame, calendar: str = "XNYS") -> Health:
    return examine(Bars(frame.with_columns(pl.lit(calendar).cast(pl.Categorical).alias(CALENDAR)).lazy()), now=NOW)


def _sessions(symbols: int, days: int, *, chance: float = 0.0) -> pl.DataFrame:
    first = date(2021, 1, 4)
    session = [first + timedelta(days=day) for day in range(days)]
    missing = np.random.default_rng(1).integers(0, 79, symbols * days) if chance else np.zeros(symbols * days)
    return pl.DataFrame(
        {
            "symbol": [f"S{number:04d}" for number in range(symbols) for _ in range(days)],
            "session": session * symbols,
            "expected": [78] * (symbols * days),
            "missing": missing.astype(np.int64),
        }
    )


def test_every_part_is_on_the_page_and_the_numbers_are_those_of_the_table() -> None:
    frame = walk(["AAPL", "MSFT"])
    hole = pl.col("ts").is_between(utc("2026-06-02T14:00"), utc("2026-06-02T14:20")) & (pl.col("symbol") == "MSFT")
    page = Page(render_health(_health(frame.filter(~hole))))
    words = " ".join(page.text.split())
    parts = (
        "98.93 % there",
        "463",
        "bars of 468 expected",
        "Missing bars, XNYS",
        "time of day",
        "Symbols",
        "Longest gaps",
    )
    order = [words.index(part) for part in parts]
    assert order == sorted(order)
    assert "MSFT 2026-06-02: 5 of 78 missing" in words
    assert "10:00: 1 of 6 missing (16.7 %)" in words  # 14:00 UTC in New York; two symbols, three sessions
    assert "2026-06-02 14:00Z" in words
    assert "Jumps" not in words  # nothing found, nothing shown


def test_nothing_is_loaded_or_run() -> None:
    page = Page(render_health(_health(walk(["A"]))))
    assert {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "image", "use"} == set()
    for _, attrs in page.tags:
        assert not any(name in ("src", "href", "style", "srcset") or name.startswith("on") for name in attrs)
    assert "@import" not in render_health(_health(walk(["A"])))


def test_names_are_text_and_never_markup() -> None:
    frame = walk([HOSTILE, 'a" onload="x', "&amp;", "tab\tbell\x07"], days=2)
    aside = pl.DataFrame(
        {"symbol": [HOSTILE], "reason": [HOSTILE], "rows": [1], "first_ts": [NOW], "last_ts": [NOW]},
        schema_overrides={"rows": pl.Int64},
    )
    bars = Bars(frame.with_columns(pl.lit("XNYS").cast(pl.Categorical).alias(CALENDAR)).lazy())
    text = render_health(examine(bars, now=NOW, quarantine=aside))
    assert "<script" not in text
    assert "\x07" not in text
    page = Page(text)
    assert HOSTILE in page.text
    assert "&amp;" in page.text
    assert not any("onload" in attrs for _, attrs in page.tags)


def test_a_complete_store_is_called_so_and_one_bar_less_is_never_rounded_up() -> None:
    assert "100.00 % there" in Page(render_health(_health(walk(["A"])))).text
    many = walk([f"S{number}" for number in range(60)], days=3)
    assert "99.99 % there" in Page(render_health(_health(many.filter(pl.int_range(pl.len()) != 100)))).text


def test_runs_of_one_colour_are_one_rectangle() -> None:
    sessions = _sessions(1, 20)
    missing = [0] * 5 + [78] * 4 + [10] * 3 + [1] + [0] * 7
    chart = draw_heatmap(sessions.with_columns(missing=pl.Series(missing)), calendar="24/7", most=100)
    assert [(box.x // 16, box.width // 16, box.level) for box in chart.boxes] == [
        (0, 20, 0),
        (5, 4, 5),
        (9, 3, 2),
        (12, 1, 1),
    ]
    assert chart.boxes[1].title == "S0000 2021-01-09 to 2021-01-12: 312 of 312 missing"


def test_a_symbol_that_begins_late_is_drawn_from_there() -> None:
    both = pl.concat([_sessions(1, 20), _sessions(1, 20).tail(5).with_columns(symbol=pl.lit("LATE"))])
    chart = draw_heatmap(both, calendar="24/7", most=100)
    assert [(box.x // 16, box.width // 16) for box in chart.boxes] == [(0, 20), (15, 5)]


def test_the_picture_is_bounded_however_much_is_missing() -> None:
    torn = _sessions(500, 1250, chance=1.0)
    chart = draw_heatmap(torn, calendar="24/7", most=20_000)
    assert len(chart.boxes) <= 20_500
    assert chart.sessions > 1
    assert sum(int(box.title.split(": ")[1].split()[0].replace(",", "")) for box in chart.boxes if box.level) == int(
        torn["missing"].sum()
    )
    whole = draw_heatmap(_sessions(500, 1250), calendar="24/7", most=20_000)
    assert (len(whole.boxes), whole.sessions, whole.width) == (500, 1, 1250)


def test_the_page_of_500_torn_symbols_over_five_years_is_below_five_megabytes() -> None:
    torn = _sessions(600, 1250, chance=1.0).with_columns(received=78 - pl.col("missing"), zero_volume=pl.lit(0))
    torn = torn.with_columns(symbol="<" + pl.col("symbol") + "<" * 40)
    made = _health(walk(["A"]))
    totals = torn.group_by("symbol").agg(
        pl.col("expected", "received", "missing").sum(), sessions=pl.len().cast(pl.Int64)
    )
    blank = made.symbols.drop("symbol", "expected", "received", "missing", "sessions")
    symbols = totals.join(blank, how="cross").select(made.symbols.columns).sort("symbol")
    empty = made.quarantine.clear()
    text = render_health(
        Health(symbols, torn, made.gaps, made.jumps, made.daytimes, empty, made.rescalings, made.renames, (), 0, NOW)
    )
    assert len(text.encode()) < 5_000_000
    assert "the 500 of 600 symbols with most missing bars" in text


def test_the_highest_column_is_the_worst_time_of_day_and_no_missing_bar_vanishes() -> None:
    times = pl.DataFrame(
        [
            ("24/7", "00:00", 1000, 500),
            ("24/7", "00:05", 1000, 250),
            ("24/7", "00:10", 1000, 1),
            ("24/7", "00:15", 1000, 0),
        ],
        schema=DAYTIMES,
        orient="row",
    )
    chart = draw_daytimes(times, calendar="24/7", height=100)
    assert [(box.y, box.height) for box in chart.boxes] == [(0, 100), (50, 50), (99, 1), (100, 0)]
    assert chart.down[0].text == "50 %"
