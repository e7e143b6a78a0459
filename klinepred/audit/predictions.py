"""In: stages, a bundle. Out: checks that predictions repeated bar by bar equal those made in one go."""

# Shapes: N rows, B sequences of a batch, T steps, F features.

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl
import torch
from torch import nn

from klinepred.audit.check import Check, judge
from klinepred.audit.futures import SEED, choose_cuts, thinned
from klinepred.audit.stages import Stages
from klinepred.dataset.make import Dataset
from klinepred.model.bundle import ModelBundle
from klinepred.model.forward import forward_rows
from klinepred.schema import BAR

RELATIVE: Final = 1e-5
ABSOLUTE_BPS: Final = 1e-4
"""A forecast may differ by rounding, for sums of a batch of another size run in another order: by a ten-thousandth of
a basis point, or a hundred-thousandth of itself."""
VALUES: Final = ("expected_return_bps", "lo80_bps", "hi80_bps")


def check_predictions(
    stages: Stages, bundle: ModelBundle, data: Dataset, bars: pl.DataFrame, *, replays: int
) -> list[Check]:
    """Predict at several moments from the bars of then alone, and compare with what knew all bars.

    Parameters
    ----------
    data
        The dataset of the same bars and bundle: how training and evaluation see them.
    """
    moments = _moments(data, bars, most=replays)
    alone = [(ts, stages.predict(bundle, bars.filter(pl.col("ts") <= ts), None, None)) for ts in moments]
    return [
        _network(bundle.network, data),
        _against_evaluation(bundle, data, alone),
        _against_batch(stages, bundle, bars, alone),
        _unmoved(stages, bundle, bars, alone),
    ]


def _moments(data: Dataset, bars: pl.DataFrame, *, most: int) -> list[datetime]:
    """Times of rows that can be predicted, different in kind; the newest bar among them."""
    rows = data.rows.filter(pl.Series(data.sequences.owned(data.rows.height)))
    times = rows.get_column("ts").unique()
    kinds = choose_cuts(
        rows.join(bars, on=["symbol", "ts"], how="semi")
        .join(bars.select("symbol", "ts", "calendar"), on=["symbol", "ts"], how="left", maintain_order="left")
        .select("symbol", "ts", "calendar"),
        most=most - 1,
    )
    return sorted({*(cut.ts for cut in kinds), times.max()})  # type: ignore[arg-type]


def _against_evaluation(bundle: ModelBundle, data: Dataset, alone: list[tuple[datetime, pl.DataFrame]]) -> Check:
    """The forward pass that training and evaluation take, over the whole dataset."""
    wanted = pl.Series([ts for ts, _ in alone])
    mask_N = data.rows.get_column("ts").is_in(wanted.implode()).to_numpy() & data.sequences.owned(data.rows.height)
    pred_N = forward_rows(bundle.network, data.x_NF, data.sequences.covering(mask_N))[mask_N].astype(np.float64)
    if bundle.dataset.steps == "within-session":
        pred_N = np.where(data.kind_N[mask_N] == 1, 0.0, pred_N)
    known = data.rows.filter(pl.Series(mask_N)).select(
        "symbol", pl.col("ts").alias("bar_ts"), _want=pl.Series(pred_N * data.vol_N[mask_N] * 1e4).fill_nan(None)
    )
    faults, rows = [], 0
    for ts, frame in alone:
        both = known.filter(pl.col("bar_ts") == ts).join(
            frame, on=["symbol", "bar_ts"], how="left", maintain_order="left"
        )
        rows += both.height
        missing = both.filter(pl.col("_want").is_not_null() & pl.col("expected_return_bps").is_null())
        faults += [f"no prediction of {symbol} at {ts:%Y-%m-%dT%H:%MZ}" for symbol in missing.get_column("symbol")]
        faults += _far(both.with_columns(_got="expected_return_bps"), ts, "expected_return_bps")
    if not rows:
        faults = ["no row could be compared"]
    return judge(
        "repeated bar by bar, a prediction is the one that evaluation grades",
        "prediction",
        faults=faults,
        detail=f"{rows} forecasts at {len(alone)} moments, within {ABSOLUTE_BPS:g} bps + {RELATIVE:g} of the value",
    )


