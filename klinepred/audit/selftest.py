"""In: nothing. Out: `Certificate` of the audit itself: each planted leak caught, the sound pipeline beside it not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from typing import Final

import numpy as np
import polars as pl

from klinepred.audit.certify import audit_features, certify, check_dataset
from klinepred.audit.check import Certificate, Check
from klinepred.audit.depth import Depth
from klinepred.audit.known import check_training
from klinepred.audit.leaky_datasets import LEAKY_DATASETS, altered
from klinepred.audit.leaky_doors import PACKAGE, SQL, package_feature, refused
from klinepred.audit.leaky_features import LEAKY_FEATURES, SIDE_TABLE, Make, side_table
from klinepred.audit.leaky_models import LEAKY_PREDICTIONS, LEAKY_TRAINING
from klinepred.audit.predictions import check_predictions
from klinepred.audit.stages import Evidence, Stages, one_thread, pipeline_stages, table_of, untrained
from klinepred.bars.check import check_bars
from klinepred.bars.sources.simulate import simulate
from klinepred.calendar import Clock, place
from klinepred.features.build import F50
from klinepred.features.spec import Feature, FeatureSet
from klinepred.settings import DatasetSettings, SimulateSettings, SplitSettings

DEPTH: Final = Depth(rows=40_000, cuts=8, futures=2, starts=1, islands=0.3, held_out=2, replays=4, evidence=120_000)
SETTINGS: Final = DatasetSettings(horizon=2, split=SplitSettings(train=0.5, validation=0.25, embargo=1))
CONTROL: Final = "the sound pipeline"


def practice_market(*, seed: int = 5) -> pl.DataFrame:
    """Six symbols, 43 sessions with a half day, one bar in a hundred missing: where each leak has room to show."""
    settings = SimulateSettings(
        seed=seed, symbols=6, start=date(2025, 6, 2), end=date(2025, 8, 1), zero_volume=0.01, ic=0.06
    )
    clock = Clock("XNYS")
    bars = pl.concat([delivery.frame for delivery in simulate(settings, clock=clock)]).sort("symbol", "ts")
    kept = np.random.default_rng(seed).random(bars.height) >= 0.01
    return check_bars(bars.filter(pl.Series(kept)), clock=clock).collect()


def self_test(*, seed: int = 5) -> Certificate:
    """Audit leaks that were planted one by one on a simulated market, by the checks of `certify`.

    Returns
    -------
    Certificate
        One check per leak, of kind `leak`: passed = caught, the detail saying by what. Those of kind `control` are
        sound: passed = nothing was found.
    """
    bars = practice_market(seed=seed)
    universe = tuple(bars.get_column("symbol").unique().sort())
    evidence = Evidence(bars, universe, F50, SETTINGS, f"simulated market, seed {seed}: {bars.height:,} bars")
    sound = pipeline_stages(F50, SETTINGS, seed=seed)
    with one_thread():
        checks = [_control(certify(sound, evidence, depth=DEPTH).checks, CONTROL)]
        checks += _features(sound, evidence)
        checks += _doors(evidence, seed=seed)
        checks += _datasets(sound, evidence)
    return Certificate(tuple(checks))


def planted_set(leaks: dict[str, Make]) -> FeatureSet:
    """The set of fifty with leaky features among them, under names that do not tell."""
    more = [
        Feature(f"price__extra_{at}", "", pl.lit(0.0), first_value=1, lookback_bars=78, lookback_sessions=1, source="")
        for at in range(len(leaks))
    ]
    return FeatureSet(F50.name, (*more[::2], *F50.features, *more[1::2]))


def planted_stages(sound: Stages, leaks: dict[str, Make]) -> Stages:
    """The features stage with leaky columns beside the sound ones."""

    def build(bars: pl.DataFrame, universe: tuple[str, ...], dtype: pl.DataType) -> pl.DataFrame:
        frame = sound.features(bars, universe, dtype)
        placed = place(bars.sort("symbol", "ts"))
        columns = {f"price__extra_{at}": make(placed, universe) for at, make in enumerate(leaks.values())}
        values = frame.with_columns(column.cast(dtype).alias(name) for name, column in columns.items())
        return values.with_columns(pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name) for name in columns)

    return replace(sound, features=build)


def _features(sound: Stages, evidence: Evidence) -> list[Check]:
    leaks = {**LEAKY_FEATURES, SIDE_TABLE: side_table(place(evidence.bars))}
    stages, planted = planted_stages(sound, leaks), replace(evidence, features=planted_set(leaks))
    table = table_of(stages, planted, planted.bars)
    checks = audit_features(stages, planted, table=table, data=stages.dataset(table), depth=DEPTH)
    found = {check.name: check for check in checks}
    caught = [_caught(name, [found.pop(f"price__extra_{at}")]) for at, name in enumerate(leaks)]
    return [_control(tuple(found.values()), "fifty sound features among leaky ones"), *caught]


def _doors(evidence: Evidence, *, seed: int) -> Iterator[Check]:
    """SQL is refused at the door or found by the checks; what packages bring is found by the checks."""
    subjects: dict[str, Feature] = {}
    for at, (leak, text) in enumerate(SQL.items()):
        reason, feature = refused(f"custom__leak_{at}", text)
        if feature is None:
            yield Check(f"SQL: {leak}", "leak", True, reason)
        else:
            subjects[f"SQL: {leak}"] = feature
    for at, (leak, expression) in enumerate(PACKAGE.items()):
        subjects[f"package: {leak}"] = package_feature(f"acme__leak_{at}", expression)
    features = FeatureSet("own", (*F50.features[:2], *subjects.values()))
    own, stages = replace(evidence, features=features), pipeline_stages(features, SETTINGS, seed=seed)
    table = table_of(stages, own, own.bars)
    found = {one.name: one for one in audit_features(stages, own, table=table, data=stages.dataset(table), depth=DEPTH)}
    for leak, feature in subjects.items():
        yield _caught(leak, [found[feature.name]])


def _datasets(sound: Stages, evidence: Evidence) -> Iterator[Check]:
    table = table_of(sound, evidence, evidence.bars)
    spoiled = {name: altered(sound.dataset, alter) for name, alter in LEAKY_DATASETS.items()}
    for name, dataset in spoiled.items():
        stages = replace(sound, dataset=dataset)
        yield _caught(name, check_dataset(stages, evidence, table, stages.dataset(table), held_out=DEPTH.held_out))
    data = sound.dataset(table)
    for name, spoil in LEAKY_TRAINING.items():
        yield _caught(name, check_training(spoil(sound), data))
    for name, spoil in LEAKY_PREDICTIONS.items():
        stages = spoil(sound)
        asked = check_predictions(stages, untrained(stages, data), data, evidence.bars, replays=DEPTH.replays)
        yield _caught(name, asked)


def _caught(name: str, checks: list[Check]) -> Check:
    failed = [check for check in checks if not check.passed]
    if not failed:
        return Check(name, "leak", False, f"not caught by {len(checks)} checks")
    first = failed[0]
    by = "" if first.kind == "feature" else f"{first.name}: "
    return Check(name, "leak", True, f"{by}{first.detail}")


def _control(checks: tuple[Check, ...], name: str) -> Check:
    failed = [check for check in checks if not check.passed]
    if failed:
        return Check(name, "control", False, "; ".join(f"false alarm: {one.name}: {one.detail}" for one in failed[:3]))
    return Check(name, "control", True, f"{len(checks)} checks, no alarm")
