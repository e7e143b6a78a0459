"""In: a model, the stored bars, its ledger. Out: `Drift`: whether the world has moved away from what it learned."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, Final

import numpy as np
import polars as pl

from klinepred.dataset.make import Dataset
from klinepred.evaluation.significance import LEVEL, UNDEFINED, Estimate, student_tail
from klinepred.live.psi import Shift, compare
from klinepred.live.score import numbers, read_ledger
from klinepred.live.sessions import TIMES, codes, spans, stored_rows
from klinepred.model.bundle import ModelBundle
from klinepred.model.forward import forward_rows
from klinepred.model.promotion import read_verdict
from klinepred.paths import Workspace
from klinepred.settings import Pipeline

LEAST: Final = 3
"""Fewer sessions than this say nothing."""
LEAST_GRADED: Final = 10
"""Fewest graded sessions of the ledger for its IC to be held against the test part's."""
ROWS: Final = 300_000
"""Most rows that are predicted: symbols are left out evenly where there are more."""
PREDICTION: Final = "prediction"
SCHEMA: Final = {
    "name": pl.String(),
    **dict.fromkeys(("psi", "floor", "noise", "limit"), pl.Float64()),
    "word": pl.String(),
}


@dataclass(frozen=True)
class Drift:
    """Whether the world has moved away from what a model learned.

    Attributes
    ----------
    drifted
        Features or predictions moved further than chance takes them, or the live IC fell below the test part's.
    sentence
        One plain sentence that says when to retrain.
    table
        Features and `prediction`, furthest first: name, psi, floor, noise, limit, word (see `klinepred.live.psi`).
    sessions
        First and last session that was compared; None = too few.
    compared, reference
        Sessions compared, and sessions of the training span they are compared with.
    live_ic, test_ic
        Of the ledger and of the verdict; undefined where there is none.
    """

    drifted: bool
    sentence: str
    model: str
    table: pl.DataFrame
    sessions: tuple[date, date] | None
    compared: int
    reference: int
    live_ic: Estimate = UNDEFINED
    test_ic: Estimate = UNDEFINED

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not defined is None."""
        return {
            "drifted": self.drifted,
            "sentence": self.sentence,
            "model": self.model,
            "first_session": None if self.sessions is None else self.sessions[0].isoformat(),
            "last_session": None if self.sessions is None else self.sessions[1].isoformat(),
            "sessions": self.compared,
            "training_sessions": self.reference,
            "live_ic": _plain(self.live_ic),
            "test_ic": _plain(self.test_ic),
            "columns": self.table.to_dicts(),
        }


def measure(
    space: Workspace,
    run: Pipeline,
    bundle: ModelBundle,
    *,
    now: datetime | None = None,
    since: datetime | None = None,
) -> Drift:
    """Compare the newest sessions with the training span of a model, as the network reads them.

    The training span is everything up to the end of the calibration part, computed afresh from the store: so any model
    can be asked, and what chance does can be measured on it session by session. Clock features follow the calendar
    and are left out. Predictions are those of the network over both spans. The ledger's IC, where it has ten graded
    sessions, is held against that of the model's verdict.

    Parameters
    ----------
    run
        The pipeline that asks; only its name is used, in the sentence.
    now
        The clock (aware): later bars, and sessions not over by then, do not count. Default: the machine's.
    since
        Compare the sessions from this moment on (aware) instead of the newest ten; a quarter of the training span's
        sessions at most.

    Raises
    ------
    StoreError, ModelError
        Nothing of the universe is stored, or the model's features are not those of this version.
    """
    clock = datetime.now(UTC) if now is None else now.astimezone(UTC)
    live_ic, test_ic = _live_ic(space, bundle, now=now), _test_ic(space, bundle)
    data = stored_rows(bundle, space, now=None if now is None else clock)
    live, reference = spans(data, bundle, clock, since=since)
    if len(live) < LEAST or len(reference) < TIMES * LEAST:
        few = (
            f"{len(reference)} sessions of its training span in the store, {TIMES * LEAST} are needed"
            if len(reference) < TIMES * LEAST
            else f"{len(live)} finished sessions since its training, {LEAST} are needed"
        )
        empty = pl.DataFrame(schema=SCHEMA)
        text = f"Too early to say whether {bundle.name} has drifted: {few}."
        found = Drift(False, text, bundle.name, empty, None, len(live), len(reference), live_ic, test_ic)
        return _decayed(found, run)
    shifts = _features(data, live, reference) + _predictions(data, bundle, live, reference)
    table = pl.DataFrame(
        [(name, shift.psi, shift.floor, shift.noise, shift.limit, shift.word) for name, shift in shifts],
        schema=SCHEMA,
        orient="row",
    ).sort("psi", descending=True)
    found = Drift(
        drifted=any(shift.word == "drifted" for _, shift in shifts),
        sentence="",
        model=bundle.name,
        table=table,
        sessions=(live[0], live[-1]),
        compared=len(live),
        reference=len(reference),
        live_ic=live_ic,
        test_ic=test_ic,
    )
    return _decayed(found, run)


def _features(data: Dataset, live: list[date], reference: list[date]) -> list[tuple[str, Shift]]:
    names = data.features.names
    keep = [number for number, feature in enumerate(data.features.features) if feature.family != "clock"]
    parts = []
    for days in (live, reference):
        mask_N, code_M = codes(data.rows.get_column("session"), days)
        parts.append((data.x_NF[mask_N][:, keep], code_M))
    return [(names[number], shift) for number, shift in zip(keep, compare(*parts), strict=True)]


def _predictions(
    data: Dataset, bundle: ModelBundle, live: list[date], reference: list[date]
) -> list[tuple[str, Shift]]:
    """The network's forecasts over both spans, of as many symbols as time allows."""
    wanted = data.rows.get_column("session").is_in(live + reference)
    symbols = data.rows.get_column("symbol").unique().sort()
    step = max(1, math.ceil(int(wanted.sum()) / ROWS))
    chosen = wanted & data.rows.get_column("symbol").is_in(symbols.gather_every(step).implode())
    owned_N = chosen.to_numpy() & data.sequences.owned(data.rows.height)
    pred_N = forward_rows(bundle.network, data.x_NF, data.sequences.covering(owned_N))
    parts = []
    for days in (live, reference):
        mask_N, _ = codes(data.rows.get_column("session"), days)
        mask_N = mask_N & owned_N & np.isfinite(pred_N)
        session = data.rows.get_column("session").filter(pl.Series(mask_N))
        if session.n_unique() != len(days):
            return []
        parts.append((pred_N[mask_N][:, None], codes(session, days)[1]))
    return [(PREDICTION, compare(*parts)[0])]


