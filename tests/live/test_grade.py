"""In: predictions, bars with known closes. Out: grades worked out by hand, each once, again only where bars changed."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.ingest import ingest
from klinepred.live import grade as grading
from klinepred.live.grade import GRADES, Graded, grade_open
from klinepred.live.ledger import ledger_folder, record
from klinepred.live.outcome import outcomes
from klinepred.live.score import read_ledger, score
from klinepred.live.table import scan, version
from klinepred.paths import Workspace
from tests.bars.made import flat, from_files, rows, utc, walk
from tests.live.made import predicted

# Wednesday 10 June 2026, New York opens at 13:30 UTC
CLOSES = {"13:30": 100.0, "13:35": 101.0, "13:40": 100.5, "13:45": 100.5, "13:55": 102.0, "14:00": 101.0}
DAY = "2026-06-10T"
NOW = utc(DAY + "14:10")


def _bps(first: str, last: str) -> float:
    return math.log(CLOSES[last] / CLOSES[first]) * 1e4


def _store(space: Workspace, bars: pl.DataFrame, *, now: datetime = NOW) -> None:
    space.root.mkdir(exist_ok=True)
    bars.write_parquet(space.root / "bars.parquet")
    ingest(from_files(space.root / "bars.parquet", rescale="never"), space, now=now)


def _bars(closes: dict[str, float] = CLOSES, symbol: str = "AAA") -> pl.DataFrame:
    return rows(*(flat(symbol, DAY + clock, price) for clock, price in closes.items()))


def _record(space: Workspace, *parts: pl.DataFrame, now: str = DAY + "13:30", universe: tuple[str, ...] = ()) -> None:
    record(space, pl.concat(parts), store_version=0, now=utc(now), universe=universe)


def _row(bar: str, target: str, expected: float | None = 1.0, symbol: str = "AAA", **options: object) -> pl.DataFrame:
    return predicted(symbol, DAY + bar, DAY + target, expected, **options)  # type: ignore[arg-type]


def test_a_prediction_is_graded_by_the_return_that_came(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    _store(space, _bars())
    _record(
        space,
        _row("13:30", "13:35", 5.0, lo=-50.0, hi=99.0),  # + 99.5 bps: right, above its interval
        _row("13:35", "13:40", 5.0, lo=-50.0, hi=50.0),  # - 49.6 bps: wrong, inside
        _row("13:40", "13:45", 5.0),  # nothing moved: no sign
        _row("13:45", "13:50"),  # 13:50 never came
        _row("13:50", "13:55"),
        _row("14:00", "14:05"),  # still to come
    )
    assert grade_open(space, now=NOW) == Graded(graded=3, ungradable=2, revised=0, waiting=1)
    found = read_ledger(space)
    assert found["raw_bps"].to_list() == pytest.approx(
        [_bps("13:30", "13:35"), _bps("13:35", "13:40"), 0.0, None, None, None]
    )
    assert found["realised_bps"].equals(found["raw_bps"].alias("realised_bps"))
    assert found["hit"].to_list() == [True, False, None, None, None, None]
    assert found["inside"].to_list() == [False, True, True, None, None, None]
    assert found["reason"].to_list()[3:] == [
        "missing bar: not all up to 2026-06-10T13:50:00Z are stored",
        "its bar 2026-06-10T13:50:00Z is not stored",
        None,
    ]
    assert found["session_end"].drop_nulls().unique().to_list() == [utc(DAY + "20:00")]


def test_grading_twice_changes_nothing_and_opens_no_table_when_nothing_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = Workspace(tmp_path)
    _store(space, _bars())
    _record(space, _row("13:30", "13:35"))
    assert grade_open(space, now=NOW).graded == 1
    monkeypatch.setattr(grading, "scan", None)  # would fail if it were called
    assert grade_open(space, now=NOW) == Graded()
    assert version(ledger_folder(space), GRADES) == 0


def test_two_passes_at_once_leave_one_grade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Workspace(tmp_path)
    _store(space, _bars())
    _record(space, _row("13:30", "13:35"), _row("13:35", "13:40"))

    def overtaken(due: pl.DataFrame, space: Workspace, *, now: datetime) -> pl.DataFrame:
        """While this pass computes, another one begins and ends."""
        monkeypatch.setattr(grading, "outcomes", outcomes)
        assert grade_open(space, now=now).graded == 2
        return outcomes(due, space, now=now)

    monkeypatch.setattr(grading, "outcomes", overtaken)
    assert grade_open(space, now=NOW) == Graded()
    assert scan(ledger_folder(space), GRADES).collect().height == 2
    assert version(ledger_folder(space), GRADES) == 0


def test_a_late_bar_and_a_revision_give_a_grade_of_their_own(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    _store(space, _bars())
    _record(space, _row("13:35", "13:40"), _row("13:45", "13:50"))
    assert grade_open(space, now=NOW) == Graded(graded=1, ungradable=1)
    _store(space, _bars({**CLOSES, "13:50": 101.0, "13:40": 100.0}))
    assert grade_open(space, now=NOW) == Graded(revised=2)
    found = read_ledger(space)
    assert found["revision"].to_list() == [1, 1]
    assert found["raw_bps"].to_list() == pytest.approx([math.log(100.0 / 101.0) * 1e4, math.log(101.0 / 100.5) * 1e4])
    assert found["reason"].to_list() == [None, None]
    assert grade_open(space, now=NOW) == Graded()


def test_what_no_bar_came_for_is_given_up_after_seven_days(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    _store(space, _bars())
    _record(space, _row("14:00", "14:05"), _row("14:00", "14:05", symbol="GONE"))
    assert grade_open(space, now=utc("2026-06-17T14:10")) == Graded(waiting=2)
    assert grade_open(space, now=utc("2026-06-17T14:11")) == Graded(ungradable=2)
    assert read_ledger(space)["reason"].to_list() == ["no bar came within 7 days", "no bars of it are stored"]


def test_a_forecast_of_two_bars_needs_the_one_between(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    _store(space, _bars())
    _record(space, _row("13:30", "13:40"), _row("13:45", "13:55"))  # 13:50 is missing
    assert grade_open(space, now=NOW) == Graded(graded=1, ungradable=1)
    found = read_ledger(space)
    assert found["raw_bps"].to_list() == pytest.approx([_bps("13:30", "13:40"), None])
    assert found["reason"].to_list() == [None, "missing bar: not all up to 2026-06-10T13:55:00Z are stored"]


def test_a_weekend_and_a_half_day_are_steps_by_the_calendar(tmp_path: Path) -> None:
    """Friday 19:55 to Monday 13:30; the day after Thanksgiving closes at 18:00 UTC."""
    space = Workspace(tmp_path)
    bars = pl.concat([walk(["^GSPC"], start=day, days=4) for day in ("2025-11-28", "2026-06-05")])
    _store(space, bars)
    close = dict(bars.select("ts", "close").rows())
    _record(
        space,
        predicted("^GSPC", "2026-06-05T19:55", "2026-06-08T13:30"),
        predicted("^GSPC", "2025-11-28T17:55", "2025-12-01T14:30"),
        now="2025-11-28T18:00",
    )
    assert grade_open(space, now=NOW) == Graded(graded=2)
    found = read_ledger(space)
    steps = [("2025-11-28T17:55", "2025-12-01T14:30"), ("2026-06-05T19:55", "2026-06-08T13:30")]
    by_hand = [math.log(close[utc(after)] / close[utc(before)]) * 1e4 for before, after in steps]
    assert found["raw_bps"].to_list() == pytest.approx(by_hand)
    assert found["kind"].to_list() == [1, 1]
    assert [str(day) for day in found["session"]] == ["2025-12-01", "2026-06-08"]


def test_symbols_and_universes_that_are_gone_have_their_reasons(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    _store(space, _bars())
    record(space, _row("13:30", "13:35", symbol="GONE"), store_version=0, now=utc(DAY + "13:30"), universe=())
    assert grade_open(space, now=NOW) == Graded(waiting=1)
    lost = _row("13:30", "13:35", kind="relative", model="lost")
    record(space, lost, store_version=0, now=utc(DAY + "13:30"))
    assert grade_open(space, now=NOW) == Graded(ungradable=1, waiting=1)
    assert read_ledger(space, model="lost")["reason"].to_list() == ["the universe of its model is not known"]


def test_a_relative_forecast_is_graded_against_the_mean_of_its_universe(tmp_path: Path) -> None:
    """y = raw / vol minus its mean over the universe, worked out in plain Python from the closes."""
    space = Workspace(tmp_path)
    names = ["A", "B", "C", "D", "E", "OUT"]
    bars = walk(names, start="2026-06-09", days=2)
    _store(space, bars, now=utc("2026-06-11T00:00"))
    at, after = utc(DAY + "15:00"), utc(DAY + "15:05")
    units = {}
    for name in names:
        one = bars.filter(pl.col("symbol") == name)
        inside = [
            math.log(b / a) ** 2 if later - sooner == timedelta(minutes=5) else None
            for (sooner, a), (later, b) in zip(
                one.select("ts", "close").rows()[:-1], one.select("ts", "close").rows()[1:], strict=True
            )
        ]
        upto = inside[: one["ts"].to_list().index(at)]
        last = [square for square in upto[-78:] if square is not None]
        vol = math.sqrt(sum(last) / len(last))
        closes = dict(one.select("ts", "close").rows())
        units[name] = (math.log(closes[after] / closes[at]) / vol, vol)
    mean = sum(units[name][0] for name in "ABCDE") / 5
    _record(
        space,
        *(_row("15:00", "15:05", 1.0, symbol=name, kind="relative") for name in names),
        now=DAY + "15:00",
        universe=("A", "B", "C", "D", "E"),
    )
    assert grade_open(space, now=utc(DAY + "15:11")).graded == 6
    found = read_ledger(space)
    assert found["vol_bps"].to_list() == pytest.approx([units[name][1] * 1e4 for name in names])
    assert found["realised_bps"].to_list() == pytest.approx(
        [(units[name][0] - mean) * units[name][1] * 1e4 for name in names]
    )


def test_a_relative_grade_waits_for_the_rest_of_its_universe(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    bars = walk(["A", "B", "C", "D", "E", "F"], start="2026-06-09", days=2)
    early = bars.filter((pl.col("symbol") != "F") | (pl.col("ts") < utc(DAY + "15:05")))
    _store(space, early, now=utc("2026-06-11T00:00"))
    _record(space, _row("15:00", "15:05", symbol="A", kind="relative"), now=DAY + "15:00", universe=tuple("ABCDEF"))
    assert grade_open(space, now=utc("2026-06-11T00:00")) == Graded(waiting=1)
    _store(space, bars, now=utc("2026-06-11T00:00"))
    assert grade_open(space, now=utc("2026-06-11T00:00")) == Graded(graded=1)


def test_two_symbols_of_a_universe_are_no_cross_section(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    _store(space, walk(["A", "B"], start="2026-06-09", days=2), now=utc("2026-06-11T00:00"))
    _record(space, _row("15:00", "15:05", symbol="A", kind="relative"), now=DAY + "15:00", universe=("A", "B"))
    assert grade_open(space, now=utc("2026-06-11T00:00")) == Graded(ungradable=1)
    found = read_ledger(space).row(0, named=True)
    assert found["reason"] == "fewer than 5 symbols of its universe have this return"
    assert found["realised_bps"] is None
    assert found["inside"] is not None  # the interval is of the raw return, which there is


def test_live_scores_are_those_worked_out_by_hand() -> None:
    """Two sessions, two symbols; IC over forecasts and outcomes in units of vol."""
    made = pl.DataFrame(
        {
            "model": "m",
            "run_id": "r",
            "target": "raw",
            "symbol": ["A", "B", "A", "B", "A", "A"],
            "note": ["", None, "stale", "", "overnight-not-trained", ""],
            "expected_return_bps": [1.0, -2.0, 3.0, -4.0, 0.0, 1.0],
            "realised_bps": [2.0, 4.0, 6.0, -8.0, 500.0, None],
            "raw_bps": [2.0, 4.0, 6.0, -8.0, 500.0, None],
            "vol_bps": [1.0, 2.0, 1.0, 2.0, 100.0, None],
            "lo80_bps": [0.0, 5.0, 0.0, -9.0, -1.0, 0.0],
            "hi80_bps": [1.0, 6.0, 7.0, 1.0, 1.0, 1.0],
            "reason": [None, None, None, None, None, "missing bar"],
            "session": ["2026-06-09", "2026-06-09", "2026-06-10", "2026-06-10", "2026-06-10", None],
        }
    ).with_columns(pl.col("session").str.to_date())
    (found,) = score(made).rows(named=True)
    # forecasts 1, -1, 3, -2 and outcomes 2, 2, 6, -4 in units of vol: means 1/4 and 3/2
    assert found["ic"] == pytest.approx(
        (2 - 2 + 18 + 8 - 4 * 0.25 * 1.5) / math.sqrt((15 - 4 * 0.25**2) * (60 - 4 * 1.5**2))
    )
    assert (found["predictions"], found["graded"], found["ungradable"], found["sessions"]) == (6, 5, 1, 2)
    assert found["hit_rate"] == 0.75
    assert found["hit_base"] == 0.75
    assert found["coverage80"] == pytest.approx(2 / 5)
    assert found["ic_raw"] is None
    assert found["ic_se"] > 0.0
    by_symbol = score(made, by="symbol")
    assert by_symbol.select("symbol", "graded").rows() == [("A", 3), ("B", 2)]
    assert score(made, by="session").get_column("graded").to_list() == [2, 3]
