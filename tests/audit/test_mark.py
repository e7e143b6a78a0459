"""In: certificates that passed and failed. Out: runs and bundles marked so; a refusal by name; a page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from klinepred.audit import mark
from klinepred.audit.check import Certificate, Check, judge
from klinepred.audit.mark import CertifiedTracker, refuse_leaks, refuse_leaky_start
from klinepred.audit.report import render_certificate
from klinepred.errors import TrainingError
from klinepred.paths import Workspace
from klinepred.training.tracker import NoTracker
from tests.model.bundles import small_bundle

GOOD = Certificate((Check("price__a", "feature", True, "fine"),))
BAD = Certificate((Check("price__a", "feature", True, "fine"), Check("price__b", "feature", False, "saw <the> future")))


class Diary(NoTracker):
    """A tracker that remembers how it was started and what it was handed."""

    def __init__(self) -> None:
        self.tags: dict[str, str] = {}
        self.files: dict[str, dict[str, Any]] = {}

    def start(self, pipeline: Any, *, params: Any, tags: Any, resume: Any) -> dict[str, Any]:
        self.tags = dict(tags)
        return {"run_id": "r1"}

    def log_folder(self, folder: Path, *, under: str) -> None:
        self.files[under] = {path.name: path.read_text() for path in folder.iterdir()}


def _start(certificate: Certificate, space: Workspace, *, resume: str | None = None) -> tuple[Diary, dict[str, Any]]:
    diary = Diary()
    tracker = CertifiedTracker(diary, certificate, space=space)
    return diary, tracker.start(None, params={}, tags={"device": "cpu"}, resume=resume)


def test_a_passed_certificate_lies_in_the_run_and_its_mark_in_the_bundle(tmp_path: Path) -> None:
    diary, origin = _start(GOOD, Workspace(tmp_path))
    assert diary.tags == {"device": "cpu", "leak_certificate": "passed"}
    assert origin == {"run_id": "r1", "leak_certificate": "passed"}
    files = diary.files["leak_certificate"]
    assert json.loads(files["leak_certificate.json"]) == GOOD.to_dict()
    assert "passed" in files["leak_certificate.html"]


def test_a_failed_one_marks_both(tmp_path: Path) -> None:
    diary, origin = _start(BAD, Workspace(tmp_path))
    assert diary.tags["leak_certificate"] == "failed"
    assert origin["leak_certificate"] == "failed (allowed)"


def test_a_run_once_marked_stays_so_though_the_next_certificate_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mark, "tags_of", lambda space, run_id: {"leak_certificate": "failed"})
    diary, origin = _start(GOOD, Workspace(tmp_path), resume="r0")
    assert diary.tags["leak_certificate"] == "failed"
    assert origin["leak_certificate"] == "failed (allowed)"


def test_what_begins_from_a_marked_model_is_marked_and_so_are_its_members(tmp_path: Path) -> None:
    class Parent(Diary):
        def member(self, number: int) -> Diary:
            self.child = Diary()
            return self.child

    parent = Parent()
    tracker = CertifiedTracker(parent, GOOD, space=Workspace(tmp_path), tainted=True)
    assert tracker.start(None, params={}, tags={}, resume=None)["leak_certificate"] == "failed (allowed)"
    origin = tracker.member(1).start(None, params={}, tags={}, resume=None)
    assert origin["leak_certificate"] == "failed (allowed)"
    assert parent.tags["leak_certificate"] == parent.child.tags["leak_certificate"] == "failed"


def test_a_run_does_not_begin_from_a_marked_model_unasked() -> None:
    sound, marked = (replace(small_bundle(), provenance={"leak_certificate": m}) for m in ("passed", mark.ALLOWED))
    refuse_leaky_start(sound)
    with pytest.raises(TrainingError, match="--init-from") as caught:
        refuse_leaky_start(marked)
    assert "--allow-leaks" in caught.value.do


def test_a_passed_certificate_refuses_nothing() -> None:
    refuse_leaks(GOOD, pipeline="p")


def test_the_refusal_names_the_features_and_the_way_on() -> None:
    with pytest.raises(TrainingError) as caught:
        refuse_leaks(BAD, pipeline="p")
    error = caught.value
    assert "price__b" in error.got
    assert "price__a" not in error.got
    assert "--allow-leaks" in error.do
    assert "klinepred audit -p p" in error.do


def test_an_empty_certificate_proves_nothing() -> None:
    assert not Certificate(()).passed


def test_a_failed_check_tells_its_first_three_faults() -> None:
    check = judge("x", "split", faults=["a", "b", "c", "d", "e"], detail="all")
    assert (check.passed, check.detail) == (False, "a; b; c; and 2 more")
    assert judge("x", "split", faults=[], detail="all") == Check("x", "split", True, "all")


def test_the_page_escapes_every_text_and_loads_nothing() -> None:
    page = render_certificate(BAD, title="<b>p</b>")
    assert "saw &lt;the&gt; future" in page
    assert "&lt;b&gt;p&lt;/b&gt;" in page
    assert "<script" not in page
    for word in ("http://", "https://", "src=", "url("):
        assert word not in page
    assert page == render_certificate(BAD, title="<b>p</b>")
    assert "1 of 2 checks failed" in page
