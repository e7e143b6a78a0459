"""In: bars of a source that tells of splits. Out: stored bars follow them by default, and only them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from klinepred.bars import ingest as room
from klinepred.bars.delivery import SPLIT_SCHEMA, Delivery
from klinepred.bars.ingest import ingest
from klinepred.bars.report import IngestReport
from klinepred.paths import Workspace
from klinepred.settings import DataSettings
from tests.bars.made import NOW, utc, walk
from tests.bars.test_rescale import DAYS, of, record, scaled, stored, take

SPLIT: Final = utc("2026-06-08T13:30:00")
"""The Monday after the five days stored; four new shares for one."""


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    space = Workspace(tmp_path)
    take(space, walk(["A", "B"], days=DAYS))
    return space


def tell(*rows: tuple[str, Any, float]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SPLIT_SCHEMA, orient="row")


def deliver(
    space: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    frame: pl.DataFrame,
    splits: pl.DataFrame | None,
    **more: object,
) -> IngestReport:
    """As a source does that tells of splits."""

    def arrivals(*_: object, **__: object) -> Iterator[Delivery]:
        yield Delivery(frame, "test", splits=splits)

    monkeypatch.setattr(room, "arrivals", arrivals)
    return ingest(DataSettings.model_validate({"symbols": ("A",), **more}), space, now=NOW)


def test_a_split_that_the_source_tells_is_followed_by_default(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stored(space)
    later = of(walk(["A"], days=8)).slice(390)
    received = scaled(pl.concat([of(before).slice(234), later]), 0.25, 4.0)
    report = deliver(space, monkeypatch, received, tell(("A", SPLIT, 4.0)))
    (row,) = report.symbols
    assert (row.status, row.new, row.revised) == ("ok", later.height, 156)
    assert record(space)[0]["evidence"] == "source"
    assert stored(space).equals(pl.concat([scaled(pl.concat([of(before), later]), 0.25, 4.0), of(before, "B")]))
    assert "a split that the source tells of, shown by 156 of 156 common bars" in row.message
    again = deliver(space, monkeypatch, received, tell(("A", SPLIT, 4.0)))
    assert (again.symbols[0].status, again.version) == ("unchanged", report.version)


@pytest.mark.parametrize(
    ("splits", "why"),
    [
        (tell(("A", SPLIT, 2.0)), "another factor"),
        (tell(("B", SPLIT, 4.0)), "another symbol"),
        (tell(("A", utc("2026-06-01T13:30:00"), 4.0)), "before the common bars"),
        (tell(), "none"),
    ],
)
def test_only_a_split_of_that_factor_and_time_counts_as_told(
    space: Workspace, monkeypatch: pytest.MonkeyPatch, splits: pl.DataFrame, why: str
) -> None:
    before = stored(space)
    report = deliver(space, monkeypatch, scaled(of(before).slice(234), 0.25, 4.0), splits)
    assert report.symbols[0].status == "rejected", why
    assert stored(space).equals(before)


def test_two_splits_told_multiply(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored(space)
    splits = tell(("A", SPLIT, 3.0), ("A", utc("2026-06-09T13:30:00"), 0.5))
    deliver(space, monkeypatch, scaled(of(before).slice(234), 2.0 / 3.0, 1.5), splits)
    assert record(space)[0]["factor"] == "2/3"
    assert of(stored(space))["close"].to_numpy() == pytest.approx(of(before)["close"].to_numpy() * 2 / 3, rel=1e-12)


def test_a_split_told_without_overlap_is_named_and_followed_only_when_asked(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stored(space)
    later = scaled(of(walk(["A"], days=10)).slice(390), 0.25, 4.0)
    report = deliver(space, monkeypatch, later, tell(("A", SPLIT, 4.0)))
    assert report.symbols[0].status == "rejected"
    assert "the source tells of a split, 4 for 1, after the last stored bar" in report.symbols[0].message
    assert "pass --rescale" in report.symbols[0].message
    assert stored(space).equals(before)
    report = deliver(space, monkeypatch, later, tell(("A", SPLIT, 4.0)), rescale="always")
    assert (report.symbols[0].new, record(space)[0]["bars"]) == (later.height, 390)
    assert of(stored(space)).equals(pl.concat([scaled(of(before), 0.25, 4.0), later]))


def test_a_split_told_that_the_stored_bars_have_already_changes_nothing(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = of(walk(["A"], days=10)).slice(390)
    report = deliver(space, monkeypatch, later, tell(("A", SPLIT, 4.0)))
    assert (report.symbols[0].status, report.symbols[0].new) == ("ok", later.height)
    assert report.symbols[0].rescaled is None


def test_a_long_gap_does_not_hide_a_split_told(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    later = scaled(of(walk(["A"], start="2026-09-01", days=3)), 0.25, 4.0)
    report = deliver(space, monkeypatch, later, tell(("A", SPLIT, 4.0)))
    assert "4 for 1, after the last stored bar (2026-06-05 19:55Z" in report.symbols[0].message
