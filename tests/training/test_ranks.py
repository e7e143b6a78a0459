"""In: the tiny training by one process and by two. Out: claims that both are the same training."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from klinepred.errors import UsageError
from klinepred.training.ranks import Ranks, joined, reseed
from klinepred.training.rows import TrainRows
from tests.training.ranked import Ended, steps_of, together
from tests.training.tiny import tiny_dataset

ROOT = Path(__file__).parents[2]
TOGETHER = {"batch": 9, "lr": 1e-2, "epochs": 5, "patience": 0, "log_every": 1, "device": "cpu", "ema": 0.9}


def child(world: int, train: dict[str, Any], *, dropout: float = 0.0, **order: Any) -> list[Ended]:
    text = json.dumps({"train": {**TOGETHER, **train}, "model": {"dropout": dropout}, **order})
    return together(["-m", "tests.training.ranked_child", text], world=world, cwd=ROOT)


def good(ended: list[Ended]) -> list[dict[str, Any]]:
    assert [one.code for one in ended] == [0] * len(ended), ended[0].err + ended[-1].err
    return [steps_of(one) for one in ended]


def test_two_processes_take_the_steps_of_one_with_the_doubled_batch() -> None:
    first, second = good(child(2, {}))
    (alone,) = good(child(1, {"batch": 18}))
    assert len(first["step/loss"]) == 20  # 72 sequences: 4 steps an epoch, their labels unlike from half to half
    for name in ("step/loss", "gradient/norm", "val_loss", "val_ic"):
        np.testing.assert_allclose(first[name], alone[name], rtol=0, atol=1e-5)
    assert first["weights"] == second["weights"]
    for name, weight in alone["weights"].items():
        np.testing.assert_allclose(first["weights"][name], weight, rtol=0, atol=1e-4)


def test_shares_of_a_batch_are_the_batch_and_carry_its_count_of_labels() -> None:
    data = tiny_dataset()
    shares = [TrainRows(data, device=torch.device("cpu"), size=9, seed=1, ranks=Ranks(rank, 3)) for rank in range(3)]
    (whole,) = (TrainRows(data, device=torch.device("cpu"), size=27, seed=1),)
    assert whole.steps == shares[0].steps == 3
    for (x, labels), *parts in zip(whole.epoch(4), *(one.epoch(4) for one in shares), strict=True):
        assert {count for _, count in parts} == {labels}
        assert sum(int(part[2].sum()) for part, _ in parts) == labels
        torch.testing.assert_close(torch.cat([part[0] for part, _ in parts]), x[0], rtol=0, atol=0)


def test_with_fewer_sequences_than_processes_no_row_counts_twice() -> None:
    data = tiny_dataset()  # 72 sequences in steps of 5 x 7 = 35: the last step has 2
    shares = [TrainRows(data, device=torch.device("cpu"), size=7, seed=1, ranks=Ranks(rank, 5)) for rank in range(5)]
    last = [list(one.epoch(0))[-1] for one in shares]
    own = [int(part[2].sum()) for part, _ in last]
    assert sorted(own)[:3] == [0, 0, 0]
    assert sum(own) == last[0][1]


def test_an_overflow_in_one_process_is_a_skipped_step_in_all() -> None:
    first, second = good(child(2, {"precision": "fp16", "init_scale": 2.0**22, "epochs": 4}))
    assert first["amp/skipped_steps"][-1] > 0
    assert first["weights"] == second["weights"]
    assert all(np.isfinite(weight).all() for weight in first["weights"].values())


def test_a_resumed_training_of_two_equals_one_never_stopped_dropout_included(tmp_path: Path) -> None:
    place = str(tmp_path / "c.pt")
    whole, _ = good(child(2, {"epochs": 4, "schedule": "constant"}, dropout=0.3))
    good(child(2, {"epochs": 2, "schedule": "constant"}, dropout=0.3, checkpoint=place))
    rest, other = good(child(2, {"epochs": 4, "schedule": "constant"}, dropout=0.3, checkpoint=place, resume=place))
    assert whole["weights"] == rest["weights"] == other["weights"]
    assert whole["val_loss"][2:] == rest["val_loss"]


def test_dropout_draws_other_numbers_in_each_process_and_step_and_the_same_again() -> None:
    drawn: dict[tuple[int, int], list[torch.Tensor]] = {}
    with torch.random.fork_rng():
        for rank, step in [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0)]:
            reseed(Ranks(rank, 2), seed=7, step=step)
            drawn.setdefault((rank, step), []).append(torch.rand(4))
        reseed(Ranks(), seed=7, step=0)  # a process alone keeps its stream
        going_on = torch.rand(4)
    torch.testing.assert_close(*drawn.pop((0, 0)), rtol=0, atol=0)
    values = [tuple(draws[0].tolist()) for draws in drawn.values()]
    assert len({*values, tuple(going_on.tolist())}) == 4


def test_another_number_of_processes_is_said_aloud_and_goes_on_where_the_data_stand(tmp_path: Path) -> None:
    place = tmp_path / "c.pt"
    good(child(2, {"epochs": 2}, checkpoint=str(place)))
    (one,) = child(1, {"epochs": 3}, checkpoint=str(place), resume=str(place))
    (found,) = good([one])
    assert "resumed by 1 process, before 2: a step now takes 9 sequences, before 18" in one.err
    assert len(found["step/loss"]) == 8  # one epoch of 72 sequences
    assert torch.load(place, weights_only=True)["counters"]["tried"] == 2 * 8 + 8


def test_processes_that_see_other_data_refuse_to_train() -> None:
    script = (
        "import sys; from klinepred.training.ranks import joined; from klinepred.errors import TrainingError\n"
        "with joined() as r:\n"
        "    try: r.same('data set', f'hash {r.rank}')\n"
        "    except TrainingError as error: print(error, file=sys.stderr); sys.exit(1)\n"
    )
    first, second = together(["-c", script], world=2, cwd=ROOT)
    assert (first.code, second.code) == (1, 1)
    assert "hash 1" in second.err
    assert "hash 0" in second.err
    assert "another in some other process" in first.err


def test_what_fails_in_the_first_process_ends_the_others_with_a_word() -> None:
    script = (
        "import sys; from klinepred.training.ranks import joined; from klinepred.errors import TrainingError\n"
        "def fail(): raise OSError('no room')\n"
        "with joined() as r:\n"
        "    try: r.first_only(fail)\n"
        "    except (TrainingError, OSError) as error: print(error, file=sys.stderr); sys.exit(1)\n"
    )
    first, second = together(["-c", script], world=2, cwd=ROOT)
    assert (first.code, second.code) == (1, 1)
    assert "no room" in first.err
    assert "told in its own message" in second.err


def test_half_an_environment_of_torchrun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UsageError, match="RANK"), joined():
        pass


def test_an_ensemble_of_two_processes_resumed_too_is_that_of_one_with_the_doubled_batch(tmp_path: Path) -> None:
    place, short = tmp_path / "c.pt", {"epochs": 2, "schedule": "constant"}
    good(child(2, {**short, "ensemble": 2}, checkpoint=str(place)))
    first, second = good(child(2, {**short, "ensemble": 3}, checkpoint=str(place), resume=str(place)))
    (alone,) = good(child(1, {**short, "ensemble": 3, "batch": 18}))
    assert (tmp_path / "c.members").is_dir()
    assert first["weights"] == second["weights"]
    assert first["best"] == second["best"] == pytest.approx(alone["best"], abs=1e-5)
    assert sum(name.endswith("weight_ih_l0") for name in alone["weights"]) == 3
    for name, weight in alone["weights"].items():
        np.testing.assert_allclose(first["weights"][name], weight, rtol=0, atol=1e-4)


def test_a_signal_to_one_process_stops_all_after_the_same_step(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from klinepred.training.ranks import joined; from tests.training.tiny import *\n"
        "from pathlib import Path\n"
        "class Stopper:\n"
        "    def begin(self, **_): pass\n"
        "    def step(self, news):\n"
        "        if news.step == 5 and os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGTERM)\n"
        "    def epoch(self, news): pass\n"
        "    def end(self): pass\n"
        "from klinepred.training.signals import TrainingStopped\n"
        "with joined():\n"
        "    try: fit(tiny_dataset(), progress=Stopper(), checkpoint=Path(sys.argv[1]))\n"
        "    except TrainingStopped as error: print(error.got); sys.exit(error.exit_code)\n"
    )
    first, second = together(["-c", script, str(tmp_path / "c.pt")], world=2, cwd=ROOT)
    assert first.out == second.out
    assert "after step 5" in first.out
    assert second.code == 143
    assert torch.load(tmp_path / "c.pt", weights_only=True)["counters"]["tried"] == 5


def test_a_killed_process_ends_the_other_with_a_message() -> None:
    script = (
        "import os, signal, sys; from klinepred.training.ranks import joined; from tests.training.tiny import *\n"
        "from klinepred.errors import TrainingError\n"
        "class Killer:\n"
        "    def begin(self, **_): pass\n"
        "    def step(self, news):\n"
        "        if news.step == 5 and os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    def epoch(self, news): pass\n"
        "    def end(self): pass\n"
        "try:\n"
        "    with joined(): fit(tiny_dataset(), progress=Killer())\n"
        "except TrainingError as error: print(error); sys.exit(error.exit_code)\n"
    )
    first, second = together(["-c", script], world=2, cwd=ROOT)
    assert second.code == -signal.SIGKILL
    assert first.code == 1, first.err
    assert "a lost connection" in first.out
