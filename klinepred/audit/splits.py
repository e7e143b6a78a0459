"""In: a dataset. Out: checks of its parts: in time order, no label across a border, no row twice, the embargo kept."""

# Shapes: N rows of the dataset.

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import combinations

import numpy as np

from klinepred.audit.check import Check, judge
from klinepred.audit.ledger import Ledger
from klinepred.audit.targets import where
from klinepred.dataset.make import Dataset
from klinepred.dataset.split import PARTS

EPOCH = date(1970, 1, 1)


def check_split(data: Dataset, truth: Ledger) -> list[Check]:
    """Look at where labels really begin and end, whatever the split says of itself."""
    return [_apart(data, truth), _inside(data, truth), _once(data), _embargo(data, truth)]


def _apart(data: Dataset, truth: Ledger) -> Check:
    faults = []
    filled = [code for code in range(len(PARTS)) if (data.part_N == code).any()]
    for early, late in combinations(filled, 2):
        end = int(truth.end_N[data.part_N == early].max())
        begin = int(truth.first_open_N[data.part_N == late].min())
        if end > begin:
            faults.append(
                f"a label of {PARTS[early]} ends at {_stamp(end)},"
                f" after the first of {PARTS[late]} begins at {_stamp(begin)}"
            )
    counts = ", ".join(f"{PARTS[code]} {int((data.part_N == code).sum()):,}" for code in filled)
    return judge(
        "the labels of a part end before the next part begins", "split", faults=faults, detail=f"labels: {counts}"
    )


def _inside(data: Dataset, truth: Ledger) -> Check:
    """Every bar of a label lies in the sessions of its part."""
    edges = [_days(day) for day in (data.split.train_end, data.split.validation_end, data.split.calibration_end)]
    start, end = data.split.train_start, data.split.test_end
    low = np.array([-1 if start is None else _days(start) - 1, *edges])
    high = np.array([*edges, np.iinfo(np.int64).max if end is None else _days(end)])
    labelled_N = data.part_N >= 0
    code_N = np.where(labelled_N, data.part_N, 0)
    out_N = labelled_N & ((truth.first_session_N <= low[code_N]) | (truth.last_session_N > high[code_N]))
    return judge(
        "every bar of a label lies in the sessions of its part",
        "split",
        faults=[
            *([] if edges == sorted(edges) else [f"parts out of order: {data.split.to_dict()}"]),
            *where(data, out_N, "a label that reaches over a border"),
        ],
        detail=f"train{'' if start is None else f' from {start}'} to {data.split.train_end},"
        f" validation to {data.split.validation_end}, calibration to {data.split.calibration_end}"
        f"{'' if end is None else f', test to {end}'}",
    )


def _once(data: Dataset) -> Check:
    keys = data.rows.select("symbol", "ts")
    masks = np.array([data.mask(part) for part in PARTS])
    return judge(
        "no row is there twice or in two parts",
        "split",
        faults=[
            *where(data, keys.is_duplicated().to_numpy(), "a row that is there twice"),
            *where(data, masks.sum(axis=0) > 1, "a row of two parts"),
        ],
        detail=f"{keys.height:,} rows",
    )


def _embargo(data: Dataset, truth: Ledger) -> Check:
    count = data.split.embargo
    faults = []
    if count != data.settings.split.embargo:
        faults.append(f"an embargo of {count} sessions, {data.settings.split.embargo} asked for")
    days = np.unique(truth.last_session_N[np.isfinite(data.return_N)])
    for edge in (data.split.train_end, data.split.calibration_end):
        blocked = days[days > _days(edge)][:count]
        touched_N = np.isin(truth.last_session_N, blocked) | np.isin(truth.first_session_N, blocked)
        late_N = (data.part_N >= 0) & touched_N
        faults += where(data, late_N, f"a label in the embargo after {edge}")
    return judge(
        "no label in the embargo after train and before test",
        "split",
        faults=faults,
        detail=f"{count} sessions" if count else "none is set",
    )


def _days(day: date) -> int:
    return (day - EPOCH).days


def _stamp(micros: int) -> str:
    return f"{datetime.fromtimestamp(micros / 1e6, UTC):%Y-%m-%dT%H:%MZ}"
