"""In: an information coefficient. Out: test parts made by hand: a panel of bars that has it."""

from __future__ import annotations

import numpy as np

from klinepred.evaluation.sample import Sample

DAY_US, BAR_US = 86_400_000_000, 300_000_000


def panel(
    seed: int,
    *,
    ic: float = 0.0,
    sessions: int = 20,
    bars: int = 13,
    symbols: int = 8,
    relative: bool = True,
    forecast: np.ndarray | None = None,
    vol_bps: float = 10.0,
) -> Sample:
    """A panel whose best forecast has the correlation `ic` with the outcome, fat tails, a common factor, slow signals.

    The last bar of each session is a step across a break.
    """
    generator = np.random.default_rng(seed)
    shape = (symbols, sessions, bars)
    common = generator.standard_t(5, (1, sessions, bars)) * np.sqrt(3 / 5)
    own = generator.standard_t(5, shape) * np.sqrt(3 / 5)
    noise = 0.6 * common + 0.8 * own
    if relative:
        noise = noise - noise.mean(axis=0)
    noise = noise / noise.std()
    signal = _persistent(generator, shape)
    signal = (signal - signal.mean(axis=0) if relative else signal) / 1.0
    signal = signal / signal.std()
    y = ic * signal + np.sqrt(1.0 - ic**2) * noise
    raw = y + (0.5 * common if relative else 0.0)
    symbol, session, bar = (code.ravel() for code in np.indices(shape))
    ts = session * DAY_US + bar * BAR_US
    kind = (bar == bars - 1).astype(np.int8)
    return Sample(
        pred_M=signal.ravel() * max(ic, 0.02) if forecast is None else forecast,
        y_M=y.ravel(),
        raw_M=raw.ravel(),
        return_M=raw.ravel() * vol_bps * 1e-4,
        kind_M=kind,
        session_M=session,
        bar_M=np.unique(ts * 2 + kind, return_inverse=True)[1],
        symbol_M=symbol,
        month_M=session // 21,
        ts_M=ts,
        sessions=tuple(f"2026-{1 + day // 28:02d}-{1 + day % 28:02d}" for day in range(sessions)),
        symbols=tuple(f"S{number:02d}" for number in range(symbols)),
        months=tuple(f"2026-{1 + month:02d}" for month in range(1 + (sessions - 1) // 21)),
        relative=relative,
        horizon=1,
    )


def _persistent(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A forecast that moves slowly within a session, as a real one does, with a constant per symbol."""
    steps = generator.standard_normal(shape)
    out = np.empty(shape)
    out[..., 0] = steps[..., 0]
    for bar in range(1, shape[-1]):
        out[..., bar] = 0.9 * out[..., bar - 1] + np.sqrt(1 - 0.81) * steps[..., bar]
    return out + 0.2 * generator.standard_normal((shape[0], 1, 1))
