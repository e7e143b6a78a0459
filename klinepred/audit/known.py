"""In: stages, a dataset. Out: checks by change: what is held out, or later, changes nothing that is known."""

# Shapes: N rows, L labels of one epoch.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from klinepred.audit.check import Check, judge
from klinepred.audit.futures import SEED, changed
from klinepred.audit.ledger import Ledger
from klinepred.audit.splits import EPOCH
from klinepred.audit.stages import Evidence, Stages, table_of
from klinepred.audit.targets import where
from klinepred.dataset.make import Dataset
from klinepred.dataset.split import PARTS
from klinepred.model.calibration import UNTRAINED, KindCalibration
from klinepred.schema import BAR

Flags = npt.NDArray[np.bool_]
SOURCES = {
    "calibration part": ("calibration",),
    "calibration and validation part": ("calibration", "validation"),
    UNTRAINED: ("calibration", "validation"),
}
"""From which parts a calibration that names this source may come; any other source: from train."""


@dataclass
class _Moved:
    """What moved when the future was changed: faults of each claim, over all moments tried."""

    rows: list[str] = field(default_factory=list)
    scaler: list[str] = field(default_factory=list)
    borders: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    units: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


def check_held_out(
    stages: Stages, evidence: Evidence, data: Dataset, truth: Ledger, *, moments: int = 3
) -> list[Check]:
    """Change every bar after the train part, or after a later moment, and make the dataset again.

    Nothing that was known by then may differ by a bit.
    """
    moved = _Moved()
    times = _moments(data, truth)[:moments]
    for now in times:
        later = evidence.bars.get_column("ts") > now
        other = stages.dataset(table_of(stages, evidence, changed(evidence.bars, later)))
        _compare(data, other, truth, now, moved)
    about = f"bars after {', '.join(f'{now:%Y-%m-%dT%H:%MZ}' for now in times)} changed in turn"
    claims = (
        ("the rows of the dataset do not depend on later values", "inputs", moved.rows),
        ("the scaler does not change when held-out rows do", "scaler", moved.scaler),
        ("the borders of the parts do not depend on held-out values", "split", moved.borders),
        ("inputs are known at the close of t", "inputs", moved.inputs),
        ("the unit and the kind of step of a target are known at the close of t", "target", moved.units),
        ("a target depends on no bar after its end", "target", moved.labels),
    )
    return [judge(name, kind, faults=faults, detail=about) for name, kind, faults in claims]


