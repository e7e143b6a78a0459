"""In: a certificate, who records a run. Out: the run and its model marked with it for ever; or a refusal to train."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from klinepred.audit.check import Certificate
from klinepred.audit.report import render_certificate
from klinepred.errors import TrainingError
from klinepred.model.bundle import ModelBundle
from klinepred.paths import Workspace, write_atomic
from klinepred.settings import Pipeline
from klinepred.training.data_note import DataNote
from klinepred.training.review import tags_of
from klinepred.training.tracker import Metric, RunStatus, Tracker

TAG: Final = "leak_certificate"
ALLOWED: Final = "failed (allowed)"
"""What a model says of itself that was trained although its certificate had failed."""


def refuse_leaks(certificate: Certificate, *, pipeline: str) -> None:
    """Nothing where the certificate passed.

    Raises
    ------
    TrainingError
        It names what failed.
    """
    failed = certificate.failed
    if not failed:
        return
    features = [check.name for check in failed if check.kind == "feature"]
    others = [check.name for check in failed if check.kind != "feature"]
    parts = [f"features {', '.join(features)}"] if features else []
    if others:
        parts.append(f"{len(others)} checks of what follows from them" if features else f"checks: {'; '.join(others)}")
    raise TrainingError(
        f"leak certificate of pipeline {pipeline}",
        expected="that nothing the model learns from sees the future: every check passed",
        got=f"{len(failed)} of {len(certificate.checks)} failed: {' and '.join(parts)} ({failed[0].detail})",
        do=f"mend or leave out what leaks (klinepred audit -p {pipeline} tells all);"
        " --allow-leaks trains all the same and marks run and model for ever",
    )


def is_leaky(bundle: ModelBundle) -> bool:
    """Whether the model was trained although its certificate had failed."""
    return str(bundle.provenance.get(TAG, "")).startswith("failed")


def refuse_leaky_start(bundle: ModelBundle) -> None:
    """Nothing where the model a training begins from had passed its audit.

    Raises
    ------
    TrainingError
        It had not: what leaked into its weights would stay in them.
    """
    if is_leaky(bundle):
        raise TrainingError(
            f"--init-from {bundle.name}",
            expected="a model whose leak certificate had passed",
            got=f"one with leak certificate: {bundle.provenance[TAG]}",
            do="begin from another model; --allow-leaks begins from it all the same and marks run and model for ever",
        )


class CertifiedTracker:
    """A tracker that puts the certificate into the run as soon as it is open, and its mark into the bundle.

    A run that was once marked `failed` stays so when it is resumed, and so does one that begins from such a model's
    weights (`tainted`).
    """

    def __init__(self, tracker: Tracker, certificate: Certificate, *, space: Workspace, tainted: bool = False) -> None:
        self._tainted = tainted
        self._tracker = tracker
        self._certificate = certificate
        self._space = space

    @property
    def pipeline(self) -> Pipeline | None:
        return self._tracker.pipeline

    @property
    def checkpoint(self) -> Path | None:
        return self._tracker.checkpoint

    def start(
        self,
        pipeline: Pipeline | None,
        *,
        params: Mapping[str, str | float],
        tags: Mapping[str, str],
        resume: str | None,
    ) -> dict[str, Any]:
        before = bool(resume) and tags_of(self._space, str(resume)).get(TAG) == "failed"
        sound = self._certificate.passed and not before and not self._tainted
        self._tainted = not sound  # members of an ensemble share its mark
        marked = {**tags, TAG: "passed" if sound else "failed"}
        origin = self._tracker.start(pipeline, params=params, tags=marked, resume=resume)
        try:
            with tempfile.TemporaryDirectory(prefix="klinepred-") as folder:
                name = pipeline.name if pipeline else ""
                write_certificate(self._certificate, Path(folder), title=name)
                self._tracker.log_folder(Path(folder), under=TAG)
        except BaseException:
            self._tracker.end("FAILED")
            raise
        return {**origin, TAG: "passed" if sound else ALLOWED}

    def member(self, number: int) -> CertifiedTracker:
        return CertifiedTracker(
            self._tracker.member(number), self._certificate, space=self._space, tainted=self._tainted
        )

    def log_metrics(self, metrics: Sequence[Metric]) -> None:
        self._tracker.log_metrics(metrics)

    def settle(self) -> None:
        self._tracker.settle()

    def log_folder(self, folder: Path, *, under: str) -> None:
        self._tracker.log_folder(folder, under=under)

    def log_data(self, note: DataNote) -> None:
        self._tracker.log_data(note)

    def log_model(self, bundle: ModelBundle, folder: Path) -> None:
        self._tracker.log_model(bundle, folder)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        self._tracker.set_tags(tags)

    def end(self, status: RunStatus) -> None:
        self._tracker.end(status)


def write_certificate(certificate: Certificate, folder: Path, *, title: str) -> None:
    """`leak_certificate.json` and `.html` into a folder."""
    text = json.dumps(certificate.to_dict(), ensure_ascii=False, allow_nan=False, indent=1)
    write_atomic(folder / f"{TAG}.json", text)
    write_atomic(folder / f"{TAG}.html", render_certificate(certificate, title=title))
