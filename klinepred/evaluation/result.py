"""In: scores, intervals, profits. Out: `Evaluation`, the value that carries a verdict with everything it rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from klinepred.evaluation.intervals import IntervalScore
from klinepred.evaluation.money import Money
from klinepred.evaluation.rules import Verdict
from klinepred.evaluation.scores import Score
from klinepred.evaluation.significance import Estimate, level_of
from klinepred.settings import EvaluateSettings

SYMBOLS: Final = 500
"""Symbols with metrics of their own in tracking, at most; the report has all."""
COLUMNS: Final[dict[str, pl.DataType]] = {
    "rows": pl.Int64(),
    **dict.fromkeys(
        ("mse", "r2", "ic", "ic_se", "rank_ic", "cs_ic", "cs_rank_ic", "cs_rank_ic_se", "hit_rate", "hit_base"),
        pl.Float64(),
    ),
}


@dataclass(frozen=True)
class Graded:
    """One forecast and how it did.

    Attributes
    ----------
    head
        All test steps against the learned target; None when the test part is empty.
    scores
        Every selection, `head` first.
    lead
        IC of the model minus IC of this baseline, paired; undefined for the model itself.
    settings
        What was chosen on validation.
    """

    name: str
    head: Score | None
    scores: tuple[Score, ...]
    lead: Estimate
    settings: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """`head` flat, then scores, settings and the model's lead; NaN becomes None."""
        return {
            "name": self.name,
            **(self.head.to_dict() if self.head else {}),
            "model_leads_by": self.lead.value,
            "model_leads_by_se": self.lead.se,
            "settings": dict(self.settings),
            "scores": [score.to_dict() for score in self.scores],
        }


@dataclass(frozen=True)
class Evaluation:
    """The verdict and what it rests on; the rules are in docs/verdict.md.

    Attributes
    ----------
    verdict, sentence
        One word and one plain sentence.
    model, baselines
        Scores; baselines by name.
    ic
        The IC the verdict rests on, with the smallest detectable one.
    intervals
        The 80 % interval and P(up) by kind of step.
    money
        Entered at the close, at the next open where opens are known, one bar late.
    sessions, symbols, months, times
        Breakdowns (`klinepred.evaluation.breakdown`).
    looks
        Models tried on the same test sessions, this one included.
    permutation_p
        See `klinepred.evaluation.permutation`; NaN with fewer than five sessions.
    warnings
        What to mind when reading the numbers.
    abstained
        Test rows too far from those of training for `predict` to give a forecast; the scores include them.
    """

    verdict: Verdict
    sentence: str
    model: Graded
    baselines: Mapping[str, Graded]
    ic: Estimate
    target: str
    horizon: int
    rows: int
    span: tuple[str, str] | None
    intervals: tuple[IntervalScore, ...]
    money: tuple[Money, ...]
    sessions: pl.DataFrame
    symbols: pl.DataFrame
    months: pl.DataFrame
    times: pl.DataFrame
    looks: int
    permutation_p: float
    warnings: tuple[str, ...]
    settings: EvaluateSettings
    model_name: str = ""
    abstained: int = 0

    @property
    def tradable(self) -> Money:
        """Entered as early as can be had: at the next open; one bar late where opens are not known."""
        return self.money[1]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not defined is None."""
        table = {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "model": {**self.model.to_dict(), "bundle": self.model_name},
            "baselines": {name: graded.to_dict() for name, graded in self.baselines.items()},
            "target": self.target,
            "horizon": self.horizon,
            "test": {
                "rows": self.rows,
                "abstained": self.abstained,
                "sessions": self.ic.sessions,
                "first_session": self.span[0] if self.span else None,
                "last_session": self.span[1] if self.span else None,
            },
            "ic": {
                "value": self.ic.value,
                "se": self.ic.se,
                "p": self.ic.p_above(),
                "smallest_detectable": self.ic.detectable_after(self.looks),
                "looks": self.looks,
                "level": level_of(self.looks),
                "p_permutation": self.permutation_p,
            },
            "intervals": [score.to_dict() for score in self.intervals],
            "money": [way.to_dict() for way in self.money],
            "by_session": self.sessions.to_dicts(),
            "by_symbol": self.symbols.to_dicts(),
            "by_month": self.months.to_dicts(),
            "by_time": self.times.to_dicts(),
            "warnings": list(self.warnings),
            "settings": self.settings.model_dump(mode="json"),
        }
        out: dict[str, Any] = plain(table)
        return out

    def metrics(self) -> dict[str, float]:
        """The finite headline numbers as `test_…`, and IC and hit rate of each symbol, for tracking."""
        table: dict[str, float] = {"test_rows": float(self.rows), "test_sessions": float(self.ic.sessions)}
        table["test_abstained"] = float(self.abstained)
        for graded in (self.model, *self.baselines.values()):
            prefix = "test" if graded is self.model else f"test_{graded.name.replace(' ', '_')}"
            for name in ("mse", "r2", "ic", "ic_se", "ic_hac", "rank_ic", "cs_ic", "cs_rank_ic", "hit_rate"):
                if graded.head is not None:
                    table[f"{prefix}_{name}"] = float(getattr(graded.head, name))
        table["test_ic_p"], table["test_ic_detectable"] = self.ic.p_above(), self.ic.detectable_after(self.looks)
        table["test_ic_p_permutation"], table["test_looks"] = self.permutation_p, float(self.looks)
        for score in self.intervals[:1]:
            table["test_coverage80"], table["test_crps"] = score.coverage, score.crps
            table["test_crps_without_forecast"] = score.crps_base
        ways = ((self.tradable, "test"), (self.money[0], "test_at_close"), (self.money[-1], "test_late"))
        for way, prefix in ways:
            for name in ("gross_bps", "net_bps", "break_even_bps", "turnover", "sharpe", "deflated_sharpe"):
                table[f"{prefix}_{name}"] = float(getattr(way, name))
        for row in self.symbols.head(SYMBOLS).iter_rows(named=True):
            for name in ("ic", "hit_rate"):
                if row[name] is not None:
                    table[f"test_{name}/{row['symbol']}"] = float(row[name])
        return {name: value for name, value in table.items() if math.isfinite(value)}

    def table(self, *, target: str | None = None) -> pl.DataFrame:
        """Model and baselines side by side, one row each: all test steps against one return, default: the learned."""
        wanted = (target or self.target, "all")
        rows = [
            {"forecast": graded.name, **{name: getattr(score, name) for name in COLUMNS}}
            for graded in (self.model, *self.baselines.values())
            for score in graded.scores
            if (score.target, score.steps) == wanted
        ]
        schema = {"forecast": pl.String(), **COLUMNS}
        return pl.DataFrame(rows, schema=schema).with_columns(pl.selectors.float().fill_nan(None))


def plain(value: Any) -> Any:
    """NaN and infinities become None, numpy scalars and tuples plain values."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
