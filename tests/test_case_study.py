"""In: the pipeline amp-case-study on simulated bars. Out: optimiser, scaler, clip and calls are the study's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from klinepred.config import load_pipeline
from klinepred.model.lstm import build_network
from klinepred.paths import Workspace
from klinepred.training.checkpoint import find_checkpoint, load_checkpoint
from tests.conftest import Typed
from tests.shallow import shallow_audit

NOW = "2026-04-30T22:00:00Z"
SMALL = (
    "--set=train.epochs=2",
    "--set=data.simulate.symbols=6",
    "--set=data.simulate.start=2026-02-02",
    "--set=data.simulate.end=2026-04-24",
    "--set=model.hidden=8",
    "--set=model.head=8",
    "--set=train.device=cpu",
    "--set=evaluate.bootstrap=50",
)
SCALED = ["scale", "backward", "unscale_", "clip to 1", "scaler.step", "AdamW.step", "update"]


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with shallow_audit():
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("case") / "study")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is called while it learns, in order."""
    seen: list[str] = []

    def spy(owner: Any, name: str, label: Callable[..., str]) -> None:
        true: Callable[..., Any] = getattr(owner, name)

        def called(*args: Any, **options: Any) -> Any:
            seen.append(label(*args, **options))
            return true(*args, **options)

        monkeypatch.setattr(owner, name, called)

    for name, label in (("scale", "scale"), ("unscale_", "unscale_"), ("step", "scaler.step"), ("update", "update")):
        spy(torch.amp.GradScaler, name, lambda *_, label=label, **__: label)
    spy(torch.Tensor, "backward", lambda *_, **__: "backward")
    spy(nn.utils, "clip_grad_norm_", lambda weights, most, **_: f"clip to {most:g}")
    spy(torch.optim.AdamW, "step", lambda *_, **__: "AdamW.step")
    return seen


def optimiser_of(table: dict[str, Any]) -> dict[str, Any]:
    """The optimiser's settings in a checkpoint."""
    (group,) = table["optimiser"]["param_groups"]
    return {name: group[name] for name in ("lr", "weight_decay", "betas", "eps", "amsgrad")}


STUDY = {"lr": 1e-4, "weight_decay": 1e-5, "betas": (0.9, 0.999), "eps": 1e-8, "amsgrad": False}


def test_the_whole_job_ends_with_the_studys_optimiser_scaler_clip_and_calls(
    space: Workspace, typed: Typed, calls: list[str]
) -> None:
    words = ("run", "-p", "amp-case-study", "--source", "simulate", "-w", str(space.root), "--now", NOW)
    code, out, err = typed(*words, *SMALL, "--set=train.precision=fp16")
    assert code == 0, err
    assert "klinepred ui -w" in out
    table = load_checkpoint(find_checkpoint(space, "last"))
    steps = table["counters"]["tried"]
    assert table["counters"]["epoch"] == 2
    assert steps == table["counters"]["done"] > 4  # nothing overflowed
    assert optimiser_of(table) == STUDY
    assert table["scaler"] == {
        "scale": 65536.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": steps,
    }
    train = table["pipeline"]["train"]
    assert (train["clip"], train["clip_norm"], train["schedule"], train["amp"]) == ("norm", 1.0, "constant", True)
    assert table["pipeline"]["model"]["layers"] == 3
    at = calls.index("scale")
    assert calls[at : at + len(SCALED) * steps] == SCALED * steps


def test_amp_alone_on_a_cpu_makes_the_same_calls_in_bf16(space: Workspace, typed: Typed, calls: list[str]) -> None:
    code, _, err = typed("train", "-p", "amp-case-study", "-w", str(space.root), *SMALL, "--set=data.source=simulate")
    assert code == 0, err
    table = load_checkpoint(find_checkpoint(space, "last"))
    assert (table["precision"], table["scaler"]) == ("bf16", {})  # bf16 needs no scaling
    assert optimiser_of(table) == STUDY
    assert (table["pipeline"]["train"]["init_scale"], table["pipeline"]["train"]["growth_interval"]) == (65536.0, 2000)
    steps = table["counters"]["tried"]
    at = calls.index("scale")
    assert calls[at : at + len(SCALED) * steps] == SCALED * steps


def test_the_shipped_pipeline_is_the_studys_network() -> None:
    run = load_pipeline("amp-case-study")
    assert (run.model.hidden, run.model.layers, run.train.epochs, run.train.batch) == (256, 3, 100, 64)
    lstm = build_network(run.model, inputs=50).lstm
    assert (lstm.input_size, lstm.hidden_size, lstm.num_layers) == (50, 256, 3)
