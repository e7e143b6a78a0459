"""In: prices, volumes as lists. Out: RSI, ATR, ADX, CCI, Aroon, MFI, MACD by Wilder's and TA-Lib's rules, in loops."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

Number = float | None
Floats = Sequence[float]


def rsi(c: Floats, n: int = 14) -> list[Number]:
    """Wilder: plain mean of the first n moves, then 1/n of each new one."""
    out: list[Number] = [None] * len(c)
    moves = [b - a for a, b in pairwise(c)]
    gain = fmean(max(move, 0.0) for move in moves[:n])
    loss = fmean(max(-move, 0.0) for move in moves[:n])
    for i in range(n, len(c)):
        if i > n:
            gain += (max(moves[i - 1], 0.0) - gain) / n
            loss += (max(-moves[i - 1], 0.0) - loss) / n
        out[i] = 100.0 * gain / (gain + loss) if gain + loss else None
    return out


def true_range(h: Floats, low: Floats, c: Floats, i: int) -> float:
    return max(h[i] - low[i], abs(h[i] - c[i - 1]), abs(low[i] - c[i - 1]))


def atr(h: Floats, low: Floats, c: Floats, n: int = 14) -> list[Number]:
    out: list[Number] = [None] * len(c)
    level = fmean(true_range(h, low, c, i) for i in range(1, n + 1))
    for i in range(n, len(c)):
        level += (true_range(h, low, c, i) - level) / n if i > n else 0.0
        out[i] = level
    return out


def adx(h: Floats, low: Floats, c: Floats, n: int = 14) -> list[Number]:
    """Wilder's sums of n - 1 moves first; DX of 0/0 keeps the one before; ADX: mean of n DX, then 1/n of each."""
    out: list[Number] = [None] * len(c)
    plus = minus = ranges = 0.0
    dx = [0.0]
    level = 0.0
    for i in range(1, len(c)):
        up, down = h[i] - h[i - 1], low[i - 1] - low[i]
        grow = 1.0 if i < n else 1.0 - 1.0 / n
        plus = plus * grow + (up if up > max(down, 0.0) else 0.0)
        minus = minus * grow + (down if down > max(up, 0.0) else 0.0)
        ranges = ranges * grow + true_range(h, low, c, i)
        if i < n:
            continue
        dx.append(100.0 * abs(plus - minus) / (plus + minus) if ranges and plus + minus else dx[-1])
        if i == 2 * n - 1:
            level = fmean(dx[1:])
        if i >= 2 * n - 1:
            level += (dx[-1] - level) / n if i > 2 * n - 1 else 0.0
            out[i] = level
    return out


def cci(h: Floats, low: Floats, c: Floats, n: int = 20) -> list[Number]:
    out: list[Number] = [None] * len(c)
    typical = [sum(bar) / 3.0 for bar in zip(h, low, c, strict=True)]
    for i in range(n - 1, len(c)):
        window = typical[i - n + 1 : i + 1]
        middle = fmean(window)
        off = fmean(abs(value - middle) for value in window)
        out[i] = (typical[i] - middle) / (0.015 * off) if max(window) > min(window) else None
    return out


def aroon_oscillator(h: Floats, low: Floats, n: int = 25) -> list[Number]:
    """Of equal extremes the newest counts."""
    out: list[Number] = [None] * len(h)
    for i in range(n, len(h)):
        span = range(i - n, i + 1)
        highest, lowest = max(span, key=lambda k: (h[k], k)), min(span, key=lambda k: (low[k], -k))
        out[i] = 100.0 * (highest - lowest) / n
    return out


def mfi(h: Floats, low: Floats, c: Floats, v: Floats, n: int = 14) -> list[Number]:
    out: list[Number] = [None] * len(c)
    typical = [sum(bar) / 3.0 for bar in zip(h, low, c, strict=True)]
    for i in range(n, len(c)):
        up = sum(typical[k] * v[k] for k in range(i - n + 1, i + 1) if typical[k] > typical[k - 1])
        down = sum(typical[k] * v[k] for k in range(i - n + 1, i + 1) if typical[k] < typical[k - 1])
        out[i] = 100.0 * up / (up + down) if up + down else None
    return out


def macd_histogram(c: Floats, fast: int = 12, slow: int = 26, signal: int = 9) -> list[Number]:
    """Both averages start on bar `slow` from plain means of the closes before; the signal from a mean of its first."""
    out: list[Number] = [None] * len(c)
    quick, steady = fmean(c[slow - fast : slow]), fmean(c[:slow])
    line = [quick - steady]
    for price in c[slow:]:
        quick += 2.0 / (fast + 1.0) * (price - quick)
        steady += 2.0 / (slow + 1.0) * (price - steady)
        line.append(quick - steady)
    level = fmean(line[:signal])
    for k in range(signal - 1, len(line)):
        level += 2.0 / (signal + 1.0) * (line[k] - level) if k >= signal else 0.0
        out[slow - 1 + k] = line[k] - level
    return out
