"""In: which rows are neighbours. Out: the sequences the LSTM reads, cut in this one place, and their batches."""

# Shapes: N rows, S sequences, B sequences of a batch, T steps of the longest of them.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from klinepred.settings import DatasetSettings


@dataclass(frozen=True)
class Sequences:
    """Runs of consecutive rows, each read from a zero state: rows start .. start + length - 1.

    The first `lead` rows lead the state in: they carry no loss and no prediction. The others are the sequence's *own*;
    a row is owned by at most one sequence.

    Attributes
    ----------
    start_S, length_S, lead_S
        Int64.
    """

    start_S: np.ndarray
    length_S: np.ndarray
    lead_S: np.ndarray

    def __len__(self) -> int:
        return int(self.start_S.size)

    @property
    def steps(self) -> int:
        """LSTM steps of one pass over all sequences."""
        return int(self.length_S.sum())

    def covering(self, mask_N: np.ndarray) -> Sequences:
        """The sequences that own at least one row of the mask [N]."""
        before_N1 = np.zeros(mask_N.size + 1, dtype=_counter(mask_N.size))
        np.cumsum(mask_N, dtype=before_N1.dtype, out=before_N1[1:])
        hits_S = before_N1[self.start_S + self.length_S] - before_N1[self.start_S + self.lead_S]
        keep_S = hits_S > 0
        return Sequences(self.start_S[keep_S], self.length_S[keep_S], self.lead_S[keep_S])

    def every(self, n: int, *, first: int) -> Sequences:
        """Every n-th of them, from number `first` on."""
        return Sequences(self.start_S[first::n], self.length_S[first::n], self.lead_S[first::n])

    def owned(self, rows: int) -> np.ndarray:
        """Mask [N] of the rows that some sequence owns."""
        edge = np.zeros(rows + 1, dtype=np.int8)  # a row has at most one owner: no sum leaves 0 and 1
        np.add.at(edge, self.start_S + self.lead_S, 1)
        np.add.at(edge, self.start_S + self.length_S, -1)
        return np.cumsum(edge, dtype=np.int8)[:-1] > 0


@dataclass(frozen=True)
class Batch:
    """Row numbers [B, T] of some sequences; short ones repeat their last row, which `own_BT` leaves out."""

    rows_BT: np.ndarray
    own_BT: np.ndarray


def cut_sequences(
    symbol_N: np.ndarray, slot_N: np.ndarray, session_N: np.ndarray, settings: DatasetSettings
) -> Sequences:
    """Cut rows, sorted by symbol and time, into sequences that never bridge a gap or two symbols.

    `cut = "session"`: one sequence per symbol and session (several where bars are missing inside it), led in by up to
    `burn_in` rows that directly precede it. `cut = "window"`: one sequence of `window` rows per row that has so many
    rows behind it without a gap; it owns its last row only.

    Parameters
    ----------
    symbol_N, slot_N, session_N
        Integer codes of symbol and session, and the place on the calendar's grid (`klinepred.calendar.place`).
    """
    count = slot_N.size
    if count == 0:
        empty = np.zeros(0, dtype=np.int64)
        return Sequences(empty, empty, empty)
    row_N = np.arange(count, dtype=_counter(count))
    fresh_N = np.ones(count, dtype=bool)
    fresh_N[1:] = (symbol_N[1:] != symbol_N[:-1]) | (slot_N[1:] != slot_N[:-1] + 1)
    run_N = np.maximum.accumulate(np.where(fresh_N, row_N, 0))
    if settings.cut == "window":
        last_S = row_N[row_N - run_N >= settings.window - 1].astype(np.int64)
        length_S = np.full(last_S.size, settings.window, dtype=np.int64)
        return Sequences(last_S - settings.window + 1, length_S, length_S - 1)
    opens_N = fresh_N.copy()
    opens_N[1:] |= session_N[1:] != session_N[:-1]
    first_S = row_N[opens_N].astype(np.int64)
    end_S = np.append(first_S[1:], count)
    lead_S = np.minimum(settings.burn_in, first_S - run_N[first_S])
    return Sequences(first_S - lead_S, end_S - first_S + lead_S, lead_S)


def _counter(rows: int) -> type[np.signedinteger[Any]]:
    """What row numbers fit into: for any but the largest datasets half of the memory."""
    return np.int32 if rows < 2**31 - 1 else np.int64


def batches(sequences: Sequences, *, size: int, order: np.ndarray | None = None) -> Iterator[Batch]:
    """Batches of `size` sequences in the given order (default: as they are); the last one may be smaller."""
    order_S = np.arange(len(sequences)) if order is None else order
    for at in range(0, order_S.size, size):
        pick_B = order_S[at : at + size]
        start_B1 = sequences.start_S[pick_B, None]
        length_B1 = sequences.length_S[pick_B, None]
        step_1T = np.arange(int(length_B1.max()), dtype=np.int64)[None, :]
        rows_BT = start_B1 + np.minimum(step_1T, length_B1 - 1)
        own_BT = (step_1T >= sequences.lead_S[pick_B, None]) & (step_1T < length_B1)
        yield Batch(rows_BT, own_BT)
