"""In: a saved model and a workspace. Out: its verdict, recorded; its predictions."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from klinepred.bars.store import list_symbols, scan_bars, simulated_symbols
from klinepred.errors import StoreError
from klinepred.headway import Work, stepwise
from klinepred.paths import Workspace, write_atomic
from klinepred.pipeline.data import dataset_of
from klinepred.pipeline.symbols import choose_symbols
from klinepred.schema import BAR, TS
from klinepred.settings import EvaluateSettings, Pipeline

if TYPE_CHECKING:
    import polars as pl

    from klinepred.dataset.make import Dataset
    from klinepred.evaluation.background import Background
    from klinepred.evaluation.comparison import Comparison
    from klinepred.evaluation.importance import Importance
    from klinepred.evaluation.result import Evaluation
    from klinepred.model.bundle import ModelBundle
    from klinepred.prediction import Forecast

log = logging.getLogger("klinepred.pipeline")


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
    from klinepred.evaluation.importance import weigh_features
    from klinepred.evaluation.report import write_report
    from klinepred.evaluation.verdict import evaluate
    from klinepred.model.bundle import load_bundle
    from klinepred.training.review import count_looks

    bundle = load_bundle(folder)
    mind_leaks(bundle)
    with Work("steps of the evaluation", total=4) as work:
        data = dataset_of(bundle, space, now=now)
        work.step()
        looks = count_looks(space, bundle.run_id, test_after=bundle.split.calibration_end.isoformat())
        evaluation = evaluate(
            bundle,
            data,
            settings=settings,
            simulated=simulated_symbols(space),
            looks=looks,
            opens=_opens(data, space, now=now),
        )
        work.step()
        weights = weigh_features(bundle, data, seed=settings.seed)
        work.step()
        background = _background(bundle, data, space, now=now)
        report = write_report(evaluation, folder / "report.html", background=background, weights=weights)
        _keep_verdict(evaluation, folder)
        if bundle.run_id:
            _record(evaluation, weights, bundle, space, report)
        work.step()
    return GradedModel(evaluation, bundle, report)


def _background(bundle: ModelBundle, data: Dataset, space: Workspace, *, now: datetime | None) -> Background:
    """What the report says of run and data."""
    from klinepred.bars.health import check_store
    from klinepred.dataset.describe import describe
    from klinepred.evaluation.background import CURVES, RECORD, TAGS, Background
    from klinepred.training.review import history_of, tags_of

    health = check_store(space, now=now or datetime.now(UTC), symbols=_stored(data))
    tags = tags_of(space, bundle.run_id) if bundle.run_id else {}
    return Background(
        config=bundle.pipeline,
        provenance=bundle.provenance,
        history=history_of(space, bundle.run_id, (*CURVES, *RECORD)),
        tags={name: tags[name] for name in TAGS if name in tags},
        parts=describe(data),
        quality=health.symbols,
        remarks=health.remarks(),
    )


def _stored(data: Dataset) -> list[str]:
    """Symbols of the dataset that have bars; its universe may name others."""
    return sorted(data.rows.get_column("symbol").cast(str).unique().to_list())


def _opens(data: Dataset, space: Workspace, *, now: datetime | None) -> pl.DataFrame:
    """symbol, ts and open of the bars from the test part's first on."""
    import polars as pl

    first = data.rows.filter(pl.Series(data.mask("test"))).get_column("ts").min()
    bars = scan_bars(space, symbols=_stored(data)).filter(pl.col("ts") >= pl.lit(first, dtype=TS))
    if now is not None:
        bars = bars.filter(pl.col("ts") + BAR <= now)
    return bars.select(pl.col("symbol").cast(pl.String), "ts", "open").collect()


