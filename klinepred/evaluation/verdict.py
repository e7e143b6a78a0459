"""In: a bundle and a dataset. Out: `Evaluation`: the verdict on the test part, with everything it rests on."""

# Shapes: N rows of the dataset, M rows of the test part.

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from klinepred.bars.hindsight import SURVIVORS, caution
from klinepred.errors import ModelError
from klinepred.evaluation.baselines import Baseline, feature_columns, fit_baselines
from klinepred.evaluation.breakdown import by_month, by_session, by_symbol, by_time
from klinepred.evaluation.intervals import IntervalScore, score_distribution, score_intervals
from klinepred.evaluation.money import Money, weigh_money
from klinepred.evaluation.permutation import permutation_p
from klinepred.evaluation.result import Evaluation, Graded
from klinepred.evaluation.rules import Evidence, Verdict, decide
from klinepred.evaluation.sample import Sample, take_sample
from klinepred.evaluation.scores import Scored, gain, score_all
from klinepred.evaluation.significance import LEVEL, UNDEFINED, Estimate, draw_sessions
from klinepred.features.spec import tell_apart
from klinepred.model.bundle import ModelBundle
from klinepred.model.forward import forward_rows
from klinepred.settings import EvaluateSettings

if TYPE_CHECKING:
    from klinepred.dataset.make import Dataset

log = logging.getLogger("klinepred.evaluation")

DEFAULTS: Final = EvaluateSettings()
RIVALS: Final = ("ridge", "hgb")
"""Baselines that the sentence compares the model with."""
LOOKS: Final = (
    "each look at this test part makes a lucky pass more likely: finished runs of the pipeline are counted and"
    " corrected for, looks elsewhere are not"
)


def evaluate(
    bundle: ModelBundle,
    data: Dataset,
    *,
    settings: EvaluateSettings = DEFAULTS,
    simulated: Collection[str] | None = None,
    looks: int = 1,
    opens: pl.DataFrame | None = None,
) -> Evaluation:
    """Grade the model and the baselines on the test part, once, and say what that is worth.

    Parameters
    ----------
    data
        Made with the bundle's features, scaler, universe and split: the baselines learn from its train part and are
        chosen on its validation part, the same rows the network had.
    simulated
        Symbols of a simulated market: no hindsight can have chosen them. Default: all, if the model's pipeline takes
        its bars from there, else none.
    looks
        Models tried on the same test sessions, this one included: the level of the verdict is deflated by them.
    opens
        symbol, ts and open of the bars of the test part; without it no profit is computed of entering at the open.

    Raises
    ------
    ModelError
        The dataset is not of the kind the model was trained on, or a forecast is not finite.
    """
    sample = sample_of(bundle, data, opens=opens)
    train_N, test_N = data.mask("train"), data.mask("test")
    last_return, lags = feature_columns(data.features)
    baselines = fit_baselines(
        data.x_NF,
        data.y_N,
        train_N=train_N,
        validation_N=data.mask("validation"),
        ask_N=test_N,
        names=data.features.names,
        last_return=last_return,
        lags=lags,
        label_clip=data.settings.label_clip,
        seed=settings.seed,
    )
    kind_M = sample.kind_M
    lo_M, hi_M = bundle.calibration.interval(sample.pred_M, kind_M)
    up_M = bundle.calibration.p_up(sample.pred_M, kind_M)
    crps_M2 = score_distribution(sample, bundle.calibration)
    intervals = score_intervals(sample, lo_M=lo_M, hi_M=hi_M, up_M=up_M, crps_M2=crps_M2)
    if simulated is None:
        simulated = bundle.universe if bundle.pipeline.get("data", {}).get("source") == "simulate" else ()
    hindsight = caution(data.spans().filter(~pl.col("symbol").is_in(list(simulated))))
    graded = judge(
        sample,
        baselines,
        intervals=intervals,
        settings=settings,
        hindsight=hindsight,
        name=bundle.name,
        looks=looks,
        leaks=failed_checks(bundle),
    )
    strange = 0 if bundle.novelty is None else bundle.novelty.too_far(data.x_NF[test_N])
    if not strange:
        return graded
    word = (
        f"predict abstains from {strange:,} of these {sample.rows:,} rows, which lie too far from those of training;"
        " the scores include them"
    )
    return replace(graded, abstained=strange, warnings=(*graded.warnings, word))


def sample_of(bundle: ModelBundle, data: Dataset, *, opens: pl.DataFrame | None = None) -> Sample:
    """The test part beside the model's forecasts of it. Parameters and errors as `evaluate`."""
    _fits(bundle, data)
    test_N = data.mask("test")
    pred_N = forward_rows(bundle.network, data.x_NF, data.sequences.covering(test_N))
    return take_sample(data, pred_N, mask_N=test_N, opens=opens)


def failed_checks(bundle: ModelBundle) -> str:
    """What a failed leak certificate of a model says; empty where it passed, or there is none."""
    text = str(bundle.provenance.get("leak_certificate", ""))
    return (text.removeprefix("failed").strip(" :()") or "see its run") if text.startswith("failed") else ""


