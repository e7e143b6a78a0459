"""In: counts and values of known distributions. Out: the index by hand, its floor, and what is called drift."""

from __future__ import annotations

import math

import numpy as np
import pytest

from klinepred.live.psi import Shift, compare, inner_edges, psi, session_counts, windows_psi

SESSIONS, ROWS = 60, 400


def _sessions(seed: int, *, sessions: int, level: float, columns: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are normal around a level of their session, so not independent."""
    chance = np.random.default_rng(seed)
    levels_SF = chance.normal(0.0, level, (sessions, columns))
    x_SRF = levels_SF[:, None, :] + chance.normal(0.0, 1.0, (sessions, ROWS, columns))
    return x_SRF.reshape(-1, columns), np.repeat(np.arange(sessions), ROWS)


def test_the_index_is_the_one_worked_out_by_hand() -> None:
    live, reference = (
        np.array([9.5, 29.5, 59.5]),
        np.array([49.5, 29.5, 19.5]),
    )  # with half a row each: 10, 30, 60 of 100
    by_hand = (0.1 - 0.5) * math.log(0.1 / 0.5) + 0.0 + (0.6 - 0.2) * math.log(0.6 / 0.2)
    assert psi(live, reference) == pytest.approx(by_hand)
    assert psi(reference, live) == pytest.approx(by_hand)  # it is symmetric
    assert psi(live, live) == 0.0


def test_bins_are_tenths_of_the_reference_and_a_value_on_an_edge_is_above_it() -> None:
    reference = np.arange(100.0)
    edges = inner_edges(reference)
    assert edges.tolist() == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0]
    counts = session_counts(reference, np.repeat([0, 1], 50), edges, sessions=2)
    assert counts.tolist() == [[10.0] * 5 + [0.0] * 5, [0.0] * 5 + [10.0] * 5]
    assert session_counts(np.array([1.0, 2.0]), np.zeros(2), np.array([2.0]), sessions=1).tolist() == [[1.0, 1.0]]


def test_repeated_values_make_fewer_bins_not_empty_ones() -> None:
    assert inner_edges(np.array([0.0] * 70 + [1.0] * 30)).tolist() == [0.0, 1.0]
    assert inner_edges(np.zeros(10)).tolist() == [0.0]


def test_each_window_is_held_against_all_other_sessions() -> None:
    counts = np.array([[4.0, 0.0], [0.0, 4.0], [2.0, 2.0]])
    found = windows_psi(counts, length=2)
    assert found.tolist() == pytest.approx(
        [psi(np.array([4.0, 4.0]), np.array([2.0, 2.0])), psi(np.array([2.0, 6.0]), np.array([4.0, 0.0]))]
    )


def test_of_independent_rows_the_mean_index_is_its_floor() -> None:
    """(B - 1) (1 / n + 1 / m): Yurdakul and Naranjo 2020."""
    reference = _sessions(1, sessions=SESSIONS, level=0.0)
    live = _sessions(2, sessions=10, level=0.0)
    shifts = compare(live, reference)
    floor = 9 * (1 / (10 * ROWS) + 1 / (SESSIONS * ROWS))
    assert shifts[0].floor == pytest.approx(floor)
    assert np.mean([shift.psi for shift in shifts]) == pytest.approx(floor, rel=0.25)
    assert np.mean([shift.noise for shift in shifts]) == pytest.approx(floor, rel=0.25)


def test_sessions_with_levels_of_their_own_are_no_drift_though_far_above_the_floor() -> None:
    reference = _sessions(3, sessions=SESSIONS, level=0.7)
    called = 0
    for seed in range(40):
        shifts = compare(_sessions(100 + seed, sessions=5, level=0.7), reference)
        assert np.mean([shift.psi for shift in shifts]) > 5 * shifts[0].floor
        called += any(shift.word != "stable" for shift in shifts)
    assert called <= 2  # of 40 times 20 columns


@pytest.mark.parametrize(("shift", "stretch"), [(1.0, 1.0), (0.0, 2.0)])
def test_a_moved_or_stretched_column_is_called_drift_and_the_others_are_not(shift: float, stretch: float) -> None:
    reference = _sessions(4, sessions=SESSIONS, level=0.1)
    x_NF, session_N = _sessions(5, sessions=10, level=0.1)
    x_NF[:, 3] = x_NF[:, 3] * stretch + shift
    words = [found.word for found in compare((x_NF, session_N), reference)]
    assert words[3] == "drifted"
    assert set(words[:3] + words[4:]) == {"stable"}


def test_the_words_need_the_usual_threshold_and_more_than_chance() -> None:
    assert Shift(psi=0.30, floor=0.0, noise=0.01, chance=0.05).word == "drifted"
    assert Shift(psi=0.30, floor=0.0, noise=0.10, chance=0.35).word == "stable"
    assert Shift(psi=0.15, floor=0.0, noise=0.01, chance=0.05).word == "moderate"
    assert Shift(psi=0.15, floor=0.0, noise=0.05, chance=0.20).word == "stable"
    assert Shift(psi=0.09, floor=0.0, noise=0.01, chance=0.02).word == "stable"
