"""In: rows of several symbols with gaps. Out: sequences stay inside a symbol, a run and a part."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klinepred.dataset.sequences import batches, cut_sequences
from klinepred.dataset.split import TRAIN, Split, assign_parts
from klinepred.settings import DatasetSettings


def test_windows_stay_inside_one_symbol() -> None:
    """Case 33: 10 and 8 bars, window 4, one bar ahead: 6 + 4 samples, not 14."""
    symbol = np.repeat([0, 1], [10, 8])
    slot = np.concatenate([np.arange(10), np.arange(8)])
    cut = cut_sequences(symbol, slot, np.zeros(18, dtype=np.int64), DatasetSettings(cut="window", window=4))
    has_target = np.ones(18, dtype=bool)
    has_target[[9, 17]] = False  # the newest bar of each symbol has no next bar
    samples = cut.covering(has_target)
    assert len(samples) == 10
    for start, length in zip(samples.start_S, samples.length_S, strict=True):
        assert len(set(symbol[start : start + length])) == 1
    assert list(samples.start_S[:6]) == [0, 1, 2, 3, 4, 5]
    assert list(samples.start_S[6:]) == [10, 11, 12, 13]


def test_chronological_split_of_windows_gives_736_and_200_labels() -> None:
    """Case 36: 1000 bars, window 64, last fifth for validation."""
    day0 = date(2026, 1, 1)
    days = [day0 + timedelta(days=i) for i in range(1000)]
    frame = pl.DataFrame(
        {
            "session": days,
            "first_session": [*days[1:], None],
            "last_session": [*days[1:], None],
            "raw": [0.0] * 999 + [None],
        }
    )
    split = Split(train_end=days[799], validation_end=days[998], calibration_end=days[998])
    part = assign_parts(frame, split)["part"].to_numpy()
    cut = cut_sequences(
        np.zeros(1000, dtype=np.int64),
        np.arange(1000),
        np.arange(1000),
        DatasetSettings(cut="window", window=64),
    )
    train = cut.covering(part == TRAIN)
    held = cut.covering(part > TRAIN)
    assert (len(train), len(held)) == (736, 200)
    train_targets = train.start_S + 64
    held_targets = held.start_S + 64
    assert (train_targets.min(), train_targets.max()) == (64, 799)
    assert (held_targets.min(), held_targets.max()) == (800, 999)
    assert held.start_S.min() == 736  # inputs may reach back


def test_labels_over_several_bars_are_purged_at_the_border() -> None:
    days = [date(2026, 1, 1) + timedelta(days=i) for i in range(20)]
    frame = pl.DataFrame(
        {
            "session": days[:16],
            "first_session": days[1:17],
            "last_session": days[4:20],  # horizon 4
            "raw": [0.0] * 16,
        }
    )
    split = Split(train_end=days[9], validation_end=days[12], calibration_end=days[14])
    part = assign_parts(frame, split)["part"].to_list()
    for row, code in enumerate(part):
        spans = {0 if i <= 9 else 1 if i <= 12 else 2 if i <= 14 else 3 for i in range(row + 1, row + 5)}
        assert code == (spans.pop() if len(spans) == 1 else -1), row


def test_embargo_leaves_out_the_first_sessions_after_train_and_after_calibration() -> None:
    days = [date(2026, 1, 1) + timedelta(days=i) for i in range(30)]
    frame = pl.DataFrame({"session": days, "first_session": days, "last_session": days, "raw": [0.0] * 30})
    split = Split(train_end=days[9], validation_end=days[15], calibration_end=days[19], embargo=2)
    part = assign_parts(frame, split)["part"].to_list()
    assert [i for i, code in enumerate(part) if code == -1] == [10, 11, 20, 21]


def test_session_cut_leads_in_only_with_rows_that_directly_precede() -> None:
    #        one symbol: session 0 = rows 0-3, session 1 = rows 4-7 (a bar missing between 5 and 6), session 2 = 8-9
    slot = np.array([0, 1, 2, 3, 4, 5, 7, 8, 9, 10])
    session = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2])
    cut = cut_sequences(np.zeros(10, dtype=np.int64), slot, session, DatasetSettings(burn_in=3))
    assert cut.start_S.tolist() == [0, 1, 6, 6]
    assert cut.lead_S.tolist() == [0, 3, 0, 2]
    assert cut.length_S.tolist() == [4, 5, 2, 4]


def test_windows_begin_where_so_many_rows_lie_behind_and_own_their_last_row_alone() -> None:
    slot = np.array([0, 1, 2, 3, 10, 11, 20, 21, 22])  # runs of 4, 2 and 3 rows
    cut = cut_sequences(np.zeros(9, dtype=np.int64), slot, np.zeros(9), DatasetSettings(cut="window", window=3))
    assert (cut.start_S.tolist(), cut.length_S.tolist(), cut.lead_S.tolist()) == ([0, 1, 6], [3, 3, 3], [2, 2, 2])
    assert np.flatnonzero(cut.owned(9)).tolist() == [2, 3, 8]
    assert (len(cut), cut.steps) == (3, 9)


def test_sequences_are_dealt_out_in_turn_and_chosen_by_the_rows_they_own() -> None:
    # sessions of 4 rows, each but the first led in by the last 2 rows of the one before
    cut = cut_sequences(np.zeros(20, dtype=np.int64), np.arange(20), np.arange(20) // 4, DatasetSettings(burn_in=2))
    assert (cut.start_S.tolist(), cut.lead_S.tolist(), cut.steps) == ([0, 2, 6, 10, 14], [0, 2, 2, 2, 2], 28)
    assert [cut.every(2, first=first).start_S.tolist() for first in (0, 1)] == [[0, 6, 14], [2, 10]]
    dealt = cut.every(3, first=1)
    assert (dealt.length_S.tolist(), dealt.lead_S.tolist()) == ([6, 6], [2, 2])
    for row in range(20):
        alone = np.arange(20) == row
        assert cut.covering(alone).start_S.tolist() == [cut.start_S[row // 4]]  # not the one that is led in by the row
    some = cut.covering(np.isin(np.arange(20), [0, 9, 10]))
    assert (some.start_S.tolist(), some.length_S.tolist(), some.lead_S.tolist()) == ([0, 6], [4, 6], [0, 2])


def test_short_sequences_of_a_batch_repeat_their_last_row_which_nobody_counts() -> None:
    cut = cut_sequences(np.array([0, 0, 0, 1]), np.array([0, 1, 2, 0]), np.zeros(4), DatasetSettings(burn_in=1))
    (batch,) = batches(cut, size=5)
    assert batch.rows_BT.tolist() == [[0, 1, 2], [3, 3, 3]]
    assert batch.own_BT.tolist() == [[True, True, True], [True, False, False]]


rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=60)


@settings(max_examples=150, deadline=None)
@given(rows, st.integers(0, 12), st.integers(1, 7))
def test_every_row_is_owned_once_and_no_sequence_bridges_anything(
    table: list[tuple[int, int, int]], burn_in: int, size: int
) -> None:
    keys = sorted({(symbol, slot) for symbol, slot, _ in table})
    symbol = np.array([k[0] for k in keys])
    slot = np.array([k[1] for k in keys])
    session = slot // 7
    cut = cut_sequences(symbol, slot, session, DatasetSettings(burn_in=burn_in))
    owned = np.zeros(len(keys), dtype=int)
    for batch in batches(cut, size=size):
        assert batch.rows_BT.max() < len(keys)
        for row_T, own_T in zip(batch.rows_BT, batch.own_BT, strict=True):
            owned[row_T[own_T]] += 1
            read = np.unique(row_T)
            assert (np.diff(slot[read]) == 1).all()
            assert len(set(symbol[read])) == 1
            assert len(set(session[row_T[own_T]])) == 1
    assert (owned == 1).all()
    assert cut.owned(len(keys)).all()


def test_the_last_partial_batch_comes_out() -> None:
    cut = cut_sequences(np.zeros(10, dtype=np.int64), np.arange(10), np.arange(10) // 2, DatasetSettings(burn_in=0))
    sizes = [batch.rows_BT.shape[0] for batch in batches(cut, size=2)]
    assert sizes == [2, 2, 1]
    backwards = [batch.rows_BT[0, 0] for batch in batches(cut, size=1, order=np.arange(5)[::-1])]
    assert backwards == [8, 6, 4, 2, 0]


@pytest.mark.parametrize("cut", ["session", "window"])
def test_no_rows_give_no_sequences(cut: str) -> None:
    empty = np.zeros(0, dtype=np.int64)
    assert len(cut_sequences(empty, empty, empty, DatasetSettings.model_validate({"cut": cut}))) == 0
