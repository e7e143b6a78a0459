"""In: workspaces, whole and broken. Out: what the doctor finds, each problem with the way out."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

import pytest

from klinepred.cli.doctor import _packages
from tests.conftest import Typed


def test_doctor_tells_versions_device_precision_and_workspace(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = typed("doctor", "-w", str(tmp_path), "--format", "json")
    report = json.loads(out)
    assert code == 0
    assert report["problems"] == []
    assert {"torch", "mlflow", "polars", "yfinance"} <= set(report["packages"])
    assert all(report["packages"].values())
    assert (report["device"]["why_no_cuda"] is None) == report["device"]["name"].startswith("cuda")
    assert report["precision"]["amp"] in ("fp16", "bf16")
    assert report["precision"]["reason"]
    assert re.fullmatch(r"(oneDNN's|torch's own) LSTM with .+, \d+ threads, freed memory is .+", report["cpu_path"])
    assert report["workspace"]["root"] == str(tmp_path)
    assert report["tracking"] == {"uri": f"sqlite:///{tmp_path}/mlruns/mlflow.db", "from": "workspace", "runs": 0}
    assert report["store"]["version"] is None
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_as_a_table_why_cuda_is_not_used(typed: Typed, tmp_path: Path) -> None:
    code, out, _ = typed("doctor", "-w", str(tmp_path))
    assert code == 0
    assert re.search("^device +(cpu|cuda)", out, re.MULTILINE)
    assert ("no CUDA because" in out) == (re.search("^device +cpu", out, re.MULTILINE) is not None)
    assert "nothing is missing" in out


def test_doctor_lists_what_is_broken_with_the_way_out(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns" / "mlflow.db").write_text("no database at all, but long enough to be looked at")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "mine.toml").write_text("[train]\nepoch = 3\n")
    (tmp_path / "models" / "trained").mkdir(parents=True)
    (tmp_path / "models" / "trained" / "champion.json").write_text("{")
    code, out, _ = typed("doctor", "-w", str(tmp_path), "--format", "json")
    problems = json.loads(out)["problems"]
    assert code == 1
    assert len(problems) == 3
    assert all(problem["do"] for problem in problems)
    assert "train.epoch" in problems[0]["what"]


def test_doctor_names_a_missing_and_an_old_package(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = [
        "click>=8.1",
        "polars>=99.1",
        "nothing-of-that-name>=1.0",
        "pytest>=8; extra == 'test'",
        "absent; extra == 'x'",
    ]
    monkeypatch.setattr(metadata, "requires", lambda _: needs)
    problems: list[dict[str, str]] = []
    packages, extras = _packages(problems)
    assert packages["nothing-of-that-name"] is None
    assert [problem["do"] for problem in problems] == [
        "pip install 'polars>=99.1'",
        "pip install 'nothing-of-that-name>=1.0'",
    ]
    assert extras["x"] == {"missing": ["absent"], "get": "pip install 'klinepred[x]'"}
    assert extras["test"]["missing"] == []
