"""In: a run with verdict, plots and report. Out: what MLflow's UI shows of it in Chromium, behind `klinepred ui`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from klinepred.evaluation.background import CURVES, RECORD
from klinepred.evaluation.importance import Importance
from klinepred.evaluation.intervals import score_intervals
from klinepred.evaluation.picture import draw_calibration, draw_evaluation, draw_importance
from klinepred.evaluation.report import write_report
from klinepred.evaluation.verdict import judge
from klinepred.paths import Workspace
from klinepred.training.review import add_to_run, history_of
from klinepred.training.tracker import Metric
from klinepred.training.tracking import MlflowTracker
from tests.browser import Page, browser, open_page
from tests.evaluation.samples import panel
from tests.evaluation.test_report import background
from tests.training.tiny import tiny_pipeline


@dataclass(frozen=True)
class Shown:
    """A browser in front of the UI."""

    page: Page
    url: str
    view: str
    run_id: str


def make_run(space: Workspace, folder: Path) -> str:
    """A finished run as training and evaluation leave it."""
    tracker = MlflowTracker(space, tiny_pipeline())
    tracker.start(None, params={}, tags={"leak_certificate": "passed", "precision": "fp16"}, resume=None)
    tracker.log_metrics([Metric("val_loss", 1.0 / step, step, step) for step in (1, 2, 3)])
    tracker.log_metrics([Metric("gradient/norm", 0.5, step, step) for step in range(1, 9)])
    tracker.log_metrics([Metric("amp/loss_scale", 65536.0, step, step) for step in range(1, 9)])
    tracker.log_metrics([Metric("val_ic", 0.01 * step, step, step) for step in (1, 2, 3)])
    tracker.end("FINISHED")
    weights = (Importance("price__return_1", 0.02, 0.01), Importance("trend__rsi_14", -0.001, 0.0))
    sample = panel(1, ic=0.1)
    wide = np.full(sample.rows, 1.3)
    intervals = score_intervals(sample, lo_M=-wide, hi_M=wide, up_M=0.5 + 0.01 * sample.pred_M)
    evaluation = judge(sample, intervals=intervals, name="tiny-model")
    drawn = [
        draw_evaluation(evaluation, folder / "evaluation.png"),
        draw_calibration(evaluation, folder / "calibration.png"),
        draw_importance(weights, folder / "importance.png"),
    ]
    history = history_of(space, tracker.run_id, (*CURVES, *RECORD))
    known = replace(background(), history=history)
    report = write_report(evaluation, folder / "report.html", background=known, weights=weights)
    added = add_to_run(
        space,
        tracker.run_id,
        metrics=evaluation.metrics(),
        tags={"verdict": evaluation.verdict, "verdict_sentence": evaluation.sentence},
        files={"report": [report], "plots": [path for path in drawn if path]},
    )
    assert added
    assert evaluation.verdict == "EDGE"
    return tracker.run_id


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    browser()
    root = tmp_path_factory.mktemp("shown")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        space = Workspace(root / "kline été")
        run_id = make_run(space, root)
        words = [sys.executable, "-m", "klinepred", "ui", "--port", "0", "-w", str(space.root)]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, encoding="utf-8") as server:
            try:
                assert server.stdout is not None
                assert server.stderr is not None
                url = server.stdout.readline().strip()
                said = next(line for line in server.stderr if line.startswith("runs of tiny"))
                with open_page(root / "profile") as page:
                    yield Shown(page, url, said.strip().rpartition(" ")[2], run_id)
            finally:
                server.send_signal(signal.SIGINT)


def test_the_run_list_shows_verdict_and_certificate(shown: Shown, tmp_path: Path) -> None:
    assert shown.view.startswith(f"{shown.url}/#/experiments/")
    shown.page.open(shown.view)
    headers = "[...document.querySelectorAll('[role=columnheader]')].map(each => each.innerText.trim())"
    shown.page.until(f"{headers}.includes('verdict') && {headers}.includes('leak_certificate')")
    cells = "[...document.querySelectorAll('[role=gridcell]')].map(each => each.innerText.trim())"
    shown.page.until(f"{cells}.includes('EDGE') && {cells}.includes('passed') && {cells}.includes('fp16')")
    shown.page.picture(tmp_path / "runs.png")


@pytest.mark.parametrize("name", ["loss", "amp", "evaluation", "calibration", "importance"])
def test_the_plots_open(shown: Shown, name: str) -> None:
    experiment = shown.view.split("/experiments/")[1].partition("/")[0]
    shown.page.open(f"{shown.url}/#/experiments/{experiment}/runs/{shown.run_id}/artifacts/plots/{name}.png")
    wide = "[...document.images].some(each => each.naturalWidth > 500)"
    shown.page.until(f"{wide} && document.body.innerText.includes('{name}.png')")


def test_the_report_opens_with_its_verdict_and_plots(shown: Shown) -> None:
    experiment = shown.view.split("/experiments/")[1].partition("/")[0]
    shown.page.open(f"{shown.url}/#/experiments/{experiment}/runs/{shown.run_id}/artifacts/report/report.html")
    with shown.page.inner() as report:
        report.until("document.body.innerText.includes('EDGE') && document.title.includes('tiny-model')")
        drawn = (
            "[...document.querySelectorAll('.plot')].filter(p => p.querySelector('.main-svg')).map(p => p.id).sort()"
        )
        plots = [f"plot-{name}" for name in ("ic", "loss", "norms", "profit", "reliability", "scale", "skill")]
        report.until(f"JSON.stringify({drawn}) === {json.dumps(json.dumps(plots, separators=(',', ':')))}")
        report.until("document.querySelectorAll('#line div').length === 4")
        report.until("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
