"""In: an `Evaluation`. Out: one PNG of IC and profit over time, for those who open the run in MLflow."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from klinepred.evaluation.result import Evaluation
from klinepred.paths import write_atomic


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
    for name, label, style in (
        ("gross_bps", "at the close, before cost", "C0-"),
        ("net_bps", f"at the close, after {cost}", "C0:"),
        ("late_gross_bps", "one bar late, before cost", "C1-"),
        ("late_net_bps", f"one bar late, after {cost}", "C1:"),
    ):
        bottom.plot(days, frame[name].cum_sum().to_numpy(), style, label=label)
    step = max(1, frame.height // 8)
    bottom.set_xticks(days[::step], frame["session"].to_list()[::step], rotation=20)
    bottom.set(title="Cumulated profit, within-session steps", ylabel="basis points of capital")
    for axes in (top, bottom):
        axes.axhline(0.0, color="0.6", linewidth=0.8)
        axes.grid(alpha=0.3)
        axes.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    write_atomic(path, buffer.getvalue())
    return path
