"""In: a stored history, a model. Out: asked bar by bar as of then, it says what evaluate grades, alone or together."""

# Shapes: N rows of the dataset.

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import klinepred as kp
from klinepred.dataset.make import Dataset, make_dataset
from klinepred.evaluation.verdict import sample_of
from klinepred.features.build import build_features
from klinepred.model.bundle import ModelBundle
from klinepred.model.ensemble import unite
from klinepred.model.lstm import build_network
from klinepred.prediction import forecast
from klinepred.schema import BAR, Bars
from tests.asked import asked_bundle, walked

CLOCKS = dict.fromkeys(("AAA", "BBB", "CCC", "DDD", "EEE", "FFF"), "XNYS")
NEAR = 1e-6
"""In units of volatility, fp32."""


@pytest.fixture(scope="module")
def bars() -> Bars:
    return walked(CLOCKS, days=40)


def trained_on(
    bars: Bars, *, members: int = 1, model: dict[str, Any], dataset: dict[str, Any]
) -> tuple[ModelBundle, Dataset]:
    """A model of random weights with the scaler of its train rows, and its dataset."""
    base = asked_bundle(CLOCKS, **dataset)
    table = build_features(bars, universe=base.universe)
    first = make_dataset(table, base.dataset, split=base.split)
    settings = base.model.model_copy(update=model)
    torch.manual_seed(5)
    network = unite([build_network(settings, inputs=50).eval() for _ in range(members)])
    bundle = replace(base, network=network, model=settings, scaler=first.scaler)
    return bundle, make_dataset(table, bundle.dataset, scaler=bundle.scaler, split=bundle.split)


@pytest.mark.parametrize(
    ("members", "model", "dataset"),
    [
        (1, {}, {"target": "relative"}),
        (2, {"layer_norm": True, "skip": True, "quantiles": (0.1, 0.5, 0.9)}, {"burn_in": 26}),
        (1, {"flatten": 12}, {"cut": "window", "window": 12}),
    ],
    ids=["relative", "ensemble of quantiles", "window"],
)
def test_replaying_the_test_part_gives_what_evaluate_grades(
    bars: Bars, members: int, model: dict[str, Any], dataset: dict[str, Any]
) -> None:
    bundle, data = trained_on(bars, members=members, model=model, dataset=dataset)
    sample = sample_of(bundle, data)
    test_N = data.mask("test")
    graded = (
        data.rows.filter(pl.Series(test_N))
        .select("symbol", bar_ts="ts")
        .with_columns(
            want=pl.Series(sample.pred_M.astype(np.float64)),
            unit=pl.Series(data.vol_N[test_N].astype(np.float64) * 1e4),
        )
    )
    stamps = graded["bar_ts"].unique().sort()
    picked = [stamps[int(spot)] for spot in np.linspace(0, len(stamps) - 1, 5)]
    names = list(CLOCKS)
    for number, ts in enumerate(picked):
        asked: list[list[str] | None] = [None, names[::-1], [names[number % 6]]]  # all; in another order; one row alone
        for symbols in asked:
            rows = kp.predict(bundle, bars, symbols=symbols, as_of=ts + BAR)
            both = rows.join(graded, on=["symbol", "bar_ts"])
            assert both.height == (len(symbols) if symbols else 6)
            worst = (both["expected_return_bps"] / both["unit"] - both["want"]).abs().max()
            assert worst <= NEAR, (ts, symbols)  # type: ignore[operator]
    span = (stamps[0], stamps[-1] + BAR)
    together = forecast(bundle, bars, span=span, now=span[1] + BAR).rows.join(graded, on=["symbol", "bar_ts"])
    assert together.height == graded.height
    assert (together["expected_return_bps"] / together["unit"] - together["want"]).abs().max() <= NEAR  # type: ignore[operator]
    assert together["want"].std() > 1e-3  # type: ignore[operator]  # not all the same
