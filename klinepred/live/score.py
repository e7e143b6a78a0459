"""In: a graded ledger. Out: live IC, hit rate and coverage with errors by session, by model, symbol or session."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from klinepred.evaluation.significance import correlation_repeats, correlation_sums, draw_sessions, estimate
from klinepred.live.grade import latest_grades
from klinepred.live.ledger import KEY, PREDICTIONS, ledger_folder
from klinepred.live.table import reading, scan
from klinepred.metrics import coverage, hit_rate, ic
from klinepred.paths import Workspace
from klinepred.schema import TS

By = Literal["model", "symbol", "session"]
UNTRAINED: Final = "overnight-not-trained"
"""Note of a step that the network was not trained on: nothing was expected of it, so it counts for coverage alone."""
REPEATS: Final = 1000
SEED: Final = 7
_NUMBERS: Final = ("ic", "ic_se", "ic_raw", "hit_rate", "hit_base", "coverage80")
SCORES: Final[dict[str, pl.DataType]] = {
    "model": pl.String(),
    "run_id": pl.String(),
    "target": pl.String(),
    "symbol": pl.String(),
    "session": pl.Date(),
    "predictions": pl.Int64(),
    "graded": pl.Int64(),
    "ungradable": pl.Int64(),
    "sessions": pl.Int64(),
    **dict.fromkeys(_NUMBERS, pl.Float64()),
}


def read_ledger(space: Workspace, *, model: str | None = None, now: datetime | None = None) -> pl.DataFrame:
    """Predictions of the ledger beside their grades, sorted by model, symbol and bar_ts; of one model, or of all.

    Parameters
    ----------
    now
        The ledger as it was then (aware): predictions and grades made later are left out. Default: all.

    Returns
    -------
    polars.DataFrame
        The columns of `klinepred.schema.PREDICTION_SCHEMA`, store_version, made_at, written_at, and those of
        `klinepred.live.grade.GRADES`, null where there is no grade yet.

    Raises
    ------
    StoreError
        The ledger is damaged.
    """
    rows = scan(ledger_folder(space), PREDICTIONS)
    rows = rows if model is None else rows.filter(pl.col("model") == model)
    rows = rows if now is None else rows.filter(pl.col("made_at") <= pl.lit(now.astimezone(UTC), TS))
    with reading(ledger_folder(space)):
        made = rows.collect()
    joined = made.join(latest_grades(space, now=now), on=KEY, how="left", nulls_equal=True)
    return joined.sort("model", "run_id", "symbol", "bar_ts")


def score(ledger: pl.DataFrame, *, by: By = "model") -> pl.DataFrame:
    """Scores of what `read_ledger` gives.

    IC is the pooled correlation of forecast and outcome, both in units of trailing volatility and of the kind the
    model learned, as in `klinepred evaluate`; its standard error draws whole sessions with replacement. Steps the
    model was not trained on count for coverage alone. Zero outcomes have no sign and count for no hit.

    Returns
    -------
    polars.DataFrame
        `SCORES`, one row a model (and symbol, or session; null where it is over all of them). `ic_raw` is against the
        raw return; null where that is what the model learned.
    """
    keys = {"model": ["model", "run_id"], "symbol": ["model", "run_id", "symbol"], "session": _SESSION}[by]
    chosen = ledger if by != "session" else ledger.filter(pl.col("session").is_not_null())
    rows = [
        {**dict(zip(keys, key, strict=True)), **numbers(part)}
        for key, part in chosen.group_by(keys, maintain_order=True)
    ]
    frame = pl.DataFrame(rows, schema=SCORES).with_columns(pl.col(_NUMBERS).fill_nan(None))
    return frame.sort("model", "run_id", "session", "symbol", nulls_last=True)


_SESSION: Final = ["model", "run_id", "session"]


def numbers(rows: pl.DataFrame) -> dict[str, Any]:
    """The scores of some rows of a ledger, by the names of `SCORES`."""
    graded = rows.filter(pl.col("realised_bps").is_not_null())
    trained = ~pl.col("note").fill_null("").str.contains(UNTRAINED, literal=True)
    learned = graded.filter(trained & pl.col("expected_return_bps").is_not_null())
    inside = rows.drop_nulls(["raw_bps", "lo80_bps", "hi80_bps"])
    hits = hit_rate(*_columns(learned, "expected_return_bps", "realised_bps"))
    united = learned.filter(pl.col("vol_bps") > 0.0).with_columns(
        pl.col("expected_return_bps", "realised_bps", "raw_bps") / pl.col("vol_bps")
    )
    pred_N, real_N, raw_N = _columns(united, "expected_return_bps", "realised_bps", "raw_bps")
    session_N = united.get_column("session").rank("dense").cast(pl.Int64).to_numpy() - 1
    sessions = int(session_N.max()) + 1 if session_N.size else 0
    error = math.nan
    if sessions > 1:
        sums_S6 = correlation_sums(pred_N, real_N, session_N, sessions=sessions)
        repeats_B = correlation_repeats(sums_S6, draw_sessions(sessions, repeats=REPEATS, seed=SEED))
        error = estimate(ic(pred_N, real_N), repeats_B, sessions=sessions).se
    target = rows.item(0, "target")
    return {
        "target": target,
        "predictions": rows.height,
        "graded": graded.height,
        "ungradable": rows.get_column("reason").count(),
        "sessions": sessions,
        "ic": ic(pred_N, real_N),
        "ic_se": error,
        "ic_raw": ic(pred_N, raw_N) if target == "relative" else math.nan,
        "hit_rate": hits.rate,
        "hit_base": hits.base,
        "coverage80": coverage(*_columns(inside, "lo80_bps", "hi80_bps", "raw_bps")) if inside.height else math.nan,
    }


def _columns(rows: pl.DataFrame, *names: str) -> Iterator[np.ndarray]:
    return (rows.get_column(name).to_numpy() for name in names)
