"""In: small networks of every option. Out: their answers equal a numpy loop over the cell's equations."""

# Shapes: B sequences, T steps, F features, H hidden units, O outputs.

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from klinepred.config import load_pipeline, load_preset
from klinepred.dataset.sequences import Sequences
from klinepred.errors import ModelError
from klinepred.model.bundle import load_bundle, save_bundle
from klinepred.model.forward import forward_outputs, forward_rows
from klinepred.model.lstm import Network, build_network, parameter_count
from klinepred.settings import ModelSettings
from tests.model.bundles import small_bundle

OPTIONS: list[dict[str, Any]] = [
    {},
    {"layer_norm": True},
    {"skip": True},
    {"quantiles": [0.1, 0.5, 0.9]},
    {"flatten": 7},
    {"layer_norm": True, "skip": True, "quantiles": [0.05, 0.25, 0.5, 0.75, 0.95]},
    {"layer_norm": True, "skip": True, "quantiles": [0.3, 0.6], "flatten": 7},
]


def made(options: dict[str, Any], *, inputs: int = 3) -> tuple[Network, ModelSettings]:
    """A network whose every weight is random, those that begin at zero or one too."""
    table = {"preset": "lstm-small", "hidden": 5, "layers": 2, "head": 4, "dropout": 0.3, **options}
    settings = ModelSettings.model_validate(table)
    torch.manual_seed(1)
    network = build_network(settings, inputs=inputs).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_(std=0.6)
    return network, settings


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def slow(network: Network, settings: ModelSettings, x_TF: np.ndarray) -> np.ndarray:
    """Outputs [T, O] step by step in float64, from the equations of Hochreiter and Schmidhuber with a forget gate."""
    w = {name: weight.numpy().astype(np.float64) for name, weight in network.state_dict().items()}
    h = [np.zeros(settings.hidden) for _ in range(settings.layers)]
    c = [np.zeros(settings.hidden) for _ in range(settings.layers)]
    seen, out = [], []
    for x_F in x_TF.astype(np.float64):
        below = x_F
        for layer in range(settings.layers):
            z = w[f"lstm.weight_ih_l{layer}"] @ below + w[f"lstm.bias_ih_l{layer}"]
            z = z + w[f"lstm.weight_hh_l{layer}"] @ h[layer] + w[f"lstm.bias_hh_l{layer}"]
            i, f, g, o = np.split(z, 4)
            c[layer] = sigmoid(f) * c[layer] + sigmoid(i) * np.tanh(g)
            h[layer] = sigmoid(o) * np.tanh(c[layer])
            below = h[layer]
        if settings.layer_norm:
            spread = math.sqrt(float(((below - below.mean()) ** 2).mean()) + 1e-5)
            below = (below - below.mean()) / spread * w["norm.weight"] + w["norm.bias"]
        seen.append(below)
        if settings.flatten and len(seen) < settings.flatten:
            out.append(np.full(1 + len(settings.quantiles), np.nan))
            continue
        a = w["head.0.weight"] @ (np.concatenate(seen) if settings.flatten else below) + w["head.0.bias"]
        a = np.array([0.5 * v * (1.0 + math.erf(v / math.sqrt(2.0))) for v in a])  # GELU
        y = w["head.3.weight"] @ a + w["head.3.bias"]
        if settings.skip:
            y = y + w["skip.weight"] @ x_F
        if settings.quantiles:
            middle = len(settings.quantiles) // 2
            gap = [math.log1p(math.exp(v)) for v in y[2:]]
            levels = range(len(settings.quantiles))
            y = np.array([y[0], *(y[1] + sum(gap[:k]) - sum(gap[:middle]) for k in levels)])
        out.append(y)
    return np.array(out)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_forward_pass_is_the_cells_equations(options: dict[str, Any]) -> None:
    network, settings = made(options)
    x_BTF = np.random.default_rng(0).normal(size=(4, 7, 3)).astype(np.float32)
    with torch.no_grad():
        got_BTO = network(torch.from_numpy(x_BTF)).numpy()
    want_BTO = np.stack([slow(network, settings, x_TF) for x_TF in x_BTF])
    assert got_BTO.shape == (4, 7, 1 + len(settings.quantiles))
    assert got_BTO == pytest.approx(want_BTO, abs=2e-6, nan_ok=True)
    assert np.isfinite(got_BTO).all() == (not settings.flatten)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_quantiles_never_cross(options: dict[str, Any]) -> None:
    network, _ = made(options)
    with torch.no_grad():
        out_BTO = network(40.0 * torch.randn(64, 7, 3))
    assert bool((out_BTO[:, -1, 1:].diff(dim=-1) >= 0).all())


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_one_row_a_batch_and_the_saved_bundle_answer_alike(options: dict[str, Any], tmp_path: Path) -> None:
    from dataclasses import replace

    network, settings = made(options)
    saved = save_bundle(replace(small_bundle(), network=network, model=settings), tmp_path / "m")
    back = load_bundle(saved)
    assert back.model == settings
    x_NF = np.random.default_rng(2).normal(size=(30, 3)).astype(np.float32)
    start_S = np.arange(20)
    lead = 6 if settings.flatten else 2
    cut = (
        Sequences(start_S, np.full(20, 7), np.full(20, lead))
        if settings.flatten
        else Sequences(np.array([0, 11]), np.array([11, 19]), np.array([lead, lead]))
    )
    want_NO = forward_outputs(network, x_NF, cut)
    assert np.array_equal(forward_outputs(back.network, x_NF, cut), want_NO, equal_nan=True)
    assert np.array_equal(forward_rows(back.network, x_NF, cut), want_NO[:, 0], equal_nan=True)
    assert forward_outputs(back.network, x_NF, cut, steps=1) == pytest.approx(want_NO, abs=2e-6, nan_ok=True)
    assert int(np.isfinite(want_NO[:, 0]).sum()) == (20 if settings.flatten else 30 - 2 * lead)


