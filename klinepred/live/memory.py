"""In: scaled rows of new bars. Out: what the network says of them, its state carried from bar to bar of each symbol."""

# Shapes: S symbols, N of them, K rows that are kept, F features, B sequences, T steps, L layers, H hidden units.

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from klinepred.live.trail import Ints
from klinepred.model.ensemble import AnyNetwork, members_of
from klinepred.model.lstm import State
from klinepred.settings import DatasetSettings

STEPS = 65_536
"""Most LSTM steps of a batch."""
NEVER = -2


class Memory:
    """Where each symbol's running sequence stands, as `klinepred.dataset.sequences.cut_sequences` cuts it.

    One new bar of a sequence is one step of the LSTM. The first one of a session is read after up to `burn_in` rows
    before it, from a zero state. Windows are read anew with each bar, and so is what a network with `flatten` reads.
    """

    def __init__(self, network: AnyNetwork, settings: DatasetSettings, *, symbols: int, features: int) -> None:
        self._network, self._members = network, members_of(network)
        self._settings = settings
        self._window = settings.window if settings.cut == "window" else 0
        self._keep = self._window or settings.burn_in
        self._rows_SKF = np.zeros((symbols, self._keep, features), dtype=np.float32)
        self._run_S = np.zeros(symbols, dtype=np.int64)
        self._slot_S = np.zeros(symbols, dtype=np.int64)
        self._session_S = np.zeros(symbols, dtype=np.int64)
        lstm = self._members[0].lstm
        shape = (lstm.num_layers, 0 if self._window else symbols, lstm.hidden_size)
        self._states = [(torch.zeros(shape), torch.zeros(shape)) for _ in self._members]
        self._ahead = [(torch.zeros(shape), torch.zeros(shape)) for _ in self._members]
        self._ready_S = np.full(symbols, NEVER, dtype=np.int64)

    def fill(self, codes: Ints, runs: list[np.ndarray], leads: Ints, slot_N: Ints, session_N: Ints) -> np.ndarray:
        """Begin with sequences that run already.

        Parameters
        ----------
        runs
            Of each of `codes`, the rows without a gap up to its newest bar: its running sequence, and at least
            as many before as are kept, if there are.
        leads
            How many of these rows lie before the running sequence.

        Returns
        -------
        numpy.ndarray
            [N] Float32, what the network says of the newest bars; NaN where no sequence ends there.
        """
        pred_N = np.full(codes.size, np.nan, dtype=np.float32)
        self._run_S[codes] = [len(rows) for rows in runs]
        self._slot_S[codes], self._session_S[codes] = slot_N, session_N
        for code, rows in zip(codes, runs, strict=True):
            kept = rows[-self._keep :] if self._keep else rows[:0]
            self._rows_SKF[code, self._keep - len(kept) :] = kept
        if self._window:
            return self._windows(codes)
        sequences = [rows[lead:] for rows, lead in zip(runs, leads, strict=True)]
        sizes = np.array([len(rows) for rows in sequences], dtype=np.int64)
        for size in np.unique(sizes[sizes > 0]):
            same = np.flatnonzero(sizes == size)
            pred_N[same] = self._read(codes[same], np.stack([sequences[spot] for spot in same]), fresh=True)
        return pred_N

    def step(self, codes: Ints, x_NF: np.ndarray, slot_N: Ints, session_N: Ints, usable_N: np.ndarray) -> np.ndarray:
        """One new bar of each of `codes`; [N] Float32, NaN where it is not usable or no sequence ends there."""
        linked_N = slot_N == self._slot_S[codes] + 1
        before_N = np.where(linked_N, self._run_S[codes], 0)
        opens_N = (before_N == 0) | (session_N != self._session_S[codes])
        ready_N = opens_N & (before_N > 0) & (self._ready_S[codes] == slot_N - 1)
        self._slot_S[codes], self._session_S[codes] = slot_N, session_N
        self._run_S[codes] = np.where(usable_N, before_N + 1, 0)
        if self._window:
            self._keep_rows(codes, x_NF)
            return self._windows(codes)
        pred_N = np.full(codes.size, np.nan, dtype=np.float32)
        if ready_N.any():  # what leads the session in was read already
            mine = torch.from_numpy(codes[ready_N])
            for now, then in zip(self._states, self._ahead, strict=True):
                now[0][:, mine], now[1][:, mine] = then[0][:, mine], then[1][:, mine]
            opens_N &= ~ready_N
        on = np.flatnonzero(usable_N & ~opens_N)
        if on.size:
            pred_N[on] = self._read(codes[on], x_NF[on, None], fresh=False)
        lead_N = np.minimum(self._settings.burn_in, before_N)
        for lead in np.unique(lead_N[usable_N & opens_N]):
            new = np.flatnonzero(usable_N & opens_N & (lead_N == lead))
            x_BTF = np.concatenate([self._rows_SKF[codes[new], self._keep - lead :], x_NF[new, None]], axis=1)
            pred_N[new] = self._read(codes[new], x_BTF, fresh=True)
        self._keep_rows(codes, x_NF)
        return pred_N

    def look_ahead(self, codes: Ints) -> None:
        """Read what leads the next session in, of symbols whose next bar begins one."""
        if self._window or not self._settings.burn_in:
            return
        lead_N = np.minimum(self._settings.burn_in, self._run_S[codes])
        for lead in np.unique(lead_N[lead_N > 0]):
            mine = codes[lead_N == lead]
            self._read(mine, self._rows_SKF[mine, self._keep - lead :], fresh=True, into=self._ahead)
            self._ready_S[mine] = self._slot_S[mine]

    def _keep_rows(self, codes: Ints, x_NF: np.ndarray) -> None:
        if self._keep:
            self._rows_SKF[codes, :-1] = self._rows_SKF[codes, 1:]
            self._rows_SKF[codes, -1] = x_NF

    @torch.no_grad()
    def _windows(self, codes: Ints) -> np.ndarray:
        """The network's word on the last window of each that has a whole one."""
        pred_N = np.full(codes.size, np.nan, dtype=np.float32)
        whole = np.flatnonzero(self._run_S[codes] >= self._window)
        for part in _parts(whole, self._window):
            out_BTO = self._network(torch.from_numpy(self._rows_SKF[codes[part]]))
            pred_N[part] = out_BTO[:, -1, 0].float().numpy()
        return pred_N

    @torch.no_grad()
    def _read(self, codes: Ints, x_BTF: np.ndarray, *, fresh: bool, into: list[State] | None = None) -> np.ndarray:
        """Read on, or from a zero state; [B] of the last step, whose state is kept (`into`: somewhere else)."""
        pred_B = np.empty(codes.size, dtype=np.float32)
        for part in _parts(np.arange(codes.size), x_BTF.shape[1]):
            mine = torch.from_numpy(codes[part])
            x = torch.from_numpy(np.ascontiguousarray(x_BTF[part]))
            outs = []
            for member, (hidden, cell) in zip(self._members, self._states if into is None else into, strict=True):
                state = None if fresh else (hidden[:, mine].contiguous(), cell[:, mine].contiguous())
                out_BTO, (hidden[:, mine], cell[:, mine]) = member.carry(x, state)
                outs.append(out_BTO[:, -1])
            out_BO = outs[0] if len(outs) == 1 else torch.stack(outs).mean(0)
            pred_B[part] = out_BO[:, 0].float().numpy()
        return pred_B


def _parts(spots: Ints, length: int) -> Iterator[Ints]:
    size = max(1, STEPS // length)
    for at in range(0, spots.size, size):
        yield spots[at : at + size]
