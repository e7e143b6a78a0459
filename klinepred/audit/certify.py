"""In: stages, evidence. Out: `Certificate`: every check of an audit, in the order of data through the pipeline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from klinepred.audit.check import KINDS, Certificate, Check, judge
from klinepred.audit.depth import THOROUGH, Depth
from klinepred.audit.features import ROWS, describe, examine_features
from klinepred.audit.futures import SEED
from klinepred.audit.inputs import check_inputs, check_sequences, find_copies
from klinepred.audit.known import check_held_out, check_training
from klinepred.audit.ledger import Ledger, read_ledger
from klinepred.audit.predictions import check_predictions
from klinepred.audit.splits import check_split
from klinepred.audit.stages import Evidence, Stages, one_thread, table_of, untrained
from klinepred.audit.targets import check_targets
from klinepred.dataset.make import Dataset
from klinepred.errors import DatasetError
from klinepred.features.build import FeatureFrame
from klinepred.headway import Work
from klinepred.model.bundle import ModelBundle


def certify(
    stages: Stages, evidence: Evidence, *, depth: Depth = THOROUGH, bundle: ModelBundle | None = None
) -> Certificate:
    """Audit every step from bars to predictions; the same stages and evidence give the same certificate.

    Parameters
    ----------
    bundle
        The trained model to ask for predictions; default: a network of random weights around the audited dataset.

    Raises
    ------
    KlinepredError
        A step refuses these data (too little history, say); nothing is certified then.
    """
    with Work("steps of the audit", total=5) as work:
        table = table_of(stages, evidence, evidence.bars)
        data = stages.dataset(table)
        work.step()
        checks = [Check("bars", "evidence", True, evidence.about)]
        checks += audit_features(stages, evidence, table=table, data=data, depth=depth)
        work.step()
        checks += check_dataset(
            stages, evidence, table, data, held_out=depth.held_out if evidence.bars.height <= depth.evidence else 0
        )
        work.step()
        with one_thread():
            checks += check_training(stages, data)
            work.step()
            asked = bundle or untrained(stages, data)
            checks += check_predictions(stages, asked, data, evidence.bars, replays=depth.replays)
            work.step()
    return Certificate(tuple(sorted(checks, key=lambda check: KINDS.index(check.kind))))


def audit_features(
    stages: Stages, evidence: Evidence, *, table: FeatureFrame, data: Dataset, depth: Depth
) -> list[Check]:
    """One check per feature, after one of the rows they stand in."""
    found = examine_features(stages, evidence, depth=depth)
    found.add("copy of the target", find_copies(data, table))
    whole = judge("rows of the features", "feature", faults=found.lines(ROWS), detail="the same whatever comes after")
    return [
        whole,
        *(
            judge(one.name, "feature", faults=found.lines(one.name), detail=describe(one, found))
            for one in evidence.features.features
        ),
    ]


def check_dataset(
    stages: Stages, evidence: Evidence, table: FeatureFrame, data: Dataset, *, held_out: int
) -> list[Check]:
    """Targets, split, scaler, inputs and sequences; the same again with bars missing.

    Parameters
    ----------
    held_out
        At how many moments the future is changed; 0 where a second dataset would take too much memory.
    """
    bars = evidence.bars.select("symbol", "ts", "close")
    truth = _ledger(evidence, bars, data)
    checks = [*check_targets(data, bars, truth), *check_split(data, truth), *check_inputs(data, table, truth)]
    checks += check_sequences(data, truth)
    if held_out:
        checks += check_held_out(stages, evidence, data, truth, moments=held_out)
    return [*checks, *_with_bars_missing(stages, evidence, table)]


def _with_bars_missing(stages: Stages, evidence: Evidence, table: FeatureFrame) -> list[Check]:
    """Bars here and there, and one symbol for a whole session, taken away: no label, no sequence may bridge them."""
    count = table.frame.height
    gone = np.random.default_rng(SEED + 2).random(count) < 0.01
    gone[int(0.8 * count) : int(0.8 * count) + 100] = True
    frame = table.frame.filter(~pl.Series(gone))
    bars = frame.select("symbol", "ts", "close")
    try:
        data = stages.dataset(replace(table, frame=frame))
    except DatasetError as error:
        return [Check("with bars missing", "target", True, f"not checked: {error.summary}, got {error.got}")]
    truth = _ledger(evidence, bars, data)
    checks = [*check_targets(data, bars, truth), *check_split(data, truth), *check_sequences(data, truth)]
    return [replace(check, name=f"{check.name} (bars missing)") for check in checks]


def _ledger(evidence: Evidence, bars: pl.DataFrame, data: Dataset) -> Ledger:
    return read_ledger(bars, data.rows, calendars=evidence.calendars, horizon=data.settings.horizon)
