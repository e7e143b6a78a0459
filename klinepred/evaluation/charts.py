"""In: an `Evaluation`, the losses of its training. Out: plotly figures as plain dictionaries, for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from klinepred.evaluation.importance import Importance
from klinepred.evaluation.money import LATE
from klinepred.evaluation.result import Evaluation

Series = Sequence[tuple[int, float]]

BLUE, ORANGE, GREY, GREEN = "#2463a8", "#c8671b", "#8a929c", "#2f7d4f"
SHOWN: Final = 25
"""Features drawn, the weightiest first."""
WINDOW: Final = 10
"""Sessions of the moving mean of the IC."""


def charts(
    evaluation: Evaluation, history: Mapping[str, Series] | None = None, weights: Sequence[Importance] = ()
) -> dict[str, dict[str, Any]]:
    """Figures by name, each with title, data and layout; those without data are left out.

    Parameters
    ----------
    history
        By metric name, pairs of epoch and value; `train_loss` and `val_loss` are drawn.
    weights
        Importance of the features.
    """
    history = history or {}
    table: dict[str, dict[str, Any]] = {}
    if evaluation.rows:
        table["ic"] = _ic(evaluation)
        table["profit"] = _profit(evaluation)
    if evaluation.intervals:
        table["reliability"] = _reliability(evaluation)
    if history.get("val_loss"):
        table["loss"] = _loss(history)
    if weights:
        table["importance"] = _importance(weights)
    return table


def _ic(evaluation: Evaluation) -> dict[str, Any]:
    days = evaluation.sessions["session"].to_list()
    daily = evaluation.sessions["ic"]
    mean = daily.rolling_mean(WINDOW, min_samples=min(WINDOW, 3))
    return _figure(
        f"IC by session, against the {evaluation.target} return",
        [
            {"type": "bar", "name": "session", "x": days, "y": daily.to_list(), "marker": {"color": "#b9cce3"}},
            _line(f"mean of {WINDOW} sessions", days, mean.to_list(), BLUE),
        ],
        y="IC",
    )


def _profit(evaluation: Evaluation) -> dict[str, Any]:
    frame = evaluation.sessions
    days = frame["session"].to_list()
    cost = f"{evaluation.settings.cost_bps:g} bps a side"
    early = evaluation.tradable.entry
    lines = [("gross_bps", f"{early}, before cost", BLUE, "solid"), ("net_bps", f"{early}, after {cost}", BLUE, "dot")]
    if early != LATE:
        lines.append(("late_gross_bps", f"{LATE}, before cost", ORANGE, "solid"))
        lines.append(("late_net_bps", f"{LATE}, after {cost}", ORANGE, "dot"))
    traces = [_line(title, days, _sum(frame[name]), colour, dash) for name, title, colour, dash in lines]
    return _figure("Cumulated profit, within-session steps", traces, y="basis points of capital")


def _reliability(evaluation: Evaluation) -> dict[str, Any]:
    points = evaluation.intervals[0].reliability
    said, came = [point[0] for point in points], [point[1] for point in points]
    low, high = min([*said, *came]), max([*said, *came])
    return _figure(
        "P(up): said and come true, tenths of the rows",
        [
            _line("as said", [low, high], [low, high], GREY, "dot"),
            {**_line("come true", said, came, GREEN), "mode": "lines+markers"},
        ],
        x="said",
        y="share that rose",
    )


def _loss(history: Mapping[str, Series]) -> dict[str, Any]:
    names = (("train_loss", "train", BLUE), ("val_loss", "validation", ORANGE))
    traces = []
    for name, title, colour in names:
        pairs = sorted(history.get(name, ()))
        if pairs:
            line = _line(title, [step for step, _ in pairs], [_finite(value) for _, value in pairs], colour)
            traces.append({**line, "mode": "lines+markers"})
    figure = _figure("Loss by epoch", traces, x="epoch", y="loss")
    figure["layout"]["xaxis"]["dtick"] = max(1, len(history["val_loss"]) // 10)
    return figure


def _importance(weights: Sequence[Importance]) -> dict[str, Any]:
    shown = list(weights[:SHOWN])[::-1]
    bars = {
        "type": "bar",
        "orientation": "h",
        "name": "rise of the error",
        "y": [one.feature for one in shown],
        "x": [_finite(100.0 * one.error_rise) for one in shown],
        "marker": {"color": BLUE},
    }
    title = f"Features by importance, {len(shown)} of {len(weights)}: shuffled on validation rows"
    figure = _figure(title, [bars], x="rise of the mean squared error, %", y="")
    figure["layout"]["height"] = 120 + 20 * len(shown)
    return figure


def _line(name: str, x: Sequence[Any], y: Sequence[Any], colour: str, dash: str = "solid") -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": {"color": colour, "dash": dash, "width": 2},
    }


def _figure(title: str, traces: list[dict[str, Any]], *, y: str, x: str = "") -> dict[str, Any]:
    axis = {"gridcolor": "#e6e9ed", "zerolinecolor": "#9aa3ad", "automargin": True}
    return {
        "title": title,
        "data": traces,
        "layout": {
            "xaxis": {**axis, "title": {"text": x}},
            "yaxis": {**axis, "title": {"text": y}},
            "legend": {"orientation": "h", "y": -0.22},
            "margin": {"l": 48, "r": 12, "t": 16, "b": 40},
            "height": 360,
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": "system-ui, sans-serif", "color": "#20262d"},
        },
    }


def _sum(column: pl.Series) -> list[float]:
    total: list[float] = column.cum_sum().to_list()
    return total


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
