"""In: an `Evaluation`, the record of its training. Out: plotly figures as plain dictionaries, for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from klinepred.evaluation.money import LATE
from klinepred.evaluation.result import Evaluation

Series = Sequence[tuple[int, float]]

BLUE, PALE, ORANGE, GREY, GREEN = "#3b82c4", "#9fbfe0", "#d9772b", "#8a929c", "#3f9a66"
"""They can be seen on white and on near black; ink, grid and axes take the page's colours in the browser."""
POINTS: Final = 2000
"""Points of a line at most; of more every second, third … is drawn."""
WINDOW: Final = 10
"""Sessions of the moving mean of the IC."""


def charts(evaluation: Evaluation, history: Mapping[str, Series] | None = None) -> dict[str, dict[str, Any]]:
    """Figures by name, each with title, data and layout; those without data are left out.

    Parameters
    ----------
    history
        As in `klinepred.evaluation.background.Background`.
    """
    history = history or {}
    table: dict[str, dict[str, Any]] = {}
    if history.get("val_loss"):
        table["loss"] = _by_epoch(
            history, ("train_loss", "val_loss"), ("train", "validation"), title="Loss by epoch", y="loss"
        )
    if history.get("val_ic"):
        names = ("val_ic", "val_rank_ic")
        table["skill"] = _by_epoch(history, names, ("IC", "rank IC"), title="IC on validation by epoch", y="IC")
    if history.get("gradient/norm"):
        table["norms"] = _norms(history)
    if _moved(history):
        table["scale"] = _scale(history)
    if evaluation.intervals:
        table["reliability"] = _reliability(evaluation)
    if evaluation.rows:
        table["ic"] = _ic(evaluation)
        table["profit"] = _profit(evaluation)
    return table


def _moved(history: Mapping[str, Series]) -> bool:
    """Whether there was a loss scale to speak of, or a step was skipped."""
    scales = {value for _, value in history.get("amp/loss_scale", ())}
    return scales not in (set(), {1.0}) or any(value > 0.0 for _, value in history.get("amp/skipped_steps", ()))


def _ic(evaluation: Evaluation) -> dict[str, Any]:
    days = evaluation.sessions["session"].to_list()
    daily = evaluation.sessions["ic"]
    mean = daily.rolling_mean(WINDOW, min_samples=min(WINDOW, 3))
    return _figure(
        f"IC by session, against the {evaluation.target} return",
        [
            {"type": "bar", "name": "session", "x": days, "y": daily.to_list(), "marker": {"color": PALE}},
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


def _by_epoch(
    history: Mapping[str, Series], names: Sequence[str], titles: Sequence[str], *, title: str, y: str
) -> dict[str, Any]:
    traces = []
    for name, label, colour in zip(names, titles, (BLUE, ORANGE), strict=True):
        if history.get(name):
            traces.append({**_line(label, *_thin(history[name]), colour), "mode": "lines+markers"})
    figure = _figure(title, traces, x="epoch", y=y)
    figure["layout"]["xaxis"]["dtick"] = max(1, len(history[names[-1]] if history.get(names[-1]) else ()) // 10)
    return figure


def _norms(history: Mapping[str, Series]) -> dict[str, Any]:
    lines = [_line("before clipping", *_thin(history["gradient/norm"]), BLUE)]
    if history.get("gradient/norm_clipped"):
        lines.append(_line("after clipping", *_thin(history["gradient/norm_clipped"]), ORANGE, "dot"))
    figure = _figure("Norm of the gradients by optimiser step", lines, x="step", y="norm")
    sizes = [value for _, value in history["gradient/norm"] if 0.0 < value < np.inf] or [1.0]
    decades = max(sizes) > 100.0 * min(sizes)  # over fewer, plotly's own ticks say more than one at each power of ten
    figure["layout"]["yaxis"] |= {"type": "log", **({"dtick": 1} if decades else {})}
    return figure


def _scale(history: Mapping[str, Series]) -> dict[str, Any]:
    lines = [_line("loss scale", *_thin(history["amp/loss_scale"]), BLUE)] if history.get("amp/loss_scale") else []
    if history.get("amp/skipped_steps"):
        skipped = _line("steps skipped so far", *_thin(history["amp/skipped_steps"]), ORANGE, "dot")
        lines.append({**skipped, "yaxis": "y2"})
    figure = _figure("Loss scale and skipped steps", lines, x="step", y="loss scale")
    scales = [value for _, value in history.get("amp/loss_scale", ()) if value > 0.0] or [1.0]
    octaves = max(1.0, np.ceil(np.log2(max(scales) / min(scales)) / 8.0))  # between two ticks
    figure["layout"]["yaxis"] |= {"type": "log", "dtick": float(octaves * np.log10(2.0))}
    steps = {"overlaying": "y", "side": "right", "rangemode": "tozero", "tickformat": "d", "automargin": True}
    figure["layout"]["yaxis2"] = {"title": {"text": "steps"}, "nticks": 5, **steps}
    return figure


def _thin(pairs: Series) -> tuple[list[int], list[float | None]]:
    """Steps and values in order, no more than can be seen."""
    every = -(-len(pairs) // POINTS)
    kept = sorted(pairs)[:: max(1, every)]
    return [step for step, _ in kept], [_finite(value) for _, value in kept]


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
    axis = {"automargin": True}
    return {
        "title": title,
        "data": traces,
        "layout": {
            "xaxis": {**axis, "title": {"text": x}},
            "yaxis": {**axis, "title": {"text": y}},
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0.0},
            "margin": {"l": 48, "r": 12, "t": 16, "b": 40},
            "height": 340,
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": "system-ui, sans-serif"},
        },
    }


def _sum(column: pl.Series) -> list[float]:
    total: list[float] = column.cum_sum().to_list()
    return total


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
