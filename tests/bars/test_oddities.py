"""In: bars with one thing wrong. Out: that thing is found, with its stamp, and nothing else."""

from __future__ import annotations

import polars as pl
import pytest

from klinepred.bars.oddities import look_over
from klinepred.calendar import place
from klinepred.schema import PRICES
from tests.bars.made import rows, utc, walk


def _placed(frame: pl.DataFrame) -> pl.DataFrame:
    return place(frame.with_columns(calendar=pl.lit("XNYS")))


def _counts(frame: pl.DataFrame) -> dict[str, int]:
    return {name: value for name, value in look_over(_placed(frame))[0].row(0, named=True).items() if name != "symbol"}


def _listed(frame: pl.DataFrame) -> list[tuple[str, str, str | None]]:
    table = look_over(_placed(frame))[1]
    return [
        (f"{ts:%m-%d %H:%M}", kind, factor) for ts, kind, factor in table.select("ts", "kind", "factor").iter_rows()
    ]


def _times(factor: float, start: str, end: str = "2027-01-01") -> list[pl.Expr]:
    """Prices times `factor` from `start` to before `end`."""
    inside = (pl.col("ts") >= utc(start)) & (pl.col("ts") < utc(end))
    return [pl.when(inside).then(pl.col(name) * factor).otherwise(name).alias(name) for name in PRICES]


def test_a_quiet_walk_has_nothing_odd() -> None:
    assert set(_counts(walk(["A"])).values()) == {0}


@pytest.mark.parametrize(
    ("factor", "named"), [(0.25, "1/4"), (0.1, "1/10"), (3.0, "3"), (100.0, "100"), (0.01, "1/100"), (1.7, None)]
)
def test_an_unadjusted_split_is_one_jump_at_the_open_and_near_its_factor(factor: float, named: str | None) -> None:
    split = walk(["A"]).with_columns(_times(factor, "2026-06-02"))
    assert _counts(split)["jumps"] == 1
    assert _counts(split)["spikes"] == 0
    assert _listed(split) == [("06-02 13:30", "jump", named)]
    row = look_over(_placed(split))[1].row(0, named=True)
    assert row["ratio"] == pytest.approx(factor, rel=0.02)
    assert (row["note"] or "").startswith("an unadjusted split" if named else "")
    assert row["before_ts"] == utc("2026-06-01T19:55")


@pytest.mark.parametrize(("factor", "jumps"), [(1.2, 0), (1.3, 1), (0.85, 0), (0.75, 1)])
def test_jumps_are_those_of_over_a_quarter(factor: float, jumps: int) -> None:
    assert _counts(walk(["A"]).with_columns(_times(factor, "2026-06-02")))["jumps"] == jumps


def test_one_bar_a_hundred_times_too_high_is_a_spike_and_two_jumps_of_which_it_is_said_so() -> None:
    bad = walk(["A"]).with_columns(_times(100.0, "2026-06-02T15:00", "2026-06-02T15:05"))
    counts = _counts(bad)
    assert (counts["jumps"], counts["spikes"]) == (2, 1)
    assert _listed(bad) == [
        ("06-02 15:00", "jump", "100"),
        ("06-02 15:00", "spike", None),
        ("06-02 15:05", "jump", "1/100"),
    ]
    assert "back" in look_over(_placed(bad))[1]["note"][0]


@pytest.mark.parametrize(("stamp", "size", "found"), [
    ("2026-06-02T15:00", 0.06, 1), ("2026-06-02T15:00", 0.04, 0),
    ("2026-06-02T13:30", 0.08, 0), ("2026-06-02T13:30", 0.12, 1),  # next to a night it takes twice as much
    ("2026-06-02T19:55", 0.08, 0),
])  # fmt: skip
def test_a_low_far_below_both_neighbours_is_a_spike(stamp: str, size: float, found: int) -> None:
    here = pl.col("ts") == utc(stamp)
    bad = walk(["A"]).with_columns(low=pl.when(here).then(pl.col("low") * (1.0 - size)).otherwise("low"))
    assert _counts(bad)["spikes"] == found
    if found:
        row = look_over(_placed(bad))[1].row(0, named=True)
        assert (row["kind"], row["ts"], row["ratio"] < 1.0) == ("spike", utc(stamp), True)


def test_a_move_over_a_night_is_no_spike() -> None:
    assert _counts(walk(["A"]).with_columns(_times(1.2, "2026-06-02")))["spikes"] == 0


def test_the_longest_run_without_volume_ends_at_a_missing_bar() -> None:
    first = utc("2026-06-01T14:00")
    quiet = walk(["A"]).with_columns(
        volume=pl.when(pl.col("ts").is_between(first, utc("2026-06-01T14:45"))).then(0.0).otherwise("volume")
    )  # ten bars, then the fifth of them is taken out: four and five are left
    quiet = quiet.filter(pl.col("ts") != utc("2026-06-01T14:20"))
    counts = _counts(quiet)
    assert (counts["zero_volume"], counts["zero_run"]) == (9, 5)
    assert counts["stale"] == 0  # prices move on


def test_bars_that_repeat_the_price_without_volume_are_stale() -> None:
    made = rows(
        ("A", "2026-06-01T13:30", 10.0, 10.4, 9.8, 10.2, 100.0),
        ("A", "2026-06-01T13:35", 10.2, 10.2, 10.2, 10.2, 0.0),  # filled in from the close before
        ("A", "2026-06-01T13:40", 10.2, 10.2, 10.2, 10.2, 0.0),
        ("A", "2026-06-01T13:45", 10.2, 10.3, 10.1, 10.1, 50.0),
        ("A", "2026-06-01T13:50", 10.2, 10.3, 10.1, 10.1, 50.0),  # a feed that got stuck
        ("A", "2026-06-01T13:55", 10.1, 10.1, 10.1, 10.1, 50.0),
        ("A", "2026-06-01T14:00", 10.1, 10.1, 10.1, 10.1, 50.0),  # the same lot at the same price is no proof
        ("A", "2026-06-01T14:05", 10.4, 10.4, 10.4, 10.4, 0.0),  # without volume, but another price
    )
    counts = _counts(made)
    assert (counts["stale"], counts["stale_run"], counts["zero_volume"], counts["zero_run"]) == (3, 2, 3, 2)


def test_symbols_do_not_touch_each_other() -> None:
    both = pl.concat([walk(["A"]), walk(["Z"]).with_columns(pl.col(PRICES) * 40.0)])
    counts, listed = look_over(_placed(both))
    assert counts["jumps"].to_list() == [0, 0]
    assert counts["spikes"].to_list() == [0, 0]
    assert listed.is_empty()
