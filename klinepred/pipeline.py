"""In: a pipeline and a workspace. Out: its steps: ingest, audit, train, evaluate, predict; each can be run alone."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from klinepred.bars.store import list_symbols, scan_bars, simulated_symbols
from klinepred.calendar import Clock
from klinepred.errors import StoreError
from klinepred.paths import Workspace
from klinepred.settings import EvaluateSettings, Pipeline

if TYPE_CHECKING:
    from klinepred.audit.check import Certificate
    from klinepred.dataset.make import Dataset
    from klinepred.evaluation.result import Evaluation
    from klinepred.model.bundle import ModelBundle
    from klinepred.prediction import Forecast
    from klinepred.training.progress import Progress

log = logging.getLogger("klinepred.pipeline")


@dataclass(frozen=True)
class Trained:
    """A finished training: the bundle, where it lies, and the dataset it learned from."""

    bundle: ModelBundle
    folder: Path
    data: Dataset


def choose_symbols(run: Pipeline, space: Workspace) -> tuple[str, ...]:
    """The pipeline's symbols that are in the store, those absent being warned of; none there: all of its calendar.

    Raises
    ------
    StoreError
        The store holds nothing that fits.
    """
    table = list_symbols(space)
    clock = Clock(run.data.calendar, run.data.hours)
    stored = dict(zip(table["symbol"], zip(table["calendar"], table["hours"], strict=True), strict=True))
    listed = [symbol for symbol in run.data.symbols if symbol in stored]
    absent = [symbol for symbol in run.data.symbols if symbol not in stored]
    if listed:
        if absent:
            log.warning("%d of %d symbols not in the store: %s", len(absent), len(run.data.symbols), ", ".join(absent))
        return tuple(listed)
    fitting = sorted(symbol for symbol, kind in stored.items() if kind == (clock.calendar, clock.hours))
    if fitting:
        if run.data.symbols:
            log.warning(
                "none of the pipeline's %d symbols is in the store: using all %d of calendar %s there",
                len(run.data.symbols),
                len(fitting),
                clock,
            )
        return tuple(fitting)
    others = sorted({f"{calendar} ({hours})" for calendar, hours in stored.values()})
    raise StoreError(
        f"symbols of pipeline {run.name}",
        expected=f"bars of its symbols, or of any with calendar {clock}",
        got=f"bars of calendar {', '.join(others)}" if others else "an empty store",
        do=f"ingest first: klinepred ingest -p {run.name}"
        + (f", or set --set data.calendar={others[0].split(' ')[0]}" if others else ""),
    )


def build_dataset(run: Pipeline, space: Workspace) -> Dataset:
    """The training dataset of a pipeline from what the store holds.

    Raises
    ------
    StoreError, DatasetError
        Too little is stored.
    """
    import polars as pl

    from klinepred.bars.hindsight import judge_universe
    from klinepred.dataset.make import make_dataset
    from klinepred.features.cache import cached_features
    from klinepred.features.custom import features_for

    features = features_for(run.features)
    symbols = choose_symbols(run, space)
    table = cached_features(scan_bars(space, symbols=symbols), features, universe=symbols, folder=space.features)
    data = make_dataset(table.frame(), run.dataset)
    for symbol, (bars, sessions) in sorted(data.lacking.items()):
        log.warning("%s has too little history to be trained on: %d bars, %d sessions", symbol, bars, sessions)
    real = data.spans().filter(~pl.col("symbol").is_in(list(simulated_symbols(space))))
    for line in judge_universe(real):
        log.warning("%s", line)
    return data


def train_model(
    run: Pipeline,
    space: Workspace,
    *,
    progress: Progress | None = None,
    resume: str | None = None,
    allow_leaks: bool = False,
) -> Trained:
    """Audit, train, log the run to MLflow with its leak certificate, put the bundle on the workspace's shelf.

    Parameters
    ----------
    allow_leaks
        Train although the leak certificate has failed; run and bundle say so for ever.

    Raises
    ------
    StoreError, DatasetError, TrainingError
        See `build_dataset` and `klinepred.training.loop.train`; or the leak certificate has failed.
    """
    from klinepred.audit.audit import audit_before_training
    from klinepred.audit.mark import CertifiedTracker, refuse_leaks
    from klinepred.model.bundle import save_bundle
    from klinepred.training.checkpoint import find_checkpoint
    from klinepred.training.loop import train
    from klinepred.training.signals import StopRequest
    from klinepred.training.tracking import MlflowTracker

    checkpoint = find_checkpoint(space, resume) if resume else None
    mlflow = MlflowTracker(space, run)
    data = build_dataset(run, space)
    certificate = audit_before_training(space, data)
    if not allow_leaks:
        refuse_leaks(certificate, pipeline=run.name)
    tracker = CertifiedTracker(mlflow, certificate, space=space)
    with StopRequest():  # a signal after the last step waits until the finished model lies on the shelf
        bundle = train(data, run.model, run.train, tracker=tracker, progress=progress, resume=checkpoint)
        stamp = str(bundle.provenance["created"]).translate({ord("-"): None, ord(":"): None})
        name = f"{run.name}-{stamp}-{bundle.run_id[:8]}"
        folder = save_bundle(replace(bundle, name=name), space.trained / name)
    return Trained(replace(bundle, name=name), folder, data)


def audit_pipeline(run: Pipeline, space: Workspace) -> Certificate:
    """The leak certificate of a pipeline on its stored bars, before any training.

    Raises
    ------
    StoreError, DatasetError
        Too little is stored.
    """
    from klinepred.audit.audit import audit_stored
    from klinepred.features.custom import features_for

    features = features_for(run.features)
    return audit_stored(space, choose_symbols(run, space), features=features, settings=run.dataset)


def audit_model(folder: Path, space: Workspace) -> Certificate:
    """The leak certificate of a saved model on the bars it was trained on.

    Raises
    ------
    ModelError, StoreError, DatasetError
        The model cannot be read, or its bars are not stored.
    """
    from klinepred.audit.audit import audit_bundle
    from klinepred.model.bundle import load_bundle

    return audit_bundle(space, load_bundle(folder))


@dataclass(frozen=True)
class GradedModel:
    """A verdict, the model it is about and the HTML report."""

    evaluation: Evaluation
    bundle: ModelBundle
    report: Path


def evaluate_model(
    folder: Path, space: Workspace, *, settings: EvaluateSettings, now: datetime | None = None
) -> GradedModel:
    """The verdict of a saved model on its test part, from what the store holds today.

    The report lies beside the bundle; verdict, scores and report go into the model's MLflow run where there is one.

    Raises
    ------
    ModelError, StoreError, DatasetError
        The model cannot be read, or its symbols are not stored.
    """
    from klinepred.evaluation.report import write_report
    from klinepred.evaluation.verdict import evaluate
    from klinepred.model.bundle import load_bundle
    from klinepred.training.review import history_of

    bundle = load_bundle(folder)
    _mind_leaks(bundle)
    data = dataset_of(bundle, space, now=now)
    evaluation = evaluate(bundle, data, settings=settings, simulated=simulated_symbols(space))
    report = write_report(
        evaluation,
        folder / "report.html",
        config=bundle.pipeline,
        provenance=bundle.provenance,
        history=history_of(space, bundle.run_id, ("train_loss", "val_loss")),
    )
    if bundle.run_id:
        _record(evaluation, bundle, space, report)
    return GradedModel(evaluation, bundle, report)


def _mind_leaks(bundle: ModelBundle) -> None:
    """A word wherever a model is used whose certificate had failed."""
    if str(bundle.provenance.get("leak_certificate", "")).startswith("failed"):
        log.warning("model %s was trained although its leak certificate had failed: do not trust it", bundle.name)


def _record(evaluation: Evaluation, bundle: ModelBundle, space: Workspace, report: Path) -> None:
    """Verdict, scores and report into the run the model came from; a run that is gone is only warned of."""
    from klinepred.evaluation.picture import draw_evaluation
    from klinepred.training.review import add_to_run

    picture = draw_evaluation(evaluation, report.with_name("evaluation.png"))
    found = add_to_run(
        space,
        bundle.run_id,
        metrics=evaluation.metrics(),
        tags={"verdict": evaluation.verdict, "verdict_sentence": evaluation.sentence},
        files={"report": report} | ({"plots": picture} if picture else {}),
    )
    if not found:
        log.warning("run %s of this model is not in the MLflow store: its verdict is not recorded there", bundle.run_id)


def dataset_of(bundle: ModelBundle, space: Workspace, *, now: datetime | None = None) -> Dataset:
    """Rows of the store scaled, split and cut as the model was trained. Errors as `evaluate_model`."""
    import polars as pl

    from klinepred.dataset.make import make_dataset
    from klinepred.features.build import build_features
    from klinepred.features.cache import cached_features
    from klinepred.model.bundle import features_of
    from klinepred.schema import BAR, Bars

    features = features_of(bundle)
    stored = set(list_symbols(space).get_column("symbol").to_list())
    symbols = [symbol for symbol in bundle.universe if symbol in stored]
    if len(symbols) < len(bundle.universe):
        absent = [symbol for symbol in bundle.universe if symbol not in stored]
        log.warning("not in the store, though the model was trained on them: %s", ", ".join(absent))
    bars = scan_bars(space, symbols=symbols)
    if now is None:
        table = cached_features(bars, features, universe=bundle.universe, folder=space.features).frame()
    else:  # an earlier state of the store: what is kept of the newest one stays
        table = build_features(Bars(bars.filter(pl.col("ts") + BAR <= now)), features, universe=bundle.universe)
    return make_dataset(table, bundle.dataset, scaler=bundle.scaler, split=bundle.split)


def predict_bars(
    bundle: ModelBundle,
    space: Workspace,
    run: Pipeline,
    *,
    symbols: tuple[str, ...] = (),
    as_of: datetime | None = None,
    span: tuple[datetime, datetime] | None = None,
    now: datetime | None = None,
) -> Forecast:
    """Predictions for `symbols`, default: the pipeline's that are stored.

    Raises
    ------
    StoreError, DatasetError, ModelError
        Nothing is stored, no symbol can be predicted, or the features are not the model's.
    """
    from klinepred.features.custom import recipe_of
    from klinepred.model.bundle import recipe_in
    from klinepred.prediction import Forecast, forecast

    _mind_leaks(bundle)
    if bundle.pipeline.get("name") == run.name and recipe_in(bundle).plain != recipe_of(run.features):
        log.warning("pipeline %s has other features today than model %s: its own are used", run.name, bundle.name)
    stored = set(list_symbols(space).get_column("symbol").to_list())
    wanted = symbols or choose_symbols(run, space)
    known = [symbol for symbol in wanted if symbol in stored]
    unknown = {symbol: f"no data for {symbol} in the store" for symbol in wanted if symbol not in stored}
    if not known:
        raise StoreError(
            f"prediction for {', '.join(wanted[:5])}",
            expected="symbols with bars in the store",
            got="; ".join(list(unknown.values())[:5]),
            do="see `klinepred bars list`, or ingest them first",
        )
    needed = [symbol for symbol in dict.fromkeys([*bundle.universe, *known]) if symbol in stored]
    answer = forecast(bundle, scan_bars(space, symbols=needed), symbols=known, as_of=as_of, span=span, now=now)
    return Forecast(answer.rows, {**answer.failures, **unknown})
