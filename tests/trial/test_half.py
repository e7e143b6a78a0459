"""In: numbers around the edges of fp16. Out: the shares that it loses, counted by hand."""

from __future__ import annotations

import pytest
import torch

from klinepred.trial.half import below_normal_share, flushed_share, lost_updates

SMALLEST = 2.0**-24


def test_numbers_below_two_to_the_minus_fourteen_lose_digits() -> None:
    edge = 2.0**-14
    assert below_normal_share([torch.tensor([edge, -0.999 * edge, SMALLEST, 0.0, 1e-9])]) == pytest.approx(3 / 4)


def test_flushed_entries_are_those_that_are_zero_against_the_exact_ones() -> None:
    exact = [torch.tensor([1e-9, 1.0, 0.0]), torch.tensor([2.0, -3.0])]
    found = [torch.tensor([0.0, 1.0, 0.0]), torch.tensor([2.0, 0.0])]
    assert flushed_share(found, exact=exact) == pytest.approx(2 / 4)
    assert flushed_share(exact, exact=exact) == 0.0


@pytest.mark.parametrize(
    ("weight", "update", "lost"),
    [
        (1.0, 2.0**-10, False),  # the distance to the next number above 1
        (1.0, 2.0**-11, True),  # half of it: a tie, which goes back to the even 1
        (1.0, 1.001 * 2.0**-11, False),
        (1.0, -(2.0**-12), True),  # below 1 the numbers lie twice as close
        (1.0, -1.001 * 2.0**-12, False),
        (0.5, 2e-4, True),  # lr 1e-3 times a gradient of 0.2
        (0.5, -2e-4, False),
        (0.0, 1e-8, True),
        (0.0, 1e-7, False),
    ],
)
def test_an_update_below_half_the_distance_to_the_next_number_is_lost(weight: float, update: float, lost: bool) -> None:
    before = torch.tensor([weight], dtype=torch.float64)
    assert lost_updates([before.float()], [(before + update).float()]) == (1.0 if lost else 0.0)


def test_weights_that_did_not_move_do_not_count() -> None:
    before = [torch.tensor([1.0, 1.0, 1.0]), torch.tensor([0.5])]
    after = [torch.tensor([1.0, 1.0 + 1e-5, 1.01]), torch.tensor([0.5])]
    assert lost_updates(before, after) == pytest.approx(1 / 2)
    assert lost_updates(before, before) == 0.0
