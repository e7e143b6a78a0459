"""In: predicted rows. Out: their `note`: what to mind before one trusts them, in words."""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np
import polars as pl

from klinepred.dataset.split import CALIBRATION, TRAIN, VALIDATION
from klinepred.features.build import FeatureFrame
from klinepred.features.cross import QUORUM
from klinepred.model.bundle import ModelBundle
from klinepred.schema import CALENDAR

DAY_MIN: Final = 1440
SEEN: Final = {TRAIN: "in training span", VALIDATION: "in validation span", CALIBRATION: "in calibration span"}
"""What is said of bars of a range whose predicted bar had a part in making the model."""
RETURN: Final = "price__return_1"
"""Where this feature has a value, its symbol counts in the cross-section."""


def remarks(bundle: ModelBundle, *, history: bool) -> pl.Expr:
    """The note of each row, parts parted by "; ", empty where there is nothing to say.

    Parameters
    ----------
    history
        Whether the rows are of a range: those that had a part in making the model are marked.

    Notes
    -----
    Reads in_training, stale, `_target_session` (of a range), the calendar, `_age` (minutes since the bar closed),
    `_untrained`, `_no_unit`, `_no_interval`, `_strange` of `strange_columns`, and `_own`, `_all` of `count_members`.
    """
    days = pl.col("_age") // DAY_MIN
    return pl.concat_str(
        "_strange",
        pl.when(~pl.col("in_training")).then(pl.lit("not in training")),
        pl.when("_untrained").then(pl.lit("overnight-not-trained")),
        pl.when("_no_unit").then(pl.lit("no trailing volatility for this kind of step yet")),
        pl.when(pl.col("_no_interval") & ~pl.col("_no_unit")).then(pl.lit("no interval for this kind of step")),
        pl.when(pl.col("stale") & (pl.col("_age") <= DAY_MIN)).then(
            pl.format("stale: closed {} min ago", pl.col("_age"))
        ),
        pl.when(pl.col("stale") & (pl.col("_age") > DAY_MIN)).then(
            pl.format("stale: closed {} day{} ago", days, pl.when(days > 1).then(pl.lit("s")).otherwise(pl.lit("")))
        ),
        *([bundle.split.part_of(pl.col("_target_session")).replace_strict(SEEN, default=None)] if history else []),
        _incomplete(bundle),
        separator="; ",
        ignore_nulls=True,
    )


def strange_columns(bundle: ModelBundle, x_NF: np.ndarray) -> dict[str, pl.Series]:
    """`_strange`: what sets a row apart from those of training, where it lies too far from them, else null.

    Parameters
    ----------
    x_NF
        Scaled features [N, F] of the rows.
    """
    words: list[str | None] = [None] * len(x_NF)
    if (novelty := bundle.novelty) is not None:
        score_N, most_N = novelty.score(x_NF)
        for row in np.flatnonzero(score_N > novelty.threshold):
            words[row] = (
                f"abstains: out of distribution: score {score_N[row]:.3g}, threshold {novelty.threshold:.3g},"
                f" most unusual: {bundle.feature_names[most_N[row]]}"
            )
    return {"_strange": pl.Series(words, dtype=pl.String)}


def count_members(table: FeatureFrame, stamps: pl.Series) -> pl.DataFrame:
    """Symbols of the universe that the cross-section could be taken over at these times.

    Returns
    -------
    polars.DataFrame
        bar_ts, calendar, `_own` (of that calendar), `_all`; no row where there are none.
    """
    known = [RETURN] if RETURN in table.features.names else []
    clocks = {"symbol": list(table.calendars), CALENDAR: list(table.calendars.values())}
    spots = stamps.unique()
    here = pl.col("ts") == spots[0] if len(spots) == 1 else pl.col("ts").is_in(spots.implode())
    # the few rows of these times first: the rest is asked of them alone
    there = table.frame.select("symbol", "ts", *known).filter(here).drop_nulls(known or None)
    members = there.lazy().filter(pl.col("symbol").is_in(list(table.universe)))
    named = members.select("symbol", bar_ts="ts").join(pl.LazyFrame(clocks), on="symbol", how="left")
    own = named.group_by("bar_ts", CALENDAR).agg(_own=pl.len())
    return own.with_columns(_all=pl.col("_own").sum().over("bar_ts")).collect()


def _incomplete(bundle: ModelBundle) -> pl.Expr:
    """How many of the universe have no value at the time of the row, and what that does to the cross-section.

    A member whose own calendar is another than the row's does not count as absent: its market may be closed.
    """
    size = len(bundle.universe)
    due = pl.col(CALENDAR).replace_strict(
        dict(Counter(bundle.calendars.values())) or {"": 0}, default=size, return_dtype=pl.Int64
    )
    missing = due - pl.col("_own").fill_null(0).cast(pl.Int64)
    words = pl.format("{} of {} universe symbols absent", missing, pl.lit(size))
    across = ", ".join(name for name in bundle.feature_names if name.startswith("cross__"))
    if across and size >= QUORUM:
        left = pl.col("_all").fill_null(0)
        few = pl.format("{} neutral, {} symbols are needed", pl.lit(across), pl.lit(QUORUM))
        some = pl.format("{} taken over the other {}", pl.lit(across), left)
        words = pl.concat_str(words, pl.lit(": "), pl.when(left < QUORUM).then(few).otherwise(some))
    return pl.when(missing > 0).then(words)
