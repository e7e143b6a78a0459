"""In: lists of sessions. Out: folds that follow each other, and labels counted that belong to no part of them."""

from __future__ import annotations

from datetime import date, timedelta

import polars as pl
import pytest

from klinepred.dataset.split import (
    PARTS,
    Split,
    assign_parts,
    label_sessions,
    make_splits,
    removed_labels,
    say_removed,
)
from klinepred.errors import DatasetError
from klinepred.settings import Pipeline, SplitSettings

DAYS = [date(2026, 1, 1) + timedelta(days=i) for i in range(100)]


def _spans(split: Split) -> list[tuple[date, date]]:
    """First and last session of train, validation, calibration, test."""
    edges = [split.train_end, split.validation_end, split.calibration_end, split.test_end or DAYS[-1]]
    starts = [split.train_start or DAYS[0], *(edge + timedelta(days=1) for edge in edges[:-1])]
    return list(zip(starts, edges, strict=True))


def test_expanding_folds_keep_their_beginning_and_test_one_span_after_the_other() -> None:
    """100 sessions, 60 train, 18 validation (a third calibrates), 22 test in four spans of 5, 6, 5 and 6."""
    settings = SplitSettings(train=0.6, validation=0.18, folds=4)
    folds = make_splits(DAYS, settings)
    got = [[(DAYS.index(low), DAYS.index(high)) for low, high in _spans(split)] for split in folds]
    assert got == [
        [(0, 59), (60, 71), (72, 77), (78, 82)],
        [(0, 64), (65, 76), (77, 82), (83, 88)],
        [(0, 70), (71, 82), (83, 88), (89, 93)],
        [(0, 75), (76, 87), (88, 93), (94, 99)],
    ]
    assert [(split.fold, split.folds) for split in folds] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert folds[-1].test_end is None  # what comes later is test too


def test_rolling_folds_keep_their_length() -> None:
    settings = SplitSettings(train=0.6, validation=0.18, folds=4, scheme="rolling")
    starts = [DAYS.index(split.train_start or DAYS[0]) for split in make_splits(DAYS, settings)]
    ends = [DAYS.index(split.train_end) for split in make_splits(DAYS, settings)]
    assert starts == [0, 5, 11, 16]
    assert [end - start + 1 for start, end in zip(starts, ends, strict=True)] == [60] * 4


def test_one_fold_is_the_single_split_and_the_first_of_many_has_its_train_and_validation() -> None:
    dates = SplitSettings(train_end=DAYS[49], validation_end=DAYS[69], embargo=1)
    (single,) = make_splits(DAYS, dates)
    first = make_splits(DAYS, dates.model_copy(update={"folds": 3}))[0]
    assert (single.train_start, single.test_end, single.fold, single.folds) == (None, None, 1, 1)
    for name in ("train_end", "validation_end", "calibration_end", "embargo"):
        assert getattr(single, name) == getattr(first, name)


@pytest.mark.parametrize("scheme", ["expanding", "rolling"])
def test_every_test_session_is_tested_once_by_a_model_that_ends_before_it(scheme: str) -> None:
    settings = SplitSettings.model_validate({"folds": 7, "scheme": scheme})
    tested: list[date] = []
    for split in make_splits(DAYS, settings):
        low, high = _spans(split)[3]
        assert split.calibration_end < low
        tested += [day for day in DAYS if low <= day <= high]
    single = make_splits(DAYS, SplitSettings())[0]
    assert tested == [day for day in DAYS if day > single.calibration_end]


def test_a_split_survives_json_and_one_of_before_the_walk_forward_is_read() -> None:
    for split in make_splits(DAYS, SplitSettings(folds=3, scheme="rolling", embargo=2)):
        assert Split.from_dict(split.to_dict()) == split
    old = {"train_end": "2026-02-01", "validation_end": "2026-02-10", "calibration_end": "2026-02-15", "embargo": 0}
    assert Split.from_dict(old) == Split(date(2026, 2, 1), date(2026, 2, 10), date(2026, 2, 15))


