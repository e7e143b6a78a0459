"""In: the metric history of a run. Out: PNG pictures of it, for those who open the run in MLflow."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from klinepred.training.metric_names import clean_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from mlflow import MlflowClient

Series = Sequence[tuple[int, float]]

PLOTTED = ("train_loss", "val_loss", "step/loss", "amp/loss_scale", "gradient/norm", "gradient/norm_clipped")
"""Metrics that `draw` uses."""


def log_plots(client: MlflowClient, run_id: str) -> None:
    """Draw the metrics of a run and put the pictures under its `plots`."""
    stored = {name: client.get_metric_history(run_id, clean_name(name)) for name in PLOTTED}
    history = {name: [(metric.step, metric.value) for metric in metrics] for name, metrics in stored.items()}
    with tempfile.TemporaryDirectory(prefix="klinepred-") as folder:
        if draw(history, Path(folder)):
            client.log_artifacts(run_id, folder, "plots")


def draw(history: Mapping[str, Series], folder: Path) -> list[Path]:
    """Write `loss.png` (per epoch) and `amp.png` (loss scale and gradient norm per step) where there is data.

    Parameters
    ----------
    history
        By metric name (`PLOTTED`), pairs of step and value.
    """
    from matplotlib.figure import Figure

    written = []
    if history.get("val_loss"):
        figure = Figure(figsize=(8.0, 4.5), layout="constrained")
        axes = figure.subplots()
        _line(axes, history, "train_loss", "train", marker="o")
        _line(axes, history, "val_loss", "validation", marker="o")
        best = min(history["val_loss"], key=lambda pair: pair[1])
        axes.axvline(best[0], color="0.6", linestyle=":", label=f"best: epoch {best[0]}, {best[1]:.4f}")
        axes.set(title="Loss by epoch", xlabel="epoch", ylabel="loss (labels in volatility units, clipped)")
        axes.locator_params(axis="x", integer=True)
        axes.grid(alpha=0.3)
        axes.legend()
        written.append(folder / "loss.png")
        figure.savefig(written[-1], dpi=120)
    if history.get("gradient/norm"):
        figure = Figure(figsize=(8.0, 7.0), layout="constrained")
        top, middle, bottom = figure.subplots(3, sharex=True)
        _line(top, history, "step/loss", "batch loss")
        _line(middle, history, "gradient/norm", "before clipping")
        _line(middle, history, "gradient/norm_clipped", "after clipping", dashed=True)
        _line(bottom, history, "amp/loss_scale", "loss scale")
        top.set(title="Flight record", ylabel="loss")
        middle.set(ylabel="gradient norm", yscale="log")
        bottom.set(xlabel="optimiser step", ylabel="loss scale")
        bottom.set_yscale("log", base=2)
        for axes in (top, middle, bottom):
            axes.grid(alpha=0.3)
            axes.legend(loc="upper right")
        written.append(folder / "amp.png")
        figure.savefig(written[-1], dpi=120)
    return written


def _line(
    axes: Axes, history: Mapping[str, Series], name: str, label: str, *, marker: str | None = None, dashed: bool = False
) -> None:
    pairs = sorted(history.get(name, ()))
    steps, values = [step for step, _ in pairs], [value for _, value in pairs]
    axes.plot(steps, values, label=label, marker=marker, linewidth=1.2, linestyle="--" if dashed else "-")
