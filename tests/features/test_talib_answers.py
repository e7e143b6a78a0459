"""In: random bars, hand-made closes. Out: what comes from TA-Lib equals Wilder's rules worked out in loops."""

from __future__ import annotations

import math

import polars as pl
import pytest

from klinepred.calendar import place
from klinepred.features.build import F50
from tests.features import slow_talib
from tests.features.frames import differ, float64, market
from tests.features.slow import tape

FIRST = {feature.name: feature.first_value for feature in F50.features}
MARKETS = {
    "clean": market("A", days=8, seed=31, tick=1e-6),
    "gaps, flat bars, silence": market("A", days=9, seed=32, lost=0.04, still=0.15, silent=0.15, tick=1e-6),
    "cheap": market("A", days=8, seed=33, price=2e-7, tick=1e-14),
    "dear": market("A", "24/7", days=2, seed=34, price=6e5, tick=1e-4),
}


@pytest.mark.parametrize("kind", MARKETS)
def test_indicators_equal_their_rules_in_loops(kind: str) -> None:
    t = tape(place(MARKETS[kind]))
    atr = slow_talib.atr(t.h, t.l, t.c)
    histogram = slow_talib.macd_histogram(t.c)
    slow: dict[str, list[slow_talib.Number]] = {
        "trend__rsi_14": slow_talib.rsi(t.c),
        "trend__adx_14": slow_talib.adx(t.h, t.l, t.c),
        "trend__cci_20": slow_talib.cci(t.h, t.l, t.c),
        "trend__aroon_25": slow_talib.aroon_oscillator(t.h, t.l),
        "volume__mfi_14": slow_talib.mfi(t.h, t.l, t.c, t.v),
        "trend__macd_hist_12_26_9": [
            None if top is None or unit is None or s is None else top / unit
            for top, unit, s in zip(histogram, atr, t.s, strict=True)
        ],
        "volatility__atr_14": [
            None if unit is None or s is None else math.log(unit / (c * s))
            for unit, c, s in zip(atr, t.c, t.s, strict=True)
        ],
    }
    shown = {name: [*[None] * (FIRST[name] - 1), *values[FIRST[name] - 1 :]] for name, values in slow.items()}
    answers = pl.DataFrame(shown, schema=dict.fromkeys(shown, pl.Float64))
    assert all(column.count() > 0 for column in answers)
    assert differ(answers, float64(MARKETS[kind]), names=tuple(slow)) == {}


def test_rsi_of_closes_worked_out_by_hand() -> None:
    # seven rises of 0.4, seven falls of 0.3; then a rise of 1.0, a fall of 1.0
    closes = [50.0]
    for move in (*(0.4, -0.3) * 7, 1.0, -1.0):
        closes.append(closes[-1] + move)
    bars = market("A", days=1, seed=1).head(len(closes)).with_columns(close=pl.Series(closes))
    bars = bars.with_columns(open=pl.col("close"), high=pl.col("close") + 0.1, low=pl.col("close") - 0.1)
    values = float64(bars)["trend__rsi_14"].to_list()
    gain, loss = 2.8 / 14.0, 2.1 / 14.0
    assert values[:14] == [None] * 14
    assert values[14] == pytest.approx(100.0 * gain / (gain + loss))
    gain, loss = (13.0 * gain + 1.0) / 14.0, 13.0 * loss / 14.0
    assert values[15] == pytest.approx(100.0 * gain / (gain + loss))
    gain, loss = 13.0 * gain / 14.0, (13.0 * loss + 1.0) / 14.0
    assert values[16] == pytest.approx(100.0 * gain / (gain + loss))
