"""In: `torchrun … -m klinepred train`, a small market. Out: one run, one model, though a process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from klinepred.model.bundle import WEIGHTS
from tests.conftest import Typed
from tests.shallow import shallow_audit
from tests.small_market import small_space, train_words
from tests.training.ranked import free_port, together

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_space(tmp_path_factory.mktemp("wörk space"), train='epochs = 12\nschedule = "constant"\n')


def models(space: Path) -> list[Path]:
    return sorted((space / "models" / "trained").glob("small-*"), key=lambda path: path.stat().st_mtime)


@pytest.fixture(scope="module")
def undisturbed(space: Path) -> bytes:
    """Weights of a training by two processes that nobody disturbed."""
    first, second = together(train_words(space), world=2, cwd=ROOT)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert first.out.startswith("model small-")
    assert "epoch 12/12" in first.err
    assert "it/s" not in first.err  # progress bars of libraries
    assert (second.out, "epoch" in second.err) == ("", False)
    assert len(models(space)) == 1
    return (models(space)[-1] / WEIGHTS).read_bytes()


def killed_once(space: Path, running: subprocess.Popen[str]) -> bool:
    """Kill the second process once a checkpoint is there; whether it was still running."""
    folder = space / "mlruns" / "checkpoints"
    before = {path.name for path in folder.glob("*.pt")}
    until = time.monotonic() + 200.0
    while time.monotonic() < until and running.poll() is None:
        if {path.name for path in folder.glob("*.pt")} - before:
            for entry in Path("/proc").iterdir():
                with suppress(OSError):
                    own = entry.name.isdigit() and f"PPid:\t{running.pid}\n" in (entry / "status").read_text()
                    if own and b"\0RANK=1\0" in b"\0" + (entry / "environ").read_bytes():
                        os.kill(int(entry.name), signal.SIGKILL)
                        return True
        time.sleep(0.02)
    return False


@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for the process to kill in /proc")
def test_torchrun_starts_again_after_a_kill_and_ends_with_the_same_model(space: Path, undisturbed: bytes) -> None:
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    place = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    running = subprocess.Popen(
        [sys.executable, *torchrun, *place, *train_words(space)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        killed = killed_once(space, running)
        out, err = running.communicate(timeout=240)
    finally:
        running.kill()
    assert killed, err
    assert running.returncode == 0, err
    assert "a process was lost and all were started again: training goes on from" in err
    assert out.count("model small-") == 1
    assert len(models(space)) == 2
    assert (models(space)[-1] / WEIGHTS).read_bytes() == undisturbed


def test_a_job_that_began_from_a_model_goes_on_from_its_checkpoint_when_started_again(
    space: Path, undisturbed: bytes, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = [*train_words(space), "--init-from", models(space)[0].name, "--epochs", "1"]
    with shallow_audit(), monkeypatch.context() as patch:
        patch.setenv("KLINEPRED_JOB", "one of a kind")
        code, _, err = typed(*begun[2:])
    assert code == 0, err
    (again,) = together(begun, world=1, cwd=ROOT, KLINEPRED_JOB="one of a kind")
    assert again.code == 0, again.err
    assert "all were started again: training goes on from" in again.err
    assert undisturbed
