"""In: markets that stay and that change. Out: scheduled rounds: what each does, in one line and an exit code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from klinepred.config import load_pipeline
from klinepred.errors import StoreError, UsageError
from klinepred.model.bundle import load_bundle
from klinepred.model.shelf import champions, list_models
from klinepred.paths import Workspace
from klinepred.pipeline import compare_models, run_round, scheduled
from klinepred.pipeline.rounds import Round, journal_path, last_over, turn, write_down
from klinepred.settings import EvaluateSettings
from tests.bars.made import utc
from tests.conftest import Typed
from tests.regimes import CALM, CALM_LATER, CHANGED, SETTINGS, change, noise
from tests.shallow import shallow_audit


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with shallow_audit():
        yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _only_what_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """No round depends on baselines and on the weight of features; the first one, in a process of its own, has both."""
    monkeypatch.setattr("klinepred.evaluation.verdict.fit_baselines", lambda *_, **__: [])
    monkeypatch.setattr("klinepred.evaluation.importance.weigh_features", lambda *_, **__: ())


def words(bars: Path, space: Workspace, now: str, *more: str) -> list[str]:
    settings = [f"--set={setting}" for setting in (*SETTINGS, f'data.paths=["{bars}"]')]
    return ["run", "-p", "demo", "-w", str(space.root), "--scheduled", "--now", now, *settings, *more]


def journal(space: Workspace) -> list[str]:
    return [json.loads(line)["word"] for line in journal_path(space, "demo").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def markets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("markets")
    noise(folder / "noise.parquet")
    change(folder / "change.parquet")
    return folder


@pytest.fixture(scope="module")
def crowned(markets: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace whose first round, in the noise, has made a champion."""
    space = Workspace(tmp_path_factory.mktemp("crowned") / "w")
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "klinepred", *words(markets / "change.parquet", space, CALM)]
    done = subprocess.run(line, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.startswith("promoted: demo-")
    assert "is the first champion of demo" in done.stdout
    return space


def copied(space: Workspace, to: Path) -> Workspace:
    shutil.copytree(space.root, to)
    return Workspace(to)


def test_a_change_of_the_market_is_learned_and_the_better_model_promoted(
    crowned: Workspace, markets: Path, tmp_path: Path, typed: Typed
) -> None:
    space = copied(crowned, tmp_path / "w")
    bars = markets / "change.parquet"
    first = champions(space)["demo"]
    assert typed(*words(bars, space, CALM, "-q"))[:2] == (
        0,
        "nothing new: no bars since the last round; the newest ends at 2026-03-06T21:00Z\n",
    )
    assert typed(*words(bars, space, CALM, "-q", "--exit-code"))[0] == 10
    code, out, err = typed(*words(bars, space, CHANGED))
    assert code == 0, err
    (line,) = out.splitlines()
    second = champions(space)["demo"]
    assert line.startswith(f"promoted: {second} in place of {first}: A: {second} beats {first}")
    assert line.endswith("(verdict EDGE)")
    assert second != first
    begun = next(entry.table for entry in list_models(space) if entry.name == second)["provenance"]["init_from"]
    assert begun["model"] == first, "training began from the champion's weights"
    older, newer = (load_bundle(space.trained / name) for name in (first, second))
    assert newer.scaler.to_dict() == older.scaler.to_dict(), "in whose units these were learned"
    both = (space.trained / second, space.trained / first)
    graded = compare_models(both, space, settings=EvaluateSettings(bootstrap=50)).span
    assert graded is not None
    assert graded[0] > max(older.split.calibration_end, newer.split.calibration_end).isoformat(), (
        "neither had seen these"
    )
    assert graded[1] == CHANGED[:10]
    assert typed(*words(bars, space, CHANGED, "-q", "--exit-code"))[0] == 10
    assert journal(space) == ["promoted", "nothing new", "nothing new", "promoted", "nothing new"]


def test_a_candidate_that_is_not_better_is_kept_but_not_promoted(
    markets: Path, crowned: Workspace, tmp_path: Path, typed: Typed
) -> None:
    space = copied(crowned, tmp_path / "w")
    first = champions(space)["demo"]
    code, out, _ = typed(*words(markets / "noise.parquet", space, CALM_LATER, "--exit-code"))
    assert code == 12
    assert out.startswith(f"kept: {first} stays the champion: N")
    assert len(out.splitlines()) == 1
    assert champions(space) == {"demo": first}
    assert len(list_models(space)) == 2
    assert typed(*words(markets / "noise.parquet", space, CALM_LATER))[1].startswith("nothing new")


def test_without_drift_nothing_is_trained_and_with_it_something_is(
    markets: Path, crowned: Workspace, tmp_path: Path, typed: Typed
) -> None:
    space = copied(crowned, tmp_path / "w")
    code, out, err = typed(*words(markets / "noise.parquet", space, CALM_LATER, "--if-drifted", "--exit-code"))
    assert code == 11, err
    assert out.startswith("not drifted: ")
    assert len(out.splitlines()) == 1
    assert len(list_models(space)) == 1

    space = copied(crowned, tmp_path / "changed")
    code, out, err = typed(*words(markets / "change.parquet", space, CHANGED, "--if-drifted", "--exit-code"))
    assert code == 0, err
    assert out.startswith("promoted: ")
    assert journal(space) == ["promoted", "promoted"]


def test_two_rounds_at_once_are_one_and_a_word(markets: Path, tmp_path: Path, typed: Typed) -> None:
    space = Workspace(tmp_path)
    with turn(space, "demo"):
        code, out, _ = typed(*words(markets / "noise.parquet", space, CALM))
        assert code == 4
        assert out.startswith(f"busy: another round of demo is at work: process {os.getpid()}, which began at 2")
        with turn(space, "demo-2"):
            pass  # another pipeline has a turn of its own
    assert not (space.data / "bars").exists()


def test_a_round_goes_on_where_a_kill_ended_the_one_before(markets: Path, tmp_path: Path, typed: Typed) -> None:
    space = Workspace(tmp_path / "w")
    bars = markets / "noise.parquet"
    slow = words(bars, space, CALM, "--set=train.epochs=400", "--set=train.patience=0")
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, "-m", "klinepred", *slow], stderr=subprocess.DEVNULL, env=env) as process:
        limit = time.monotonic() + 120
        while not [*(space.mlruns / "checkpoints").glob("*.pt")] and time.monotonic() < limit:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    (checkpoint,) = (space.mlruns / "checkpoints").glob("*.pt")
    # The same settings, or it would be another training: so the rest is made short by ending it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("klinepred.training.session.Session.over", property(lambda self: self.state.counters.epoch > 0))
        code, out, err = typed(*slow)
    assert code == 0, err
    assert f"a round was killed in training: it goes on from {checkpoint.stem}" in err
    assert "marked KILLED" in err
    (model,) = list_models(space)
    assert out.startswith(f"promoted: {model.name} is the first champion")
    assert model.table["provenance"]["run_id"].startswith(checkpoint.stem.rpartition("-")[2])


