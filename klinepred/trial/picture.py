"""In: a report. Out: one PNG: loss by step, gradients beside fp32's, step time, memory, and the recommendation."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klinepred.trial.report import TrialReport
from klinepred.trial.rules import COSINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS: Final = {"fp32": "#444444", "fp16": "#d95f02", "bf16": "#1b9e77", "tf32": "#7570b3", "yardstick": "#bbbbbb"}
LABELS: Final = {"yardstick": "fp32, other order"}


def draw_trial(report: TrialReport, path: Path) -> Path:
    """Draw `report` as `path`, in a picture that needs nothing beside it."""
    from matplotlib.figure import Figure

    trial, advice = report.trial, report.advice
    figure = Figure(figsize=(11.0, 8.0), layout="constrained")
    (losses, angles), (times, memory) = figure.subplots(2, 2)
    words = advice.precision if advice.precision != "none" else "nothing yet"
    title = f"amp-check: {report.pipeline.model.preset}, {trial.parameters / 1e6:.1f} M parameters, {trial.device}"
    figure.suptitle(f"{title}\ntrain in {words}: {textwrap.fill(advice.reason, 110)}", fontsize=10)
    for name in sorted(trial.curves, key=lambda name: name != "yardstick"):
        curve = trial.curves[name].losses
        steps = range(1, len(curve) + 1)
        style = "-" if name in ("fp32", "yardstick") else "--"  # they lie on fp32's, if all is well
        losses.plot(steps, curve, label=LABELS.get(name, name), color=COLOURS[name], linestyle=style)
    losses.set(title="Loss of the batch", xlabel="step", ylabel="loss")
    losses.grid(alpha=0.3)
    losses.legend()
    _angles(angles, report)
    _times(times, report)
    _memory(memory, report)
    figure.savefig(path, dpi=110)
    return path


def _angles(axes: Axes, report: TrialReport) -> None:
    least = 1e-9
    for name, seen in report.trial.probes.items():
        at, apart = [step for step, _ in seen], [max(value, least) for _, value in seen]
        axes.plot(at, apart, marker="o", color=COLOURS[name], label=name)
    axes.axhline(1.0 - COSINE, color="firebrick", linestyle=":", label="limit")
    axes.set(title="Gradient beside fp32's, at the same weights", xlabel="step", ylabel="1 - cosine", yscale="log")
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.3)
    axes.legend()


def _times(axes: Axes, report: TrialReport) -> None:
    taken = {name: [1000.0 * s for s in seconds] for name, seconds in report.trial.seconds.items() if seconds}
    if taken:
        boxes = axes.boxplot(list(taken.values()), patch_artist=True, showfliers=False)
        axes.set_xticks(range(1, len(taken) + 1), list(taken))
        for box, name in zip(boxes["boxes"], taken, strict=True):
            box.set_facecolor(COLOURS[name])
        axes.set_ylim(bottom=0.0)
    axes.set(title="Time of a step, warm-up left out", ylabel="ms")
    axes.grid(alpha=0.3, axis="y")


def _memory(axes: Axes, report: TrialReport) -> None:
    trial = report.trial
    known = {one.name: one.peak_mib for one in (trial.base, *trial.others) if one.peak_mib is not None}
    axes.bar(list(known), list(known.values()), color=[COLOURS[name] for name in known], width=0.5)
    axes.set(title="Peak memory of training" + ("" if known else ": not known here"), ylabel="MiB")
    axes.grid(alpha=0.3, axis="y")