@pytest.mark.parametrize(
    ("settings", "expected", "got"),
    [
        (SplitSettings(folds=16), "at least one test session a fold", "16 folds for a test part of 15 sessions"),
        (SplitSettings(embargo=10), "shortest part after a border has, 10", "10: nothing of that part"),
        (SplitSettings(folds=5, embargo=3), "shortest part after a border has, 3", "3: nothing of that part"),
        (SplitSettings(train_end=DAYS[97], validation_end=DAYS[98]), "3+ validation", "98 train, 1 validation, 1 test"),
        (SplitSettings(train_end=DAYS[80], validation_end=DAYS[99]), "1+ test", "81 train, 19 validation, 0 test"),
        (SplitSettings(train_end=date(2025, 1, 1), validation_end=DAYS[50]), "1+ train", "0 train, 51 validation"),
    ],
)
def test_a_split_that_cannot_be_is_refused_with_both_numbers(settings: SplitSettings, expected: str, got: str) -> None:
    with pytest.raises(DatasetError) as caught:
        make_splits(DAYS, settings)
    assert expected in caught.value.expected
    assert got in caught.value.got


@pytest.mark.parametrize(
    ("train", "validation", "sizes"),
    [
        (0.5, 0.25, (4, 2, 1, 1)),  # 4 and 6 by the shares; validation and calibration get three sessions at least
        (0.05, 0.05, (1, 2, 1, 4)),  # train gets one at least
        (0.3, 0.6, (2, 4, 1, 1)),  # 2 and 7: of five sessions one calibrates
        (0.1, 0.75, (1, 4, 2, 1)),  # 1 and 7: of six sessions two do
    ],
)
def test_eight_sessions_are_enough_and_seven_are_not(
    train: float, validation: float, sizes: tuple[int, int, int, int]
) -> None:
    settings = SplitSettings(train=train, validation=validation, scheme="rolling")
    (split,) = make_splits(DAYS[:8], settings)
    edges = [DAYS.index(day) + 1 for day in (split.train_end, split.validation_end, split.calibration_end)]
    assert tuple(high - low for low, high in zip([0, *edges], [*edges, 8], strict=True)) == sizes
    assert (split.train_start, split.test_end) == (None, None)  # one split keeps all of its past
    with pytest.raises(DatasetError, match="at least 8 labelled sessions"):
        make_splits(DAYS[:7], settings)


def test_validation_never_reaches_beyond_the_sessions_there_are() -> None:
    with pytest.raises(DatasetError) as caught:
        make_splits(DAYS[:8], SplitSettings(train=0.9, validation=0.05))
    assert "7 train, 1 validation, 0 test" in caught.value.got
    with pytest.raises(DatasetError, match="0 sessions"):
        make_splits([], SplitSettings())


def test_as_many_folds_as_test_sessions_test_one_each_and_the_largest_embargo_leaves_one() -> None:
    folds = make_splits(DAYS, SplitSettings(folds=15))
    assert [DAYS.index(split.calibration_end) for split in folds] == list(range(84, 99))
    assert [split.test_end for split in folds] == [*DAYS[85:99], None]
    (split,) = make_splits(DAYS, SplitSettings(embargo=9))
    assert split.embargo == 9


def test_a_session_is_in_one_part_or_outside() -> None:
    split = Split(DAYS[2], DAYS[4], DAYS[6], train_start=DAYS[1], test_end=DAYS[8])
    frame = pl.DataFrame({"session": [*DAYS[:10], None]}, schema={"session": pl.Date})
    got = frame.select(part=split.part_of(pl.col("session")))
    assert got["part"].to_list() == [-1, 0, 0, 1, 1, 2, 2, 3, 3, -1, None]
    assert got.schema["part"] == pl.Int8


def test_a_bar_without_a_label_is_of_the_part_of_its_session_and_nothing_is_removed_of_it() -> None:
    """Newest bars, and bars before a gap. The embargo is of the sessions that have labels."""
    days = DAYS[:10]
    ends = [*days[1:4], None, *days[5:9], None, None]
    frame = pl.DataFrame(
        {
            "session": days,
            "first_session": ends,
            "last_session": ends,
            "raw": [None if d is None else 0.0 for d in ends],
        },
        schema={"session": pl.Date, "first_session": pl.Date, "last_session": pl.Date, "raw": pl.Float64},
    )
    split = Split(days[2], days[5], days[7], embargo=1)
    # labels end in sessions 1 2 3 . 5 6 7 8 . .; 3 and 8 are the first of validation and of test that have one
    got = assign_parts(frame, split)
    assert got["part"].to_list() == [0, 0, -1, -1, 1, 2, 2, -1, -1, -1]
    assert got["removed"].to_list() == [0, 0, 2, 0, 0, 0, 0, 2, 0, 0]
    assert got["end_part"].to_list() == [0, 0, 1, 1, 1, 2, 2, 3, 3, 3]
    assert got["row_part"].to_list() == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]
    assert got.columns == [*frame.columns, "row_part", "removed", "end_part", "part"]
    assert {got.schema[name] for name in ("row_part", "removed", "end_part", "part")} == {pl.Int8()}
    assert removed_labels(got) == {"validation": {"embargoed": 1}, "test": {"embargoed": 1}}