def test_the_skip_path_begins_at_zero_and_changes_no_other_weight() -> None:
    plain = ModelSettings(preset="lstm-small", hidden=5, layers=1, head=4, quantiles=(0.5,))
    torch.manual_seed(0)
    one = build_network(plain, inputs=3).eval()
    torch.manual_seed(0)
    two = build_network(plain.model_copy(update={"skip": True}), inputs=3).eval()
    x_BTF = torch.randn(2, 4, 3)
    with torch.no_grad():
        assert torch.equal(one(x_BTF), two(x_BTF))
    two(x_BTF).square().sum().backward()
    assert two.skip is not None
    assert two.skip.weight.grad is not None
    assert bool((two.skip.weight.grad != 0).all())  # and it learns from there


def test_the_large_preset_has_about_fifty_million_numbers() -> None:
    settings = ModelSettings.model_validate({**load_preset("lstm-50m"), "preset": "lstm-50m"})
    with torch.device("meta"):
        count = parameter_count(build_network(settings, inputs=50))
    lstm = sum(4 * 256 * (inputs + 256 + 2) for inputs in (50, 256, 256))
    assert count == lstm + (78 * 256 * 2400 + 2400) + (2400 + 1) == 49_296_065


def test_a_window_network_refuses_sequences_of_another_length() -> None:
    network, _ = made({"flatten": 7})
    with pytest.raises(ModelError, match="windows of 7 bars"):
        network(torch.zeros(1, 8, 3))


def test_the_large_preset_is_a_valid_pipeline_with_windows() -> None:
    run = load_pipeline(
        "demo", overrides=["model.preset=lstm-50m", "dataset.cut=window", "dataset.window=78", "model.layer_norm=true"]
    )
    assert (run.model.flatten, run.model.head, run.model.layer_norm) == (78, 2400, True)
    assert run.ignored() == []