def _moments(data: Dataset, truth: Ledger) -> list[datetime]:
    """The last bar of train, then one amid a session, the first bar of another, both held out."""
    days = np.unique(truth.session_N)
    train = (data.split.train_end - EPOCH).days
    held = days[days > train]
    picks = [(days[days <= train][-1], 1.0)]
    if held.size:
        picks += [(held[held.size // 3], 0.4), (held[2 * held.size // 3], 0.0)]
    answer = []
    for day, share in picks:
        times = data.rows.filter(pl.Series(truth.session_N == day)).get_column("ts").unique().sort()
        answer.append(times[round(share * (len(times) - 1))])
    return answer


def _compare(data: Dataset, other: Dataset, truth: Ledger, now: datetime, moved: _Moved) -> None:
    about = f"bars after {now:%Y-%m-%dT%H:%MZ} changed"
    if not data.rows.select("symbol", "ts").equals(other.rows.select("symbol", "ts")):
        moved.rows.append(f"other rows, {about}")
        return
    moved_F = (data.scaler.centre_F != other.scaler.centre_F) | (data.scaler.scale_F != other.scaler.scale_F)
    moved.scaler += [f"{name} is scaled otherwise, {about}" for name in np.array(data.scaler.names)[moved_F]]
    if data.split != other.split:
        moved.borders.append(f"{other.split.to_dict()}, {about}")
    known_N = (data.rows.get_column("ts") <= now).to_numpy()
    input_N = (data.x_NF.view(np.int32) != other.x_NF.view(np.int32)).any(axis=1)
    moved.inputs += where(data, input_N & known_N, f"another input, {about}")
    unit_N = _differ(data.vol_N, other.vol_N) | (data.kind_N != other.kind_N)
    moved.units += where(data, unit_N & known_N, f"another unit, {about}")
    label_N = data.part_N != other.part_N
    for one, two in ((data.return_N, other.return_N), (data.raw_N, other.raw_N), (data.y_N, other.y_N)):
        label_N |= _differ(one, two)
    ended_N = known_N & (_latest_end(data, truth) <= int((now + BAR).timestamp() * 1_000_000))
    moved.labels += where(data, label_N & ended_N, f"another label or part, {about}")


def check_training(stages: Stages, data: Dataset) -> list[Check]:
    """Change the labels of the parts that a step must not see: it must give the same numbers, bit for bit."""
    network = stages.network(data.x_NF.shape[1])
    return [
        _labels(stages, data),
        _same(
            "the best epoch is chosen by validation labels alone",
            lambda one: stages.grade(network, one),
            data,
            data.part_N == PARTS.index("validation"),
        ),
        _calibration(stages, data),
    ]


def _labels(stages: Stages, data: Dataset) -> Check:
    train_N = data.part_N == PARTS.index("train")
    learned_L = stages.labels(data)
    check = _same("training learns from train labels alone", stages.labels, data, train_N)
    wanted = int(data.mask("train").sum())
    if check.passed and learned_L.size != wanted:
        return judge(check.name, check.kind, faults=[f"{learned_L.size:,} labels, {wanted:,} of train"], detail="")
    return replace(check, detail=f"{learned_L.size:,} labels; {check.detail}")


def _same(name: str, step: Callable[[Dataset], Any], data: Dataset, allowed_N: Flags) -> Check:
    one, two = step(data), step(_relabelled(data, ~allowed_N))
    same = bool(np.array_equal(np.asarray(one), np.asarray(two)))
    text = f"the labels of {int((~allowed_N & np.isfinite(data.raw_N)).sum()):,} other rows changed"
    return judge(name, "training", faults=[] if same else [f"other numbers with {text}"], detail=text)


def _calibration(stages: Stages, data: Dataset) -> Check:
    network = stages.network(data.x_NF.shape[1])
    own = stages.calibrate(network, data)
    faults = []
    for source in sorted({kind.source for kind in own.kinds if kind is not None}):
        parts = [PARTS.index(part) for part in SOURCES.get(source, ("train",))]
        other = stages.calibrate(network, _relabelled(data, ~np.isin(data.part_N, parts)))
        for code, (a, b) in enumerate(zip(own.kinds, other.kinds, strict=True)):
            if a is not None and a.source == source and not _equal(a, b):
                faults.append(f"kind {code} changes with labels outside the {source}")
    return judge(
        "interval and probability come from the parts they name, never from test",
        "training",
        faults=faults,
        detail="; ".join(f"{kind.source}: {kind.rows:,} rows" for kind in own.kinds if kind is not None) or "none",
    )


def _equal(one: KindCalibration, two: KindCalibration | None) -> bool:
    return two is not None and (one.slope, one.lo, one.hi) == (two.slope, two.lo, two.hi)


def _relabelled(data: Dataset, which_N: Flags) -> Dataset:
    """Other numbers as labels of some rows; those without a label stay so."""
    noise_N = np.random.default_rng(SEED).normal(0.0, 3.0, which_N.size)

    def moved(value_N: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.where(which_N & np.isfinite(value_N), noise_N, value_N).astype(value_N.dtype)

    return replace(data, y_N=moved(data.y_N), raw_N=moved(data.raw_N), return_N=moved(data.return_N))


def _differ(one: npt.NDArray[Any], two: npt.NDArray[Any]) -> Flags:
    return np.asarray(~((one == two) | (np.isnan(one) & np.isnan(two))))


def _latest_end(data: Dataset, truth: Ledger) -> npt.NDArray[np.int64]:
    """When the last label of each row's time has ended: a relative target waits for all symbols."""
    frame = pl.DataFrame({"ts": data.rows.get_column("ts"), "end": truth.end_N})
    return frame.select(pl.col("end").max().over("ts")).to_series().to_numpy()
