"""In: a small stored market. Out: the certificate as typed: before training, on a model, with a leaking feature."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import klinepred as kp
from klinepred.cli import main
from klinepred.features.build import F50, FEATURE_SETS
from klinepred.features.spec import Feature, FeatureSet
from klinepred.pipeline import build_dataset
from tests.conftest import Typed
from tests.docs.schemas import fits
from tests.features.packages import install

SMALL = (
    "--set=data.simulate.symbols=6",
    "--set=data.simulate.start=2026-02-02",
    "--set=data.simulate.end=2026-04-02",
    "--set=model.preset=lstm-small",
    "--set=model.hidden=8",
    "--set=train.epochs=1",
)
LEAK = Feature(
    "price__next_1",
    "log(c in 1 bar / c)",
    pl.col("close").shift(-1).log() - pl.col("close").log(),
    first_value=1,
    lookback_bars=1,
    source="",
)
LEAKY = FeatureSet("f50", (*F50.features, LEAK))


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    assert main(["ingest", "-p", "demo", "-w", str(folder), "-q", *SMALL, "--now", "2026-04-02T22:00:00Z"]) == 0
    return folder


@pytest.fixture
def leaky(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEATURE_SETS, "f50", LEAKY)


def _audit(typed: Typed, space: Path, *words: str) -> tuple[int, str, str]:
    return typed("audit", "-p", "demo", "-w", str(space), *SMALL, *words)


@pytest.fixture(scope="module")
def certified(space: Path) -> Path:
    """The folder of the certificate as JSON and HTML."""
    folder = space / "certified"
    files = ("-o", str(folder / "one.json"), "--html", str(folder / "one.html"))
    folder.mkdir()
    assert main(["audit", "-p", "demo", "-w", str(space), "-q", *SMALL, "--format", "json", *files]) == 0
    return folder


def test_it_certifies_every_feature_and_more_before_any_training(certified: Path) -> None:
    table = json.loads((certified / "one.json").read_text())
    assert set(table) == {"passed", "checks"}
    fits("audit", table)
    assert table["passed"] is True
    for check in table["checks"]:
        assert list(check) == ["name", "kind", "passed", "detail"]
        assert check["passed"] is True
    features = [check["name"] for check in table["checks"] if check["kind"] == "feature"]
    assert set(F50.names) <= set(features)
    kinds = {check["kind"] for check in table["checks"]}
    assert kinds == {
        *("evidence", "feature", "target", "split", "scaler"),
        *("inputs", "sequence", "training", "prediction"),
    }
    assert "price__return_1" in (certified / "one.html").read_text()


def test_the_same_bars_give_the_same_certificate_here_as_a_table(typed: Typed, certified: Path, space: Path) -> None:
    code, out, err = _audit(typed, space)
    assert code == 0
    for check in json.loads((certified / "one.json").read_text())["checks"]:
        assert check["detail"][:24] in out
    assert "checks passed" in err


def test_a_leaking_feature_fails_it_by_name_and_the_others_pass(leaky: None, typed: Typed, space: Path) -> None:
    code, out, _ = _audit(typed, space, "--format", "json")
    assert code == 1
    table = json.loads(out)
    assert table["passed"] is False
    failed = {check["name"] for check in table["checks"] if check["kind"] == "feature" and not check["passed"]}
    assert failed == {"price__next_1"}


def test_training_refuses_a_leaking_feature_by_name(leaky: None, typed: Typed, space: Path) -> None:
    code, out, err = typed("train", "-p", "demo", "-w", str(space), *SMALL)
    assert (code, out) == (1, "")
    assert "price__next_1" in err
    assert "--allow-leaks" in err
    assert err.count("expected:") == 1
    assert not (space / "models" / "trained").exists()


PACK = """
import polars as pl
from klinepred.features.spec import Feature