def test_the_embargo_counts_sessions_not_labels() -> None:
    """Three bars a session, the last of which looks into the next; two sessions are left out after each border."""
    days = [day for day in DAYS[:12] for _ in range(3)]
    ends = [*days[1:], None]
    frame = pl.DataFrame(
        {"session": days, "first_session": ends, "last_session": ends, "raw": [0.0] * 35 + [None]},
        schema={"session": pl.Date, "first_session": pl.Date, "last_session": pl.Date, "raw": pl.Float64},
    )
    got = assign_parts(frame, Split(DAYS[2], DAYS[5], DAYS[7], embargo=2))
    out = [row for row, why in enumerate(got["removed"]) if why == 2]
    assert out == [*range(8, 14), *range(23, 29)]  # labels that end in sessions 3, 4 and 8, 9


def test_scheme_without_folds_is_said_to_be_ignored() -> None:
    table = {"name": "one", "dataset": {"split": {"scheme": "rolling"}}}
    assert any("split.scheme is ignored" in line for line in Pipeline.model_validate(table).ignored())
    table["dataset"] = {"split": {"scheme": "rolling", "folds": 2}}
    assert Pipeline.model_validate(table).ignored() == []


def _labels(horizon: int) -> pl.DataFrame:
    """One bar a session, a label `horizon` sessions ahead."""
    count = len(DAYS) - horizon
    return pl.DataFrame(
        {
            "session": DAYS[:count],
            "first_session": DAYS[1 : count + 1],
            "last_session": DAYS[horizon:],
            "raw": [0.0] * count,
        }
    )


def test_labels_are_purged_at_every_border_of_a_fold_and_counted_there() -> None:
    """Rolling fold 2 of 4 (see above): train 5..64, validation 65..76, calibration 77..82, test 83..88."""
    split = make_splits(DAYS, SplitSettings(train=0.6, validation=0.18, folds=4, scheme="rolling"))[1]
    frame = assign_parts(_labels(4), split)
    spans = {"train": (5, 64), "validation": (65, 76), "calibration": (77, 82), "test": (83, 88)}
    for row, code in enumerate(frame["part"]):
        inside = [name for name, (low, high) in spans.items() if low <= row + 1 and row + 4 <= high]
        assert (PARTS[code] if code >= 0 else None) == (inside[0] if inside else None), row
    # three labels that end in a part begin before it
    assert removed_labels(frame) == {name: {"purged": 3} for name in PARTS}
    assert frame.filter(pl.col("end_part") == -1)["removed"].sum() == 0  # outside the fold nothing is removed


def test_the_embargo_is_counted_apart_from_what_is_purged() -> None:
    (split,) = make_splits(DAYS, SplitSettings(embargo=5))
    frame = assign_parts(_labels(3), split)
    # of five blocked sessions two end labels that reach over the border: those are purged already; two labels that end
    # after them begin in them
    assert removed_labels(frame) == {
        "validation": {"purged": 2, "embargoed": 5},
        "calibration": {"purged": 2},
        "test": {"purged": 2, "embargoed": 5},
    }
    first = {edge: DAYS.index(edge) + 1 for edge in (split.train_end, split.calibration_end)}
    for row, code in enumerate(frame["part"]):  # no bar of a label lies in the embargo
        bars = range(row + 1, row + 4)
        assert code < 0 or not any(at <= bar < at + 5 for at in first.values() for bar in bars), row
    text = say_removed(frame)
    assert "at the head of validation 2 purged and 5 embargoed" in text
    assert say_removed(frame.head(10)) == "labels removed: none"


def test_sessions_of_labels_are_in_order_though_symbols_begin_at_different_times() -> None:
    days = [date(2026, 3, day) for day in (2, 3, 4, 5, 6)]
    late, early = ([days[3], days[4], None], [days[0], days[2], days[3]])
    parts = [pl.DataFrame({"last_session": one}, schema={"last_session": pl.Date}) for one in (late, early)]
    assert label_sessions(parts) == [days[0], days[2], days[3], days[4]]
    many = [pl.DataFrame({"last_session": [date(2026, 1, 1) + timedelta(days=7 * n % 199)]}) for n in range(199)]
    assert label_sessions(many) == sorted(date(2026, 1, 1) + timedelta(days=n) for n in range(199))