@pytest.mark.parametrize(("step", "at"), [("evaluate_model", "2026-05-07T22:00:00Z"), ("promote", CHANGED)])
def test_a_round_killed_after_training_is_gone_on_with_without_training_again(
    step: str, at: str, markets: Path, crowned: Workspace, tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = copied(crowned, tmp_path / "w")
    bars = markets / "change.parquet"

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(scheduled, step, killed)
        assert typed(*words(bars, space, at))[0] == 130
    before = [entry.name for entry in list_models(space)]
    code, out, err = typed(*words(bars, space, CHANGED))
    assert code == 0, err
    assert f"a round that was killed had trained {before[-1]}" in err
    assert [entry.name for entry in list_models(space)] == before
    assert out.startswith(f"promoted: {before[-1]} in place of {before[0]}")
    ended = last_over(space, "demo")
    assert ended is not None
    assert ended.last_bar.startswith(at[:10]), "bars that came after the kill are new to the next round"


def test_a_step_that_fails_is_named_and_tried_again_by_the_next_round(
    markets: Path, crowned: Workspace, tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = copied(crowned, tmp_path / "w")
    code, out, err = typed(*words(tmp_path / "nowhere.parquet", space, CALM_LATER))
    assert code == 1
    assert out.startswith("failed: at ingest: ")
    assert "nowhere.parquet" in out
    assert "do this:" in err

    def broken(*_: object, **__: object) -> None:
        raise StoreError("a thing", expected="whole", got="broken", do="mend it")

    with monkeypatch.context() as patch:
        patch.setattr(scheduled, "train_candidate", broken)
        code, out, _ = typed(*words(markets / "noise.parquet", space, CALM_LATER))
    assert (code, out) == (1, "failed: at train: a thing: broken\n")
    assert typed(*words(markets / "noise.parquet", space, CALM_LATER))[1].startswith("kept: ")
    assert journal(space) == ["promoted", "failed", "failed", "kept"]


def test_what_cannot_be_scheduled_is_refused_before_anything_is_done(
    tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = Workspace(tmp_path)
    for more, part in (
        (["--set=dataset.split.train_end=2026-02-01", "--set=dataset.split.validation_end=2026-02-20"], "by shares"),
        (["--set=dataset.split.folds=3"], "3 folds"),
        (["--skip", "predict"], "--skip predict"),
        (["--allow-leaks"], "--allow-leaks"),
    ):
        code, out, err = typed(*words(tmp_path / "no.parquet", space, CALM, *more))
        assert (code, out) == (2, "")
        assert part in err
    assert typed("run", "-p", "demo", "-w", str(tmp_path), "--exit-code")[0] == 2
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "torchrun" in typed(*words(tmp_path / "no.parquet", space, CALM))[2]
    assert [*tmp_path.iterdir()] == []


def test_a_replay_does_not_learn_from_bars_after_its_clock(
    markets: Path, crowned: Workspace, tmp_path: Path, typed: Typed
) -> None:
    space = copied(crowned, tmp_path / "w")
    code, out, _ = typed(*words(markets / "noise.parquet", space, "2026-02-20T22:00:00Z"))
    assert code == 1
    assert "bars up to 2026-03-06T21:00Z" in out


def test_runs_that_cannot_be_recorded_are_refused_before_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:./mlruns")
    with pytest.raises(UsageError, match="MLFLOW_TRACKING_URI"):
        run_round(load_pipeline("demo"), Workspace(tmp_path), if_drifted=False)


def test_the_journal_survives_a_line_that_was_cut_short(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    space.trained.mkdir(parents=True)
    assert last_over(space, "p") is None
    kept = Round("kept", "it stays", "compare", bars=5, last_bar="2026-03-06T21:00Z")
    write_down(space, "p", kept, at=utc("2026-03-06"))
    with journal_path(space, "p").open("a") as out:
        out.write('{"at": "2026-03-07T00:00:00Z", "word": "promo')
    assert last_over(space, "p") == kept
    failed = Round("failed", "at ingest: no\nline", "ingest")
    write_down(space, "p", failed, at=utc("2026-03-08"))
    assert last_over(space, "p") == kept, "a round that failed is no reason to do nothing"
    assert json.loads(journal_path(space, "p").read_text().splitlines()[-1])["word"] == "failed"
    assert failed.line == "failed: at ingest: no line"
