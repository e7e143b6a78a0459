"""In: a dataset, a network. Out: the whole way to the verdict, and what it must not depend on."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

from klinepred.bars.hindsight import SURVIVORS
from klinepred.cli.evaluate import verdict_text
from klinepred.dataset.make import Dataset
from klinepred.dataset.scale import Scaler
from klinepred.dataset.sequences import cut_sequences
from klinepred.dataset.split import Split
from klinepred.errors import ModelError
from klinepred.evaluation.baselines import NAMES, Baseline, feature_columns
from klinepred.evaluation.intervals import score_intervals
from klinepred.evaluation.verdict import evaluate, judge
from klinepred.features.build import F50
from klinepred.features.spec import FeatureSet
from klinepred.model.bundle import ModelBundle
from klinepred.settings import DatasetSettings, EvaluateSettings
from tests.evaluation.samples import panel
from tests.model.bundles import small_bundle

QUICK = EvaluateSettings(bootstrap=100)
SYMBOLS, SESSIONS, BARS = 6, 60, 14


class Reader(nn.Module):
    """A network that forecasts a tenth of the first feature, plus what it is told."""

    def __init__(self, slope: float = 0.1, shift: float = 0.0) -> None:
        super().__init__()
        self.slope, self.shift = slope, shift

    def forward(self, x_BTF: torch.Tensor) -> torch.Tensor:
        return self.slope * x_BTF[..., :1] + self.shift


def _split(train_end: date) -> Split:
    return Split(train_end, train_end + timedelta(days=6), train_end + timedelta(days=9))


def _data(*, signal: float = 0.1, seed: int = 0) -> Dataset:
    """Sessions 0-29 train, 30-35 validation, 36-38 calibration, 39-59 test; the last bar of a session has no label."""
    rng = np.random.default_rng(seed)
    symbol_N, session_N, bar_N = (code.ravel() for code in np.indices((SYMBOLS, SESSIONS, BARS)))
    x_NF = rng.standard_normal((symbol_N.size, len(F50.names)), dtype=np.float32)
    y_N = (signal * x_NF[:, 0] + rng.standard_normal(symbol_N.size)).astype(np.float32)
    y_N[bar_N == BARS - 1] = np.nan
    part_N = np.digitize(session_N, [30, 36, 39]).astype(np.int8)
    part_N[np.isnan(y_N)] = -1
    first = datetime(2026, 1, 5, 14, 30, tzinfo=UTC)
    stamps = [first + timedelta(days=int(d), minutes=5 * int(b)) for d, b in zip(session_N, bar_N, strict=True)]
    rows = pl.DataFrame({"symbol": [f"S{s}" for s in symbol_N], "ts": stamps, "close": 1.0})
    settings = DatasetSettings()
    return Dataset(
        x_NF=x_NF,
        y_N=y_N,
        raw_N=y_N.copy(),
        return_N=y_N * 1e-3,
        vol_N=np.full(symbol_N.size, 1e-3, dtype=np.float32),
        kind_N=(bar_N == BARS - 2).astype(np.int8),
        part_N=part_N,
        rows=rows.with_columns(
            pl.col("ts").cast(pl.Datetime("us", "UTC")), session=pl.col("ts").dt.date()
        ).with_columns(label_session="session"),
        sequences=cut_sequences(symbol_N, session_N * 1000 + bar_N, session_N, settings),
        scaler=Scaler(tuple(F50.names), np.zeros(x_NF.shape[1]), np.ones(x_NF.shape[1]), 6.0),
        split=_split(first.date() + timedelta(days=29)),
        features=F50,
        universe=tuple(f"S{s}" for s in range(SYMBOLS)),
        calendars={f"S{s}": "24/7" for s in range(SYMBOLS)},
        settings=settings,
        lacking={},
    )


def _bundle(data: Dataset, network: nn.Module) -> ModelBundle:
    own: dict[str, Any] = {
        "network": network,
        "dataset": data.settings,
        "feature_names": data.features.names,
        "fingerprint": data.features.fingerprint,
        "universe": data.universe,
        "calendars": data.calendars,
        "scaler": data.scaler,
        "split": data.split,
        "name": "reader",
    }
    return replace(small_bundle(), **own)


def test_a_model_that_reads_the_signal_has_an_edge_over_all_that_do_not() -> None:
    data = _data()
    found = evaluate(_bundle(data, Reader()), data, settings=QUICK)
    mask = data.mask("test")
    assert found.verdict == "EDGE"
    assert found.rows == mask.sum()
    assert found.span == ("2026-02-13", "2026-03-05")
    assert found.model.head is not None
    assert found.model.head.ic == pytest.approx(np.corrcoef(data.x_NF[mask, 0], data.y_N[mask])[0, 1], abs=1e-6)
    assert set(found.baselines) <= set(NAMES)
    assert {"zero", "ridge", "hgb"} <= set(found.baselines)
    assert "ridge" in found.sentence
    assert "break-even" in found.sentence


def test_the_same_input_gives_the_same_evaluation() -> None:
    data = _data()
    first, second = (evaluate(_bundle(data, Reader()), data, settings=QUICK).to_dict() for _ in range(2))
    assert first == second


def test_a_constant_network_has_no_edge_and_crashes_nothing() -> None:
    data = _data()
    found = evaluate(_bundle(data, Reader(slope=0.0, shift=0.2)), data, settings=QUICK)
    assert found.verdict == "NO EDGE"
    assert "same for every bar" in found.sentence
    assert found.to_dict()["ic"]["value"] is None


def test_an_empty_test_part_is_not_enough_data() -> None:
    data = _data()
    bare = replace(data, part_N=np.where(data.part_N == 3, -1, data.part_N).astype(np.int8))
    found = evaluate(_bundle(bare, Reader()), bare, settings=QUICK)
    assert found.verdict == "NOT ENOUGH DATA"
    assert found.span is None
    assert found.table().is_empty()
    json.dumps(found.to_dict(), allow_nan=False)


def test_forecasts_that_are_not_finite_are_refused_with_a_reason() -> None:
    data = _data()
    with pytest.raises(ModelError, match="forecasts of the test part"):
        evaluate(_bundle(data, Reader(shift=float("nan"))), data, settings=QUICK)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"split": _split(date(2026, 2, 1))}, "split"),
        ({"universe": ("S0", "S1")}, "universe"),
        ({"settings": DatasetSettings(target="raw")}, "dataset settings"),
        ({"features": FeatureSet("f50", F50.features[:-1])}, f"without {F50.names[-1]}"),
    ],
)
def test_a_dataset_made_for_another_model_is_refused(change: dict[str, Any], word: str) -> None:
    data = _data()
    bundle = _bundle(data, Reader())
    with pytest.raises(ModelError, match=word):
        evaluate(bundle, replace(data, **change), settings=QUICK)


def test_what_baselines_learned_does_not_change_with_the_test_part() -> None:
    data, other = _data(), _data()
    test = other.part_N == 3
    other.y_N[test] *= -3.0
    other.x_NF[test] += 5.0
    found = [evaluate(_bundle(each, Reader()), each, settings=QUICK) for each in (data, other)]
    for name in found[0].baselines:
        assert found[0].baselines[name].settings == found[1].baselines[name].settings


def test_the_answer_as_json_has_the_agreed_keys_and_no_nan() -> None:
    data = _data()
    table = json.loads(json.dumps(evaluate(_bundle(data, Reader()), data, settings=QUICK).to_dict(), allow_nan=False))
    assert {"verdict", "sentence", "model", "baselines"} <= set(table)
    assert {"rank_ic", "ic", "r2", "mse", "hit_rate"} <= set(table["model"])
    assert table["baselines"]["zero"]["ic"] is None
    assert table["model"]["bundle"] == "reader"


def test_metrics_are_finite_and_named_for_a_run() -> None:
    metrics = judge(panel(1, ic=0.1), [Baseline("last return", np.zeros(panel(1).rows), {}, {})]).metrics()
    assert all(np.isfinite(value) for value in metrics.values())
    assert {"test_ic", "test_ic_p", "test_rank_ic", "test_last_return_mse", "test_late_gross_bps"} <= set(metrics)
    assert "test_last_return_ic" not in metrics


def test_the_reversal_of_the_last_return_is_warned_of_as_bounce() -> None:
    sample = panel(2, ic=0.12)
    twin = Baseline("last return", 0.5 * sample.pred_M, {}, {"intercept": 0.1, "price__ret_1": -0.2})
    assert any("bounce" in line for line in judge(sample, [twin]).warnings)
    momentum = replace(twin, weights={"intercept": 0.1, "price__ret_1": 0.2})
    assert not any("bounce" in line for line in judge(sample, [momentum]).warnings)


def test_a_simulated_universe_has_no_survivors_and_a_real_one_is_warned_of() -> None:
    data = _data()
    bundle = _bundle(data, Reader())
    real = evaluate(bundle, data, settings=QUICK).warnings
    assert SURVIVORS in real
    assert any("lucky pass" in line for line in real)
    for found in (
        evaluate(bundle, data, settings=QUICK, simulated=data.universe),
        evaluate(replace(bundle, pipeline={"data": {"source": "simulate"}}), data, settings=QUICK),
    ):
        assert not any("surviv" in line or "chosen" in line for line in found.warnings)
        assert any("lucky pass" in line for line in found.warnings)
    # what the store knows of its symbols goes before what the pipeline says
    named = evaluate(replace(bundle, pipeline={"data": {"source": "simulate"}}), data, settings=QUICK, simulated=())
    assert named.warnings == real


def test_a_symbol_that_came_late_is_named_in_the_verdict() -> None:
    data = _data()
    late = pl.when(pl.col("symbol") == "S5").then(date(2026, 2, 1)).otherwise("session")
    lines = evaluate(_bundle(data, Reader()), replace(data, rows=data.rows.with_columns(session=late)), settings=QUICK)
    assert any("1 of the 6 symbols" in line and "S5 2026-02-01" in line for line in lines.warnings)


def test_an_edge_across_breaks_alone_is_said_to_be_one() -> None:
    sample = panel(4, sessions=60)
    noise = np.random.default_rng(1).standard_normal(sample.rows)
    found = judge(sample.with_forecast(np.where(sample.kind_M == 1, 0.15 * sample.y_M + noise, 0.01 * noise)))
    assert found.verdict == "EDGE"
    assert "within sessions alone it is -0.018" in found.sentence
    assert "alone" not in judge(panel(5, ic=0.1)).sentence


def test_it_says_when_a_baseline_is_better() -> None:
    sample = panel(3, ic=0.12)
    blurred = sample.pred_M + 3 * sample.pred_M.std() * np.random.default_rng(0).standard_normal(sample.rows)
    found = judge(sample.with_forecast(blurred), [Baseline("ridge", sample.pred_M, {}, {})])
    assert "is beaten by ridge" in found.sentence


def test_the_feature_set_holds_the_last_return_and_its_lags() -> None:
    last, lags = feature_columns(F50)
    assert last in lags
    assert len(lags) >= 3


def test_breakdowns_add_up_to_the_whole() -> None:
    found = judge(panel(4, ic=0.1, sessions=30))
    for frame in (found.sessions, found.symbols, found.months):
        assert frame["rows"].sum() == found.rows
    assert found.sessions["gross_bps"].sum() == pytest.approx(found.tradable.gross_S.sum() * 1e4)


def test_the_terminal_shows_both_returns_money_and_no_nan() -> None:
    sample = panel(3, ic=0.1)
    wide = np.full(sample.rows, 1.3)
    intervals = score_intervals(sample, lo_M=-wide, hi_M=wide, up_M=np.full(sample.rows, 0.5))
    found = judge(sample, [Baseline("ridge", -sample.pred_M, {}, {})], intervals=intervals)
    text = verdict_text(found)
    for part in (
        "against the relative target",
        "against the raw target",
        "one bar late",
        "break-even",
        "permutation p",
    ):
        assert part in text
    assert text.count("ridge   ") == 2
    assert f"smallest IC this sample shows: {found.ic.detectable:.4f}" in text
    assert text.rstrip().endswith(found.sentence)
    raw = judge(panel(3, relative=False).with_forecast(np.zeros(sample.rows)))
    for each in (text, verdict_text(raw)):
        assert not re.search(r"\bnan\b", each, flags=re.IGNORECASE)
    assert "relative" not in verdict_text(raw)
