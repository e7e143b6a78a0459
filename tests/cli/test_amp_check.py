"""In: a workspace with a small simulated market. Out: `klinepred amp-check` as typed, its run, what `train` says."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from klinepred.audit.check import Certificate
from klinepred.cli import main
from klinepred.errors import TrainingError
from klinepred.paths import Workspace
from klinepred.training.review import tags_of
from klinepred.trial import measure, passes
from tests.conftest import Typed
from tests.docs.schemas import fits

SMALL = (
    *("-p", "demo", "--steps", "8"),
    *("--set=model.hidden=8", "--set=model.layers=1", "--set=model.head=4", "--set=train.batch=24"),
)
MARKET = (
    *("-p", "demo", "--now", "2026-04-30T22:00:00Z", "-q"),
    *("--set=data.simulate.symbols=6", "--set=data.simulate.start=2026-02-02", "--set=data.simulate.end=2026-04-30"),
)


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("kline été")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        assert main(["ingest", "-w", str(folder), *MARKET]) == 0
    return Workspace(folder)


def test_the_check_as_typed(space: Workspace, typed: Typed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measure, "peak_mib", lambda **_: None)
    words = ("amp-check", "-w", str(space.root), *SMALL)
    code, out, err = typed(*words)
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()[2:6]] == ["fp32", "fp16", "bf16", "fp32,"]
    assert "no loss scaling" in out
    assert "no fp32 master weights" in out
    assert out.splitlines()[-1].startswith("train in ")
    run_id = err.split("run ")[-1].split(";")[0]
    tags = tags_of(space, run_id)
    assert (tags["kind"], tags["mlflow.source.name"]) == ("amp-check", "klinepred amp-check")
    assert tags["passed"].startswith("fp32")
    (picture,) = space.artifacts.glob(f"demo/{run_id}/artifacts/amp-check/amp-check.png")
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    file = tmp_path / "check.csv"
    code, out, err = typed(*words, "--format", "csv", "-o", str(file))
    assert (code, out) == (0, "")
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    assert [row["precision"] for row in rows] == ["fp32", "fp16", "bf16", "fp32, other order"]
    assert float(rows[2]["cosine"]) > 0.999
    (kept,) = passes.folder_of(space).iterdir()  # the second check took the place of the first
    assert json.loads(kept.read_text())["run_id"] != run_id

    def begun(*_: object, **__: object) -> None:
        raise TrainingError("begun", expected="nothing", got="a training", do="end it here")

    monkeypatch.setattr(passes, "LARGE", 100)
    monkeypatch.setattr("klinepred.audit.audit.audit_before_training", lambda *_, as_of: Certificate(()))
    monkeypatch.setattr("klinepred.training.loop.train", begun)
    train = ("train", "-w", str(space.root), *SMALL[:2], *SMALL[4:])
    assert "amp-check" not in typed(*train)[2]
    _, _, err = typed(*train, "--set", "train.lr=0.01")
    assert "warning: lstm-3x256 has 0.0 million parameters, and no amp-check of it has passed on this device" in err
    assert "(the last one was with another training); try it in minutes first: klinepred amp-check -p demo" in err


def test_json_is_one_object(space: Workspace, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "peak_mib", lambda **_: None)
    code, out, _ = typed("amp-check", "-w", str(space.root), *SMALL, "--format", "json", "-q")
    table = json.loads(out)
    assert (code, table["pipeline"], table["steps"], table["batch"]["bars"]) == (0, "demo", 8, 26 + 78)
    fits("amp-check", table)


def test_a_store_without_bars_is_one_message(tmp_path: Path, typed: Typed) -> None:
    code, out, err = typed("amp-check", "-w", str(tmp_path), *SMALL)
    assert (code, out) == (1, "")
    assert [part in err for part in ("error:", "expected:", "got:", "do this:")] == [True] * 4
    assert "ingest" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--device", "warp9"), "train.device 'warp9'"),
        (("--steps", "7"), "--steps"),
        (("--set", "train.lrr=1"), "did you mean train.lr"),
        (("--format", "parquet"), "--format"),
    ],
)
def test_what_cannot_be_carried_out_is_a_usage_error(
    words: tuple[str, ...], said: str, tmp_path: Path, typed: Typed
) -> None:
    code, _, err = typed("amp-check", "-p", "demo", "-w", str(tmp_path), *words)
    assert code == 2
    assert said in err