def _live_ic(space: Workspace, bundle: ModelBundle, *, now: datetime | None) -> Estimate:
    rows = read_ledger(space, model=bundle.name, now=now).filter(pl.col("run_id") == bundle.run_id)
    if rows.get_column("realised_bps").count() == 0:
        return UNDEFINED
    found = numbers(rows)
    return Estimate(found["ic"], found["ic_se"], found["sessions"])


def _test_ic(space: Workspace, bundle: ModelBundle) -> Estimate:
    verdict = read_verdict(space.trained / bundle.name) or {}
    value, error = verdict.get("ic"), verdict.get("ic_se")
    if not isinstance(value, float) or not isinstance(error, float):
        return UNDEFINED
    return Estimate(value, error, 0)


def _decayed(found: Drift, run: Pipeline) -> Drift:
    """The same with the live IC held against the test part's, and the sentence."""
    live, test = found.live_ic, found.test_ic
    fell = False
    if live.sessions >= LEAST_GRADED and all(map(math.isfinite, (live.value, live.se, test.value, test.se))):
        apart = (test.value - live.value) / max(math.hypot(live.se, test.se), 1e-12)
        fell = student_tail(apart, df=live.sessions - 1) < LEVEL
    moved = found.table.filter(pl.col("word") == "drifted")
    reasons = []
    if moved.height:
        name, value, _, _, limit = moved.row(0)[:5]
        count = moved.filter(pl.col("name") != PREDICTION).height
        what = [f"{count} of {found.table.filter(pl.col('name') != PREDICTION).height} features"] if count else []
        what += ["the predictions"] if PREDICTION in moved.get_column("name").to_list() else []
        reasons.append(
            f"{' and '.join(what)} moved further than chance takes them"
            f" (most of all {name}: PSI {value:.2f}, limit {limit:.2f})"
        )
    if fell:
        reasons.append(
            f"the live IC {live.value:.3f} ± {live.se:.3f} is below the test part's {test.value:.3f} ± {test.se:.3f}"
        )
    if reasons:
        text = f"Retrain now (klinepred train -p {run.name}): {'; '.join(reasons)}."
        return replace(found, drifted=True, sentence=text)
    if found.sentence:
        return found
    top = found.table.row(0, named=True)
    first, last = found.sessions or ("", "")
    text = (
        f"No need to retrain: in the {found.compared} sessions from {first} to {last} neither features nor predictions"
        f" moved further than chance takes them (most of all {top['name']}: PSI {top['psi']:.2f},"
        f" limit {top['limit']:.2f})."
    )
    return replace(found, sentence=text)


def _plain(value: Estimate) -> dict[str, Any]:
    return {
        "value": value.value if math.isfinite(value.value) else None,
        "se": value.se if math.isfinite(value.se) else None,
        "sessions": value.sessions,
    }