def judge(
    sample: Sample,
    baselines: Sequence[Baseline] = (),
    *,
    intervals: tuple[IntervalScore, ...] = (),
    settings: EvaluateSettings = DEFAULTS,
    hindsight: Sequence[str] = (SURVIVORS,),
    name: str = "",
    looks: int = 1,
    leaks: str = "",
) -> Evaluation:
    """The verdict on forecasts given as plain arrays; no network, no dataset. Deterministic for given settings.

    `hindsight` says what is known of the choice of the symbols; it goes into the warnings. `looks` and `leaks` are as
    in `klinepred.evaluation.rules.Evidence`.
    """
    sessions = len(sample.sessions)
    scored: dict[str, Scored] = {}
    if sample.rows:
        draws_BS = draw_sessions(sessions, repeats=settings.bootstrap, seed=settings.seed)
        forecasts = {"model": sample.pred_M, **{baseline.name: baseline.pred_M for baseline in baselines}}
        scored = score_all(sample, forecasts, draws_BS=draws_BS)
    model = _graded("model", scored, settings={})
    rivals = {baseline.name: _graded(baseline.name, scored, settings=baseline.settings) for baseline in baselines}
    estimates = scored["model"].estimates if scored else {}
    ic = estimates.get("all", UNDEFINED)
    evidence = Evidence(
        labels=sample.rows,
        sessions=sessions,
        ic=ic,
        by_kind={steps: part for steps, part in estimates.items() if steps != "all"},
        constant=bool(sample.rows and np.ptp(sample.pred_M) == 0.0),
        looks=max(1, looks),
        leaks=leaks,
    )
    verdict, reason = decide(evidence)
    money = weigh_money(sample, cost_bps=settings.cost_bps, looks=evidence.looks)
    return Evaluation(
        verdict=verdict,
        sentence=_sentence(verdict, reason, rivals, money, constant=evidence.constant or not sample.rows),
        model=model,
        baselines=rivals,
        ic=ic,
        target=sample.target,
        horizon=sample.horizon,
        rows=sample.rows,
        span=(sample.sessions[0], sample.sessions[-1]) if sessions else None,
        intervals=intervals,
        money=money,
        sessions=by_session(sample, money),
        symbols=by_symbol(sample),
        months=by_month(sample),
        times=by_time(sample),
        looks=evidence.looks,
        permutation_p=permutation_p(sample, seed=settings.seed) if sample.rows else float("nan"),
        warnings=(
            *_bounce(model, rivals, {baseline.name: baseline for baseline in baselines}),
            *hindsight,
            LOOKS,
        ),
        settings=settings,
        model_name=name,
    )


def _graded(name: str, scored: Mapping[str, Scored], *, settings: Mapping[str, Any]) -> Graded:
    own = scored.get(name)
    if own is None or not own.scores:
        return Graded(name, None, (), UNDEFINED, settings)
    lead = UNDEFINED if name == "model" else gain(scored["model"], own)
    return Graded(name, own.head, own.scores, lead, settings)


def _sentence(
    verdict: Verdict, reason: str, rivals: Mapping[str, Graded], money: Sequence[Money], *, constant: bool
) -> str:
    """The verdict's reason, then whether the model beats its rivals and whether the profit survives the cost."""
    if constant:
        return f"{verdict}: {reason}."
    parts = [reason]
    known = [rivals[name] for name in RIVALS if name in rivals and math.isfinite(rivals[name].lead.se)]
    if known:
        parts.append("; ".join(_against(graded) for graded in known))
    first, late = money[1], money[-1]
    if math.isfinite(first.break_even_bps):
        side = "above" if first.break_even_bps > first.cost_bps else "not above"
        also = f"; one bar late {late.break_even_bps:.2f}" if late is not first else ""
        parts.append(
            f"the break-even cost of {first.break_even_bps:.2f} bps a side (entered {first.entry}{also})"
            f" is {side} the configured {first.cost_bps:g}"
        )
    return f"{verdict}: {'; '.join(parts)}."


def _against(graded: Graded) -> str:
    lead = graded.lead
    word = "beats" if lead.above() else "is beaten by" if Estimate(-lead.value, lead.se, lead.sessions).above() else ""
    verb = f"it {word} {graded.name}" if word else f"it does not differ from {graded.name} beyond chance"
    return f"{verb} ({lead.value:+.3f} ± {lead.se:.3f})"


def _bounce(model: Graded, rivals: Mapping[str, Graded], fitted: Mapping[str, Baseline]) -> tuple[str, ...]:
    """Warn where the reversal of the last return alone has half of the model's IC or more."""
    reversal = rivals.get("last return")
    if not reversal or not reversal.head or not model.head or not reversal.head.ic_p < LEVEL:
        return ()
    slope = sum(value for name, value in fitted["last return"].weights.items() if name != "intercept")
    if slope >= 0.0 or not reversal.head.ic >= 0.5 * model.head.ic > 0.0:
        return ()
    return (
        f"the reversal of the last return alone has an IC of {reversal.head.ic:.3f}: bid-ask bounce makes that without"
        " being tradable",
    )


def _fits(bundle: ModelBundle, data: Dataset) -> None:
    pairs = (
        ("features", bundle.fingerprint, data.features.fingerprint),
        ("scaler", bundle.scaler.to_dict(), data.scaler.to_dict()),
        ("universe", tuple(bundle.universe), tuple(data.universe)),
        ("split", bundle.split, data.split),
        ("dataset settings", bundle.dataset, data.settings),
    )
    wrong = [name for name, own, given in pairs if own != given]
    if "features" in wrong:
        had = bundle.marks or dict.fromkeys(bundle.feature_names, "")
        wrong[0] = f"set of features ({tell_apart(had, data.features.marks) or 'other formulas'})"
    if wrong:
        raise ModelError(
            f"dataset for model {bundle.name}",
            expected="one made with the model's own features, universe, settings, scaler and split",
            got=f"another {', another '.join(wrong)}",
            do="make_dataset(table, bundle.dataset, scaler=bundle.scaler, split=bundle.split)",
        )
