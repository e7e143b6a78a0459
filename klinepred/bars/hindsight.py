"""In: the spans of a universe. Out: what they tell of hindsight in its choice: survivors only, symbols chosen later."""

from __future__ import annotations

import math
from typing import Final

import polars as pl

from klinepred.bars.spans import late_starters, mark_ended, years

ENDS_A_YEAR: Final = -math.log(0.61) / 10.0
"""Share of symbols that end in a year, 0.049: of the firms on the New York and American exchanges 61 % were still
listed ten years later (Baker and Kennedy, Survivorship and the Economic Grim Reaper, Journal of Business Finance &
Accounting 29, 2002; years 1963 to 1995). Coins end more often than that."""
LEVEL: Final = 0.05
"""Fewer ends than so improbable by that rate are no chance. None at all is so from 61 symbol-years on."""
NAMED: Final = 8
SURVIVORS: Final = "symbols chosen with today's knowledge (survivors) flatter every forecast of their past"
"""What is true of any list of real symbols as long as its spans do not tell more."""


def judge_universe(spans: pl.DataFrame) -> tuple[str, ...]:
    """Sentences on hindsight in the choice of a universe of real symbols; none where its spans show none.

    Too few symbols that ended (by the chance of a Poisson law at the rate `ENDS_A_YEAR`) tell of a list of survivors.
    Symbols that begin over a week of sessions after the others were chosen with knowledge from after the train part
    began, be it only that they would be listed.

    Parameters
    ----------
    spans
        symbol, calendar (text of a Clock), first_session, last_session.
    """
    known = spans.drop_nulls(["first_session", "last_session"])
    return tuple(line for line in (_survivors(known), _late(known)) if line)


def caution(spans: pl.DataFrame) -> tuple[str, ...]:
    """`judge_universe`, and `SURVIVORS` where the spans are too few or too short to tell whether any are missing."""
    known = spans.drop_nulls(["first_session", "last_session"])
    lines = judge_universe(known)
    telling = years(known) * ENDS_A_YEAR >= -math.log(LEVEL)
    return lines if telling or known.is_empty() else (SURVIVORS, *lines)


def _survivors(spans: pl.DataFrame) -> str:
    gone, lived = mark_ended(spans)["ended"].count(), years(spans)
    expected = lived * ENDS_A_YEAR
    if _at_most(gone, expected) > LEVEL:
        return ""
    have = "all" if gone == 0 else f"all but {gone}"
    return (
        f"{have} of the {spans.height} symbols trade to the end of their {lived:,.0f} symbol-years, in which about "
        f"{expected:.0f} usually end: these are survivors, chosen with hindsight, which flatters every forecast of "
        "their past; take in those that were delisted as well, or choose by what was known before"
    )


def _late(spans: pl.DataFrame) -> str:
    late = late_starters(spans)
    if late.is_empty():
        return ""
    named = [f"{symbol} {day}" for symbol, day in late.select("symbol", "first_session").head(NAMED).iter_rows()]
    rest = f" and {late.height - NAMED} more" if late.height > NAMED else ""
    return (
        f"{late.height} of the {spans.height} symbols came after the history began ({late['begin'][0]}): "
        f"{', '.join(named)}{rest}; chosen later, with knowledge of what became of them, they flatter as well"
    )


def _at_most(count: int, expected: float) -> float:
    """Chance of at most `count` ends where `expected` are, by a Poisson law."""
    if expected <= 0.0:
        return 1.0
    terms = (math.exp(number * math.log(expected) - expected - math.lgamma(number + 1)) for number in range(count + 1))
    return math.fsum(terms)
