"""In: an `Evaluation`, weights of features. Out: PNG pictures of them, for those who open the run in MLflow."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from klinepred.evaluation.importance import Importance
from klinepred.evaluation.money import LATE
from klinepred.evaluation.result import Evaluation
from klinepred.paths import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_evaluation(evaluation: Evaluation, path: Path) -> Path | None:
    """Write IC by session and cumulated profit as a PNG; None, and no file, where the test part is empty.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    if not evaluation.rows:
        return None
    from matplotlib.figure import Figure

    frame = evaluation.sessions
    days = np.arange(frame.height)
    figure = Figure(figsize=(9.0, 7.0), layout="constrained")
    top, bottom = figure.subplots(2, sharex=True)
    top.bar(days, frame["ic"].fill_null(0.0).to_numpy(), color="#b9cce3")
    top.axhline(evaluation.ic.value, color="#2463a8", label=f"all: {evaluation.ic.value:.4f} ± {evaluation.ic.se:.4f}")
    top.set(title=f"{evaluation.verdict}: IC by session, {evaluation.target} return", ylabel="IC")
    cost = f"{evaluation.settings.cost_bps:g} bps a side"
    early = evaluation.tradable.entry
    lines = [("gross_bps", f"{early}, before cost", "C0-"), ("net_bps", f"{early}, after {cost}", "C0:")]
    if early != LATE:
        lines.append(("late_gross_bps", f"{LATE}, before cost", "C1-"))
        lines.append(("late_net_bps", f"{LATE}, after {cost}", "C1:"))
    for name, label, style in lines:
        bottom.plot(days, frame[name].cum_sum().to_numpy(), style, label=label)
    step = max(1, frame.height // 8)
    bottom.set_xticks(days[::step], frame["session"].to_list()[::step], rotation=20)
    bottom.set(title="Cumulated profit, within-session steps", ylabel="basis points of capital")
    for axes in (top, bottom):
        axes.axhline(0.0, color="0.6", linewidth=0.8)
        axes.grid(alpha=0.3)
        axes.legend()
    return _save(figure, path)


def draw_calibration(evaluation: Evaluation, path: Path) -> Path | None:
    """Write P(up) as said and come true, and where outcomes fell beside the 80 % interval; None without intervals.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    scores = [score for score in evaluation.intervals if score.rows]
    if not scores:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    said, came = [point[0] for point in scores[0].reliability], [point[1] for point in scores[0].reliability]
    ends = [min([*said, *came]), max([*said, *came])]
    left.plot(ends, ends, color="0.6", linestyle=":", label="as said")
    left.plot(said, came, "o-", color="#2f7d4f", label="come true")
    left.set(title="P(up), tenths of the rows", xlabel="said", ylabel="share that rose")
    place = np.arange(len(scores))
    parts = (("below", "#c8671b"), ("coverage", "#b9cce3"), ("above", "#2463a8"))
    base = np.zeros(len(scores))
    for name, colour in parts:
        share = np.array([getattr(score, name) for score in scores])
        right.bar(place, share, bottom=base, color=colour, label="inside" if name == "coverage" else name)
        base += share
    for level in (0.1, 0.9):
        right.axhline(level, color="0.2", linestyle=":", linewidth=1.0)
    right.set_xticks(place, [score.steps for score in scores])
    right.set(title=f"80 % interval of the raw return: {scores[0].coverage:.1%} inside", ylabel="share of outcomes")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    return _save(figure, path)


def draw_importance(weights: Sequence[Importance], path: Path, *, most: int = 25) -> Path | None:
    """Write the weightiest features as bars; None without any.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    if not weights:
        return None
    from matplotlib.figure import Figure

    shown = list(weights[:most])[::-1]
    figure = Figure(figsize=(9.0, 1.2 + 0.24 * len(shown)), layout="constrained")
    axes = figure.subplots()
    axes.barh([one.feature for one in shown], [100.0 * one.error_rise for one in shown], color="#2463a8")
    axes.axvline(0.0, color="0.6", linewidth=0.8)
    axes.set(
        title=f"Features by importance, {len(shown)} of {len(weights)}: shuffled on validation rows",
        xlabel="rise of the mean squared error, %",
    )
    axes.grid(alpha=0.3, axis="x")
    return _save(figure, path)


def _save(figure: Figure, path: Path) -> Path:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    write_atomic(path, buffer.getvalue())
    return path