def _keep_verdict(evaluation: Evaluation, folder: Path) -> None:
    """What promotion asks for, as verdict.json beside the bundle; a folder that cannot be written is warned of."""
    import json

    from klinepred.evaluation.result import plain
    from klinepred.model.promotion import VERDICT

    span = evaluation.span or (None, None)
    table = {
        "verdict": evaluation.verdict,
        "sentence": evaluation.sentence,
        "ic": evaluation.ic.value,
        "ic_se": evaluation.ic.se,
        "looks": evaluation.looks,
        "first_session": span[0],
        "last_session": span[1],
        "evaluated": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    try:
        write_atomic(folder / VERDICT, json.dumps(plain(table), ensure_ascii=False, indent=2) + "\n")
    except OSError as error:
        log.warning("the verdict of %s is not kept beside it, so it cannot be promoted: %s", folder.name, error)


def compare_models(folders: tuple[Path, Path], space: Workspace, *, settings: EvaluateSettings) -> Comparison:
    """Two saved models on the bars that the test parts of both hold, from what the store holds today.

    Raises
    ------
    ModelError, StoreError, DatasetError
        A model cannot be read, its symbols are not stored, or the two have nothing in common to be graded on.
    """
    from klinepred.evaluation.comparison import compare
    from klinepred.evaluation.verdict import sample_of
    from klinepred.model.bundle import load_bundle

    samples = []
    for folder in stepwise(folders, "models graded"):
        bundle = load_bundle(folder)
        mind_leaks(bundle)
        samples.append(sample_of(bundle, dataset_of(bundle, space)))
    return compare(*samples, names=(folders[0].name, folders[1].name), settings=settings)


def mind_leaks(bundle: ModelBundle) -> None:
    """A word wherever a model is used whose certificate had failed, or that has none."""
    word = str(bundle.provenance.get("leak_certificate", ""))
    if word.startswith("failed"):
        log.warning("model %s was trained although its leak certificate had failed: do not trust it", bundle.name)
    elif word != "passed":
        log.warning(
            "model %s was trained without a leak certificate: klinepred audit --model looks for leaks", bundle.name
        )


def _record(
    evaluation: Evaluation, weights: tuple[Importance, ...], bundle: ModelBundle, space: Workspace, report: Path
) -> None:
    """Verdict, scores and report into the run the model came from; a run that is gone is only warned of."""
    from klinepred.evaluation.picture import draw_calibration, draw_evaluation, draw_importance
    from klinepred.training.review import add_to_run

    drawn = (
        draw_evaluation(evaluation, report.with_name("evaluation.png")),
        draw_calibration(evaluation, report.with_name("calibration.png")),
        draw_importance(weights, report.with_name("importance.png")),
    )
    found = add_to_run(
        space,
        bundle.run_id,
        metrics=evaluation.metrics(),
        tags={"verdict": evaluation.verdict, "verdict_sentence": evaluation.sentence},
        files={"report": [report], "plots": [picture for picture in drawn if picture]},
    )
    if not found:
        log.warning("run %s of this model is not in the MLflow store: its verdict is not recorded there", bundle.run_id)


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

    Many symbols are taken in batches, the universe with each: memory does not grow with their number.

    Raises
    ------
    StoreError, DatasetError, ModelError
        Nothing is stored, no symbol can be predicted, or the features are not the model's.
    """
    from klinepred.crowd import forecast_many
    from klinepred.features.custom import recipe_of
    from klinepred.model.bundle import recipe_in

    mind_leaks(bundle)
    if bundle.pipeline.get("name") == run.name and recipe_in(bundle).plain != recipe_of(run.features):
        log.warning("pipeline %s has other features today than model %s: its own are used", run.name, bundle.name)
    known, unknown = known_symbols(space, run, symbols)
    stored = set(list_symbols(space).get_column("symbol").to_list())
    answer = forecast_many(
        bundle,
        lambda names: scan_bars(space, symbols=names),
        symbols=known,
        stored=stored,
        as_of=as_of,
        span=span,
        now=now,
    )
    return replace(answer, failures={**answer.failures, **unknown})


def known_symbols(space: Workspace, run: Pipeline, symbols: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """Of the symbols asked for (default: the pipeline's) those that are stored, and why the others are left out.

    Raises
    ------
    StoreError
        None is.
    """
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
    return known, unknown
