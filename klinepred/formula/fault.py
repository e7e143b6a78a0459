"""In: a construct of SQL that no formula may have. Out: `FormulaError`: what was expected, what came, what to write."""

from __future__ import annotations

from typing import Final

from klinepred.formula.names import nearest
from klinepred.formula.tree import FUNCTIONS, VALUES, WINDOWS


class FormulaError(ValueError):
    """Why a text is no formula; whoever knows the feature's name makes a message of it."""

    def __init__(self, *, expected: str, got: str, do: str) -> None:
        self.expected, self.got, self.do = expected, got, do
        super().__init__(got)


FRAME: Final = "ROWS BETWEEN n PRECEDING AND CURRENT ROW"
OVER: Final = f"OVER (ORDER BY ts {FRAME})"
PAST: Final = "bars up to the present one, and only so many of them"
_LAG: Final = "LAG(x, n) looks n bars back"
_WINDOW: Final = f"write {', '.join(WINDOWS[:-1])} or {WINDOWS[-1]} with {OVER}"

_WHOLE: Final = (PAST, "over all bars, later ones too", _WINDOW)
_FUTURE: Final = (PAST, "reads bars that are not known yet", _LAG)
_RANDOM: Final = ("the same answer for the same bars", "another number each time", "leave it out")
_CLOCK: Final = (
    "what was known at the close of the bar",
    "the time of the machine",
    "use the columns bar, session_bars",
)
_QUERY: Final = ("one expression over the bars of one symbol", "a query", "write the expression alone")
_LITERAL: Final = ("numbers", "no number", "compare and compute with numbers")

REASONS: Final[dict[str, tuple[str, str, str]]] = {
    "LEAD": _FUTURE,
    **dict.fromkeys(
        ("RANK", "DENSERANK", "ROWNUMBER", "NTILE", "PERCENTRANK", "CUMEDIST", "QUANTILE", "MEDIAN", "MODE"), _WHOLE
    ),
    **dict.fromkeys(
        ("FIRST", "LAST", "FIRSTVALUE", "LASTVALUE", "NTHVALUE", "ANYVALUE"),
        (PAST, "a row of the whole series", _LAG),
    ),
    **dict.fromkeys(("RAND", "RANDN", "RANDOM", "UUID", "RANDSTR", "UNIFORM", "NORMAL"), _RANDOM),
    **dict.fromkeys(
        (
            *("CURRENTTIMESTAMP", "CURRENTDATE", "CURRENTTIME", "CURRENTDATETIME", "CURRENTTIMESTAMPLTZ", "LOCALTIME"),
            *("LOCALTIMESTAMP", "NOW", "GETDATE", "TODAY", "SYSDATE", "UTCTIMESTAMP", "UTCDATE", "UTCTIME"),
        ),
        _CLOCK,
    ),
    **dict.fromkeys(
        ("SUBQUERY", "SELECT", "EXISTS", "UNION", "EXCEPT", "INTERSECT", "TABLE", "FROM", "WITH", "LATERAL", "UNNEST"),
        _QUERY,
    ),
    "CAST": (*_LITERAL[:1], "a change of type, while every column is a number already", "leave the CAST out"),
    "TRYCAST": (*_LITERAL[:1], "a change of type, while every column is a number already", "leave the CAST out"),
    "BITWISEXOR": ("+ - * / and functions", "^, which is no power in SQL", "write POWER(x, y)"),
    "IF": ("CASE WHEN", "IF", "write CASE WHEN … THEN … ELSE … END"),
    "IN": ("comparisons", "a list", "write x = 1 OR x = 2"),
    "LOG": ("LN(x), LOG10(x) or LOG(x, 2)", "LOG of unknown base: e here, 10 there", "write LN(x), or LOG10(x)"),
    "STDDEVPOP": ("STDDEV, of the sample (n - 1)", "the one of a population", "write STDDEV"),
    "MOD": ("+ - * / and functions", "a remainder", "use CASE WHEN, or the column bar"),
    "BRACKET": ("expressions over columns", "an element of a list", "use LAG(x, n) for older bars"),
    "STAR": ("expressions over columns", "all columns at once", f"name one: {', '.join(VALUES)}"),
}
"""By the name sqlglot gives to a construct: what a formula has instead, what it is, what to write."""


def refuse(name: str, *, got: str) -> FormulaError:
    """A construct that has no place in a formula; `name` in capitals, without underscores."""
    if name in REASONS:
        expected, why, do = REASONS[name]
        return FormulaError(expected=expected, got=f"{got}: {why}", do=do)
    return FormulaError(
        expected=f"+ - * /, comparisons, AND OR NOT, CASE WHEN, {', '.join(FUNCTIONS)},"
        f" LAG, and {', '.join(WINDOWS)} over bounded windows",
        got=got,
        do=f"did you mean {_KNOWN[near]}?" if (near := nearest(name, _KNOWN)) else "write it with these",
    )


_KNOWN: Final = {word.lower(): word for word in (*FUNCTIONS, *WINDOWS, "LAG", "CASE")}
