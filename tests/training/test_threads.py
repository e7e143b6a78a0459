"""In: a tiny training on one thread and on two. Out: each repeats itself to the bit, and both learn the same."""

from __future__ import annotations

import torch

from tests.training.tiny import equal, fit, tiny_dataset, weights


def learned(threads: int) -> dict[str, torch.Tensor]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return weights(fit(tiny_dataset()))
    finally:
        torch.set_num_threads(before)


def test_two_threads_repeat_themselves_to_the_bit_and_learn_what_one_learns() -> None:
    one, two = learned(1), learned(2)
    assert equal(two, learned(2))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=0.0, atol=1e-5)