next_bar = Feature("tilt__next", "c in 1 bar / c", pl.col("close").shift(-1) / pl.col("close"), 1, 1, "made for tests")
body = Feature("tilt__body", "c / o", pl.col("close") / pl.col("open"), 1, 1, "made for tests")
"""
OWN = (
    '--set=features.plugins=["body","next"]',
    '--set=features.custom={custom__move="close / LAG(close, 2) OVER (ORDER BY ts) - 1"}',
)


def test_a_leak_that_a_package_brings_in_is_refused_by_name_and_its_sound_neighbours_are_not(
    typed: Typed, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, code=PACK, points="body = tiltpack:body\nnext = tiltpack:next_bar")
    code, out, err = typed("train", "-p", "demo", "-w", str(space), *SMALL, *OWN)
    assert (code, out) == (1, "")
    assert "features tilt__next and" in err
    assert "tilt__body" not in err
    assert "custom__move" not in err


def test_allow_leaks_trains_and_marks_run_and_model_for_ever(leaky: None, typed: Typed, space: Path) -> None:
    code, out, _ = typed("train", "-p", "demo", "-w", str(space), *SMALL, "--allow-leaks")
    assert code == 0
    model, run_id = (line.split()[1] for line in out.splitlines()[:2])
    bundle = kp.load_bundle(space / "models" / "trained" / model)
    assert bundle.provenance["leak_certificate"] == "failed (allowed)"
    from klinepred.training.review import tags_of

    assert tags_of(kp.Workspace(space), run_id)["leak_certificate"] == "failed"
    _, out, _ = typed("models", "list", "-w", str(space), "--format", "json")
    assert [row["leak_certificate"] for row in json.loads(out)] == ["failed (allowed)"]
    _, out, _ = typed("models", "show", model, "-w", str(space))
    assert "failed (allowed)" in out
    _, _, err = typed("predict", "-p", "demo", "-w", str(space), "--model", model, "--now", "2026-04-02T22:00:00Z")
    assert "its leak certificate had failed" in err


def test_a_trained_model_carries_its_certificate_and_can_be_audited(typed: Typed, tmp_path: Path, space: Path) -> None:
    import shutil

    own = tmp_path / "own"
    shutil.copytree(space / "data", own / "data")
    code, out, _ = typed("train", "-p", "demo", "-w", str(own), *SMALL)
    assert code == 0
    model = out.split()[1]
    files = {path.name for path in own.glob("mlruns/artifacts/**/leak_certificate/*")}
    assert files == {"leak_certificate.json", "leak_certificate.html"}
    assert kp.load_bundle(own / "models" / "trained" / model).provenance["leak_certificate"] == "passed"
    code, out, _ = typed("audit", "-p", "demo", "-w", str(own), *SMALL, "--model", model, "--format", "json")
    table = json.loads(out)
    assert [check for check in table["checks"] if not check["passed"]] == []
    assert code == 0
    assert model in table["checks"][0]["detail"]


def test_what_cannot_be_audited_is_one_message(typed: Typed, space: Path, tmp_path: Path) -> None:
    code, out, err = typed("audit", "-w", str(tmp_path))
    assert (code, out) == (1, "")
    assert "ingest" in err
    code, _, err = _audit(typed, space, "--model", "nothing")
    assert code == 1
    assert "nothing" in err
    code, _, err = _audit(typed, space, "--self-test", "--model", "x")
    assert code == 2
    assert err.count("do this:") == 1


def test_a_model_trained_without_an_audit_is_warned_of(typed: Typed, tmp_path: Path, space: Path) -> None:
    run = kp.load_pipeline("demo", overrides=[word.removeprefix("--set=") for word in SMALL])
    bundle = kp.train(build_dataset(run, kp.Workspace(space)), run.model, run.train)
    assert bundle.provenance["leak_certificate"] == "not audited"
    kp.save_bundle(bundle, tmp_path / "bare")
    _, _, err = typed("predict", "-w", str(space), "--model", str(tmp_path / "bare"), "--now", "2026-04-02T22:00:00Z")
    assert "trained without a leak certificate" in err
