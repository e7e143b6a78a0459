"""In: a dataset, the features it was made from. Out: checks of scaler, inputs, sequences; copies of the target."""

# Shapes: N rows, F features, S sequences.

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from klinepred.audit.check import Check, judge
from klinepred.audit.ledger import Ledger
from klinepred.audit.splits import EPOCH
from klinepred.audit.targets import where
from klinepred.dataset.make import Dataset
from klinepred.features.build import FeatureFrame

COPY: Final = 0.9
"""Rank correlation with the target above which a feature is taken for a copy of it; honest ones stay below 0.2."""
ENOUGH: Final = 100
SAMPLE: Final = 20_000


def check_inputs(data: Dataset, table: FeatureFrame, truth: Ledger) -> list[Check]:
    """The scaler is of train rows alone, each input is the feature of its very row, what is masked stays so."""
    rows = data.rows.select("symbol", "ts").join(
        table.frame, on=["symbol", "ts"], how="left", maintain_order="left", validate="m:1"
    )
    return [_scaler(data, rows, truth), _aligned(data, rows)]


def _scaler(data: Dataset, rows: pl.DataFrame, truth: Ledger) -> Check:
    start = data.split.train_start
    early_N = truth.session_N < (-1 if start is None else (start - EPOCH).days)
    train = rows.filter(pl.Series((truth.session_N <= (data.split.train_end - EPOCH).days) & ~early_N))
    faults = []
    for index, name in enumerate(data.scaler.names):
        value = train.get_column(name).drop_nulls().cast(pl.Float64).to_numpy()
        centre = float(value.mean()) if value.size else 0.0
        spread = float(value.std()) if value.size else 0.0
        scale = spread if spread > max(1e-9 * abs(centre), 1e-30) else 1.0
        got = (float(data.scaler.centre_F[index]), float(data.scaler.scale_F[index]))
        if abs(got[0] - centre) > 1e-9 * (abs(centre) + scale) or abs(got[1] - scale) > 1e-9 * scale:
            faults.append(f"{name}: centre {got[0]:.9g}, scale {got[1]:.9g}; of train rows {centre:.9g}, {scale:.9g}")
    return judge(
        "centre and scale are those of the train rows alone",
        "scaler",
        faults=faults,
        detail=f"{len(data.scaler.names)} features over {train.height:,} rows to {data.split.train_end}",
    )


def _aligned(data: Dataset, rows: pl.DataFrame) -> Check:
    faults, masked = [], 0
    for index, name in enumerate(data.scaler.names):
        column = rows.get_column(name).cast(pl.Float64)
        gone_N = column.is_null().to_numpy()
        masked += int(gone_N.sum())
        want_N = (column.fill_null(0.0).to_numpy() - data.scaler.centre_F[index]) / data.scaler.scale_F[index]
        want_N = np.where(gone_N, 0.0, np.clip(want_N, -data.scaler.clip, data.scaler.clip))
        off_N = ~(np.abs(data.x_NF[:, index] - want_N) <= 1e-5 * (1.0 + np.abs(want_N)))
        faults += where(data, off_N & gone_N, f"{name} is masked, yet filled in the input")
        faults += where(data, off_N & ~gone_N, f"{name} is not that of its row in the input")
    return judge(
        "every input is the feature of its own row, masked values stay masked",
        "inputs",
        faults=faults,
        detail=f"{data.x_NF.shape[0]:,} rows x {data.x_NF.shape[1]} features, {masked:,} masked",
    )


def check_sequences(data: Dataset, truth: Ledger) -> list[Check]:
    """No sequence bridges two symbols or a gap; each row is owned once, by a sequence that ends with its session."""
    cut, settings = data.sequences, data.settings
    rows = data.rows.height
    last_S = cut.start_S + cut.length_S - 1
    inside_S = (cut.start_S >= 0) & (last_S < rows) & (cut.lead_S >= 0) & (cut.lead_S < cut.length_S)
    if not inside_S.all():
        return [judge("sequences lie within the rows", "sequence", faults=["one reaches beyond them"], detail="")]
    symbol_N = data.rows.get_column("symbol")
    other_N = symbol_N.ne(symbol_N.shift(1)).fill_null(True).to_numpy()
    jump_N = np.diff(truth.place_N, prepend=truth.place_N[:1] - 1) != 1
    own = cut.start_S + cut.lead_S
    faults = [
        *_bridges(data, other_N, "two symbols in one sequence"),
        *_bridges(data, jump_N & ~other_N, "a sequence over a missing bar, or out of time order"),
    ]
    owners = np.zeros(rows + 1, dtype=np.int64)
    np.add.at(owners, own, 1)
    np.add.at(owners, last_S + 1, -1)
    twice = where(data, np.cumsum(owners)[:-1] > 1, "a row that two sequences predict")
    if settings.cut == "window":
        shape_S = (own == last_S) & (cut.length_S == settings.window)
        claim = f"a window holds {settings.window} rows, and its label's row is the last"
    else:
        shape_S = (truth.session_N[own] == truth.session_N[last_S]) & (cut.lead_S <= settings.burn_in)
        claim = f"a sequence predicts rows of one session, led in by at most {settings.burn_in}"
    bad_N = np.zeros(rows, dtype=np.bool_)
    bad_N[own[~shape_S]] = True
    detail = f"{len(cut):,} sequences, {cut.steps:,} steps"
    return [
        judge("no sequence bridges two symbols or a gap", "sequence", faults=faults, detail=detail),
        judge("a row is predicted by one sequence", "sequence", faults=twice, detail=detail),
        judge(claim, "sequence", faults=where(data, bad_N, "another shape"), detail=detail),
    ]


def _bridges(data: Dataset, border_N: npt.NDArray[np.bool_], what: str) -> list[str]:
    """Sequences with a border between two of their rows."""
    cut = data.sequences
    before_N1 = np.concatenate([[0], np.cumsum(border_N)])
    hit_S = before_N1[cut.start_S + cut.length_S] > before_N1[cut.start_S + 1]
    bad_N = np.zeros(border_N.size, dtype=np.bool_)
    bad_N[cut.start_S[hit_S]] = True
    return where(data, bad_N, what)


def find_copies(data: Dataset, table: FeatureFrame) -> dict[str, str]:
    """Features whose values rank as a target does, each in words; |rank correlation| above `COPY`.

    Targets are what the network learns, the raw one, its return, and the return to the next row.
    """
    values = {"learned": data.y_N, "raw": data.raw_N, "return": data.return_N}
    log_close = pl.col("close").log()
    rows = data.rows.select(
        "symbol",
        "ts",
        *(pl.Series(name, value_N).cast(pl.Float64).fill_nan(None) for name, value_N in values.items()),
        (log_close.shift(-1).over("symbol") - log_close).alias("next bar's return"),
    )
    targets = rows.columns[2:]
    rows = rows.filter(pl.col("return").is_not_null())
    if rows.height > SAMPLE:
        rows = rows.gather_every(-(-rows.height // SAMPLE))
    joined = rows.join(table.frame, on=["symbol", "ts"], how="left", maintain_order="left")
    found = {}
    for name in table.features.names:
        for target in targets:
            both = joined.select(one=name, two=target).drop_nulls()
            close = both.select(pl.corr(pl.col("one").rank(), pl.col("two").rank())).item()
            if both.height >= ENOUGH and close is not None and abs(close) > COPY:
                found[name] = f"ranks as the {target} does: correlation {close:.4f} on {both.height:,} rows"
                break
    return found
