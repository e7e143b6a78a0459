"""In: tiny trainings. Out: every labelled row counts once, in training and in validation, in the order of the seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from klinepred.dataset.make import Dataset
from klinepred.model.lstm import Network, build_network
from klinepred.training.rows import TrainRows
from klinepred.training.validation import validate
from tests.training.test_loop import CPU, STEPS
from tests.training.tiny import MODEL, TRAIN, fit, tiny_dataset


@pytest.fixture(scope="module")
def data() -> Dataset:
    return tiny_dataset()


def test_validation_counts_every_row_of_the_last_partial_batch(data: Dataset) -> None:
    torch.manual_seed(0)
    network = build_network(MODEL, inputs=data.x_NF.shape[1])
    got = validate(network, data, kind="mse", device=CPU)
    network.eval()
    total, rows = 0.0, 0
    cut = data.sequences
    for start, length in zip(cut.start_S, cut.length_S, strict=True):  # one sequence at a time, one row at a time
        with torch.no_grad():
            pred_T = network(torch.from_numpy(data.x_NF[start : start + length])[None])[0]
        for step in range(length):
            row = start + step
            if data.part_N[row] == 1 and np.isfinite(data.y_N[row]):
                total += (float(pred_T[step]) - min(6.0, max(-6.0, float(data.y_N[row])))) ** 2
                rows += 1
    assert got.rows == rows == 6 * 3 * 11
    assert got.loss == pytest.approx(total / rows, rel=1e-5)


def test_dropout_is_on_in_training_and_off_in_validation(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[bool] = []
    true: Callable[..., torch.Tensor] = Network.forward

    def spied(self: nn.Module, x_BTF: torch.Tensor) -> torch.Tensor:
        modes.append(self.training)
        return true(self, x_BTF)

    monkeypatch.setattr("klinepred.model.lstm.Network.forward", spied)
    fit(data, TRAIN.model_copy(update={"epochs": 2}))
    assert modes[:STEPS] == [True] * STEPS
    assert modes[STEPS] is False
    assert modes.count(True) == 2 * STEPS


def test_an_epoch_has_each_labelled_train_row_once_and_no_other(data: Dataset) -> None:
    rows = TrainRows(data, device=CPU, size=10, seed=1)
    seen: list[float] = []
    counts = []
    for (x_BTF, y_BT, labelled_BT), labels in rows.epoch(0):
        counts.append(labels)
        seen += x_BTF[labelled_BT][:, 1].tolist()
        assert y_BT[labelled_BT].abs().max() <= 6.0
    assert len(counts) == rows.steps == STEPS
    assert sorted(seen) == sorted(data.x_NF[data.mask("train"), 1].tolist())
    assert sum(counts) == int(data.mask("train").sum()) == 6 * 12 * 11


def test_the_order_of_the_data_changes_with_the_epoch_and_the_seed_only(data: Dataset) -> None:
    def order(seed: int, epoch: int) -> list[float]:
        rows = TrainRows(data, device=CPU, size=10, seed=seed)
        return [float(batch[0][0, 0, 0]) for batch, _ in rows.epoch(epoch)]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_training_labels_are_clipped_and_the_data_set_is_not() -> None:
    data = tiny_dataset()
    data.y_N[0] = 50.0
    rows = TrainRows(data, device=CPU, size=1000, seed=1)
    ((_, y_BT, _), _) = next(rows.epoch(0))
    assert float(y_BT.max()) == 6.0
    assert data.y_N[0] == 50.0
