"""In: pairs of forecasts of made panels. Out: they differ only where they do, and no more often than chance allows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from klinepred.errors import ModelError
from klinepred.evaluation.comparison import compare
from klinepred.evaluation.sample import Sample
from klinepred.settings import EvaluateSettings
from tests.evaluation.samples import panel

QUICK = EvaluateSettings(bootstrap=200)


def noisy(sample: Sample, *, weight: float, seed: int) -> Sample:
    """The same bars with a forecast of which `weight` is noise."""
    noise = np.random.default_rng(seed).standard_normal(sample.rows) * sample.pred_M.std()
    return sample.with_forecast((1.0 - weight) * sample.pred_M + weight * noise)


def test_a_better_forecast_is_named_from_either_side() -> None:
    good = panel(1, ic=0.15, sessions=40)
    poor = noisy(good, weight=0.8, seed=2)
    first, second = compare(good, poor, settings=QUICK), compare(poor, good, names=("old", "new"), settings=QUICK)
    assert (first.outcome, second.outcome) == ("A", "B")
    assert second.sentence.startswith("B: new beats old")
    gap = np.corrcoef(good.pred_M, good.y_M)[0, 1] - np.corrcoef(poor.pred_M, good.y_M)[0, 1]
    assert first.ic.value == pytest.approx(gap, rel=1e-9)
    assert second.ic.value == pytest.approx(-gap, rel=1e-9)
    assert first.ic.se == pytest.approx(second.ic.se, rel=1e-12)
    squares = (good.pred_M - good.y_M) ** 2 - (poor.pred_M - good.y_M) ** 2
    assert first.mse.value == pytest.approx(squares.mean(), rel=1e-9)


def test_a_model_does_not_differ_from_itself() -> None:
    one = panel(1, ic=0.1)
    found = compare(one, one, settings=QUICK)
    assert found.outcome == "NO DIFFERENCE"
    assert (found.ic.value, found.ic.se, found.mse.value) == (0.0, 0.0, 0.0)


def test_forecasts_of_equal_worth_are_told_apart_five_times_in_a_hundred() -> None:
    words: Counter[str] = Counter()
    for seed in range(200):
        base = panel(seed, ic=0.0, sessions=20)
        words[compare(base, noisy(base, weight=1.0, seed=seed + 999), settings=QUICK).outcome] += 1
    # 10 of 200 expected, standard deviation 3.1
    assert words["A"] + words["B"] <= 20, words


def test_only_common_bars_count_whatever_order_and_names_the_samples_have() -> None:
    whole = panel(3, ic=0.1, sessions=30)
    late = whole.session_M >= 10
    names = ("pred_M", "y_M", "raw_M", "return_M", "kind_M", "bar_M", "symbol_M", "month_M", "ts_M")
    cut = {name: getattr(whole, name)[late][::-1] for name in names}
    cut["session_M"] = whole.session_M[late][::-1] - 10
    cut["symbol_M"] = 7 - cut["symbol_M"]
    part = replace(whole, **cut, sessions=whole.sessions[10:], symbols=whole.symbols[::-1])
    found = compare(whole, part, settings=QUICK)
    assert (found.rows, found.ic.sessions) == (int(late.sum()), 20)
    assert found.span == (whole.sessions[10], whole.sessions[-1])
    assert found.ic.value == pytest.approx(0.0, abs=1e-12), "the same forecasts"
    assert found.a.head.ic == pytest.approx(np.corrcoef(whole.pred_M[late], whole.y_M[late])[0, 1], rel=1e-9)


def test_models_of_different_targets_are_graded_on_the_raw_return() -> None:
    relative = panel(4, ic=0.1)
    raw = replace(relative, y_M=relative.raw_M, relative=False)
    found = compare(relative, raw, settings=QUICK)
    assert found.target == "raw"
    assert found.a.head.ic == pytest.approx(np.corrcoef(relative.pred_M, relative.raw_M)[0, 1], rel=1e-9)
    other = replace(relative, y_M=relative.y_M + 0.1)  # relative to another universe
    assert compare(relative, other, settings=QUICK).target == "raw"
    assert compare(relative, relative, settings=QUICK).target == "relative"


def test_few_common_sessions_are_too_few() -> None:
    few = panel(5, ic=0.9, sessions=9)
    found = compare(few, noisy(few, weight=1.0, seed=1), settings=QUICK)
    assert found.outcome == "NOT ENOUGH DATA"
    assert "at least 10" in found.sentence


def test_models_that_cannot_be_compared_are_refused() -> None:
    one = panel(6)
    with pytest.raises(ModelError, match="horizons 1 and 3"):
        compare(one, replace(one, horizon=3), settings=QUICK)
    with pytest.raises(ModelError, match="none in common"):
        compare(one, replace(one, ts_M=one.ts_M + 1), settings=QUICK)


def test_a_constant_forecast_is_worth_nothing_and_breaks_nothing() -> None:
    one = panel(7, ic=0.2, sessions=30)
    found = compare(one, one.with_forecast(np.zeros(one.rows)), settings=QUICK)
    assert found.outcome == "A"
    table = found.to_dict()
    assert table["b"]["ic"] is None
    assert table["difference"]["ic"]["value"] == pytest.approx(found.a.head.ic)
