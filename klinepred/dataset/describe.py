"""In: a `Dataset`. Out: what is in each of its parts, and why other bars are in none: rows for a table."""

# Shapes: N rows.

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from klinepred.dataset.make import Dataset
from klinepred.dataset.split import EMBARGOED, OUTSIDE, PARTS, PURGED
from klinepred.dataset.target import BREAK, WITHIN

DESCRIPTION_SCHEMA: Final[dict[str, pl.DataType]] = {
    "fold": pl.Int64(),
    "part": pl.String(),
    "first": pl.Date(),
    "last": pl.Date(),
    "sessions": pl.Int64(),
    "symbols": pl.Int64(),
    "rows": pl.Int64(),
    "labelled": pl.Int64(),
    "within": pl.Int64(),
    "break": pl.Int64(),
    "sequences": pl.Int64(),
    "steps": pl.Int64(),
    "purged": pl.Int64(),
    "embargoed": pl.Int64(),
    "no_next_bar": pl.Int64(),
    "no_unit": pl.Int64(),
    "not_trained": pl.Int64(),
    "few_symbols": pl.Int64(),
    "short_run": pl.Int64(),
    "warm_up": pl.Int64(),
}
"""`first` and `last` are sessions that labels end in. `rows` = labelled + all of purged … short_run; warm_up bars lie
beside them. `steps` are LSTM steps of one pass over the sequences, lead-in included."""

WHY: Final = {
    "purged": "labels that reach over the border before this part",
    "embargoed": "labels in the embargo at the head of this part",
    "no_next_bar": "bars without a target: a bar ahead is missing, or not there yet",
    "no_unit": "bars whose volatility is not known yet, or 0",
    "not_trained": 'steps across a break, left out by steps = "within-session"',
    "few_symbols": "bars at which too few symbols have a target for a relative one",
    "short_run": "labels with too few bars before them for a window",
    "warm_up": "bars with too little history for all features",
}
"""Reasons why a bar teaches nothing, in the order they are asked."""


def describe(data: Dataset) -> pl.DataFrame:
    """One row a part, in time order, then `outside` for bars that are not of this fold (where there are any).

    A row belongs to the part its label ends in; one without a label to the part of its own session.

    Returns
    -------
    polars.DataFrame
        `DESCRIPTION_SCHEMA`.
    """
    owned_N = data.sequences.owned(data.part_N.size)
    reason_N = _reasons(data, owned_N)
    part_N = data.rows.get_column("end_part").to_numpy()
    ends = data.rows.select("symbol", end=pl.coalesce("label_session", "session"))
    found = []
    for code, name in [*enumerate(PARTS), (OUTSIDE, "outside")]:
        here_N = part_N == code
        if code == OUTSIDE and not here_N.any() and not data.warm_up.get(name):
            continue
        mask_N = here_N & (reason_N == "")
        spans = ends.filter(pl.Series(here_N))
        cut = data.sequences.covering(mask_N) if code != OUTSIDE else data.sequences.covering(np.zeros_like(mask_N))
        labelled = 0 if code == OUTSIDE else int(mask_N.sum())
        found.append(
            {
                "fold": data.split.fold,
                "part": name,
                "first": spans.get_column("end").min(),
                "last": spans.get_column("end").max(),
                "sessions": spans.get_column("end").n_unique(),
                "symbols": spans.get_column("symbol").n_unique(),
                "rows": int(here_N.sum()),
                "labelled": labelled,
                "within": int((mask_N & (data.kind_N == WITHIN)).sum()) if labelled else 0,
                "break": int((mask_N & (data.kind_N == BREAK)).sum()) if labelled else 0,
                "sequences": len(cut),
                "steps": cut.steps,
                **{why: int((here_N & (reason_N == why)).sum()) for why in WHY if why != "warm_up"},
                "warm_up": data.warm_up.get(name, 0),
            }
        )
    return pl.DataFrame(found, schema=DESCRIPTION_SCHEMA)


def _reasons(data: Dataset, owned_N: np.ndarray) -> np.ndarray:
    """Why a row is no labelled one [N]; empty for those that are (and for all outside the fold that could be)."""
    removed_N = data.rows.get_column("removed").to_numpy()
    return np.select(
        [
            removed_N == PURGED,
            removed_N == EMBARGOED,
            ~np.isfinite(data.return_N),
            ~np.isfinite(data.raw_N),
            ~np.isfinite(data.y_N) & (data.kind_N == BREAK) & (data.settings.steps == "within-session"),
            ~np.isfinite(data.y_N),
            ~owned_N,
        ],
        ["purged", "embargoed", "no_next_bar", "no_unit", "not_trained", "few_symbols", "short_run"],
        default="",
    )
