"""In: rows as they come. Out: the carried state gives what the network says of the whole sequences at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from klinepred.dataset.sequences import cut_sequences
from klinepred.live.memory import Memory
from klinepred.model.ensemble import unite
from klinepred.model.forward import forward_rows
from klinepred.model.lstm import Network
from klinepred.settings import DatasetSettings, ModelSettings

FEATURES = 3
SYMBOLS = 4


def network(seed: int = 0, **settings: object) -> Network:
    torch.manual_seed(seed)
    plain = {"preset": "none", "hidden": 6, "layers": 2, "head": 4, "dropout": 0.0, **settings}
    return Network(ModelSettings.model_validate(plain), inputs=FEATURES).eval()


def history(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Symbol, slot, session and features of some symbols' bars: sessions of 8 bars, one in ten bars missing."""
    rng = np.random.default_rng(seed)
    parts = []
    for symbol in range(SYMBOLS):
        slots = np.flatnonzero(rng.random(60) > 0.1)
        parts.append(np.stack([np.full(slots.size, symbol), slots, slots // 8]))
    symbol_N, slot_N, session_N = np.concatenate(parts, axis=1)
    return symbol_N, slot_N, session_N, rng.normal(size=(symbol_N.size, FEATURES)).astype(np.float32)


@pytest.mark.parametrize(
    ("dataset", "model"),
    [
        ({"burn_in": 0}, {}),
        ({"burn_in": 5}, {}),
        ({"burn_in": 20}, {"skip": True, "layer_norm": True}),
        ({"burn_in": 5}, {"quantiles": [0.1, 0.5, 0.9]}),
        ({"cut": "window", "window": 7}, {}),
        ({"cut": "window", "window": 7}, {"flatten": 7}),
        ({"burn_in": 3, "members": 2}, {}),
    ],
)
@pytest.mark.parametrize("begin", [0, 29, 40])
@pytest.mark.parametrize("rests", [False, True])
def test_steps_equal_whole_sequences(
    dataset: dict[str, object], model: dict[str, object], begin: int, rests: bool
) -> None:
    members = int(str(dataset.get("members", 1)))
    settings = DatasetSettings.model_validate({name: value for name, value in dataset.items() if name != "members"})
    net = unite([network(seed, **model) for seed in range(members)])
    symbol_N, slot_N, session_N, x_NF = history(seed=begin)
    whole_N = forward_rows(net, x_NF, cut_sequences(symbol_N, slot_N, session_N, settings))
    memory = Memory(net, settings, symbols=SYMBOLS, features=FEATURES)
    seen_N = slot_N < begin
    if begin:  # begin amid: with what runs then
        codes, runs, leads, last = [], [], [], []
        for symbol in range(SYMBOLS):
            rows = np.flatnonzero((symbol_N == symbol) & seen_N)
            broken = np.flatnonzero(np.diff(slot_N[rows]) != 1)
            run = rows[broken[-1] + 1 :] if broken.size else rows
            fresh = int(np.argmax(session_N[run] == session_N[run[-1]]))
            codes.append(symbol)
            runs.append(x_NF[run])
            leads.append(max(0, fresh - settings.burn_in) if settings.cut == "session" else 0)
            last.append(run[-1])
        first_N = memory.fill(np.array(codes), runs, np.array(leads), slot_N[last], session_N[last])
        assert first_N == pytest.approx(whole_N[last], abs=1e-6, nan_ok=True)
    for slot in range(begin, 60):
        now = np.flatnonzero(slot_N == slot)
        if now.size:
            usable = np.ones(now.size, dtype=bool)
            pred_N = memory.step(symbol_N[now], x_NF[now], slot_N[now], session_N[now], usable)
            assert pred_N == pytest.approx(whole_N[now], abs=1e-6, nan_ok=True)
        if rests and slot % 8 == 7:
            memory.look_ahead(np.arange(SYMBOLS))