def _against_batch(
    stages: Stages, bundle: ModelBundle, bars: pl.DataFrame, alone: list[tuple[datetime, pl.DataFrame]]
) -> Check:
    """All bars of an hour, predicted in one go from the whole history."""
    faults, rows = [], 0
    for ts, frame in alone[:: max(1, len(alone) // 4)]:
        whole = stages.predict(bundle, bars, None, (ts - timedelta(hours=1), ts + BAR))
        want = whole.filter(pl.col("bar_ts") == ts)
        got = frame.filter(pl.col("bar_ts") == ts)
        rows += want.height
        if want.get_column("symbol").to_list() != got.get_column("symbol").to_list():
            faults.append(f"other symbols at {ts:%Y-%m-%dT%H:%MZ}")
            continue
        for name in (*VALUES, "p_up"):
            both = want.select("symbol", "bar_ts", _want=name).with_columns(_got=got.get_column(name))
            faults += _far(both, ts, name)
    return judge(
        "repeated bar by bar, predictions are those of a span in one go",
        "prediction",
        faults=faults if rows else ["no row could be compared"],
        detail=f"{rows} predictions with interval and probability at a few of these moments",
    )


def _unmoved(
    stages: Stages, bundle: ModelBundle, bars: pl.DataFrame, alone: list[tuple[datetime, pl.DataFrame]]
) -> Check:
    """Asked as of a moment, with later bars at hand, changed ones, it answers as if there were none."""
    faults = []
    for ts, frame in alone:
        other = thinned(bars, bars.get_column("ts") > ts)
        asked = stages.predict(bundle, other, ts + BAR, None)
        columns = ["symbol", "bar_ts", *VALUES, "p_up"]
        if not asked.select(columns).equals(frame.select(columns)):
            faults.append(f"as of the close of {ts:%Y-%m-%dT%H:%MZ} another answer where later bars are at hand")
    return judge(
        "a prediction as of t does not change with bars after t",
        "prediction",
        faults=faults,
        detail=f"{len(alone)} moments, equal to the last bit",
    )


def _network(network: nn.Module, data: Dataset) -> Check:
    """Other inputs later in a sequence leave the outputs before as they were."""
    lengths = data.sequences.length_S
    pick = int(lengths.argmax())
    start, length = int(data.sequences.start_S[pick]), int(lengths[pick])
    x_1TF = torch.from_numpy(data.x_NF[start : start + length])[None]
    rng = torch.Generator().manual_seed(SEED)
    faults = []
    with torch.no_grad():
        y_TO = network(x_1TF)[0]
        if not y_TO[-1].isfinite().all():
            faults.append(f"no output at the last step of {length}")
        silent_TO = y_TO.isnan()  # a network for whole windows answers for the last step alone
        for step in sorted({1, length // 3, length // 2, length - 1} - {0, length}):
            other_1TF = x_1TF.clone()
            other_1TF[:, step:] = torch.randn(other_1TF[:, step:].shape, generator=rng)
            other_TO = network(other_1TF)[0]
            moved_TO = (other_TO - y_TO).abs().masked_fill(silent_TO & other_TO.isnan(), 0.0)
            worst = float(moved_TO[:step].max())
            if not worst <= 1e-6 * (1.0 + float(y_TO.nan_to_num().abs().max())):
                faults.append(f"outputs before step {step} of {length} move by {worst:.3g}")
    return judge(
        "the network reads a sequence forward only",
        "prediction",
        faults=faults,
        detail=f"a sequence of {length} steps, its later part changed",
    )


def _far(both: pl.DataFrame, ts: datetime, name: str) -> list[str]:
    """Rows whose `_got` is not their `_want`."""
    want_N, got_N = (both.get_column(side).cast(pl.Float64).to_numpy() for side in ("_want", "_got"))
    near_N = np.abs(got_N - want_N) <= ABSOLUTE_BPS + RELATIVE * np.abs(want_N)
    bad = np.flatnonzero(~near_N & ~(np.isnan(got_N) & np.isnan(want_N)))
    if not bad.size:
        return []
    row: Any = bad[0]
    symbol = both.get_column("symbol")[int(row)]
    return [f"{name} of {symbol} at {ts:%Y-%m-%dT%H:%MZ} is {got_N[row]:.6g}, elsewhere {want_N[row]:.6g}"]
