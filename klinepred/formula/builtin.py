"""In: names that a pipeline leaves out. Out: nothing, or which of them is no built-in feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klinepred.errors import ConfigError
from klinepred.formula.names import FAMILIES, nearest

# A pipeline is read before, and without, the registry of the features: a test keeps the two equal.
BUILT_IN: Final = tuple(
    f"{family}__{name}"
    for family, names in {
        "price": (
            "return_1 return_2 return_3 return_6 return_12 return_24 return_78 body upper_shadow "
            "lower_shadow close_location overnight_gap"
        ),
        "trend": (
            "ema_6_24 ema_12_48 macd_hist_12_26_9 rsi_14 stochastic_14 cci_20 adx_14 aroon_25 slope_t_24 "
            "high_78 low_78 efficiency_12"
        ),
        "volatility": (
            "realised_78 short_long_12_78 parkinson_12 garman_klass_39 rogers_satchell_78 atr_14 "
            "jump_share_78 of_volatility_78 skew_78"
        ),
        "volume": (
            "same_time_20 z_78 obv_slope_24 mfi_14 money_flow_20 vwap_distance illiquidity_12_78 price_correlation_24"
        ),
        "clock": "progress sine cosine opening_6 weekday",
        "cross": "market_1 relative_1 rank_12 beta_78",
    }.items()
    for name in names.split()
)
"""Names of the set f50, in order."""


def check_excluded(names: Sequence[str], *, where: str) -> None:
    """Make sure that each of `names` is a feature of the set, or a family of it.

    Raises
    ------
    ConfigError
        One is not; the message names the nearest that is.
    """
    for name in names:
        if name not in FAMILIES and name not in BUILT_IN:
            near = nearest(name, (*BUILT_IN, *FAMILIES))
            raise ConfigError(
                f"{where}: {name!r:.80}",
                expected=f"features of the set f50, or a family: {', '.join(FAMILIES)}",
                got=f"{name!r:.80}, which is neither",
                do=f"did you mean {near}?" if near else "see `klinepred features list`; leave others out where named",
            )
