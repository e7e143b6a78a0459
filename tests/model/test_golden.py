"""In: bundles with golden inputs, weights touched after training. Out: a refusal with both numbers, or none."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from klinepred.dataset.sequences import Sequences
from klinepred.errors import ModelError
from klinepred.model import golden as made_here
from klinepred.model.bundle import TABLE, WEIGHTS, ModelBundle, load_bundle, save_bundle, sealed
from klinepred.model.ensemble import unite
from klinepred.model.golden import FILE, check_golden, here, make_golden, needs_check
from klinepred.model.lstm import build_network
from klinepred.settings import ModelSettings
from tests.model.bundles import small_bundle

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "quantiles": {"layer_norm": True, "skip": True, "quantiles": (0.1, 0.5, 0.9)},
    "window": {"flatten": 7},
}
CUT = Sequences(np.array([0, 20, 50]), np.array([20, 30, 40]), np.array([0, 0, 0]))


def golden_bundle(*, kind: str = "plain", members: int = 1) -> ModelBundle:
    settings = ModelSettings(preset="lstm-small", hidden=8, layers=2, head=4, dropout=0.1, **KINDS[kind])
    torch.manual_seed(1)
    network = unite([build_network(settings, inputs=3) for _ in range(members)])
    x_NF = np.random.default_rng(0).normal(size=(90, 3)).astype(np.float32)
    golden = make_golden(network, x_NF, CUT, flatten=settings.flatten)
    return replace(small_bundle(), model=settings, network=network, golden=golden)


def reseal(folder: Path, **changes: object) -> None:
    table = json.loads((folder / TABLE).read_text())
    (folder / TABLE).write_text(json.dumps(sealed({**table, **changes})))


def touch_weights(folder: Path, *, name: str = "", by: float = 0.5) -> None:
    """Change one weight and set the checksums right again."""
    weights = load((folder / WEIGHTS).read_bytes())
    key = next(key for key in sorted(weights) if key.endswith(name) and "weight" in key)
    weights[key] = weights[key].clone()
    weights[key].view(-1)[0] += by
    (folder / WEIGHTS).write_bytes(save(weights))
    reseal(folder, weights_sha256=hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("members", [1, 3])
def test_a_weight_changed_with_its_checksum_is_refused_with_both_numbers(
    tmp_path: Path, kind: str, members: int
) -> None:
    bundle = golden_bundle(kind=kind, members=members)
    folder = save_bundle(bundle, tmp_path / "m")
    back = load_bundle(folder)
    assert bundle.golden is not None
    assert back.golden is not None
    assert np.array_equal(back.golden.out_BTO, bundle.golden.out_BTO, equal_nan=True)
    assert back.golden.made == here()
    touch_weights(folder, name="head.0.weight")
    with pytest.raises(ModelError, match="does not answer as when it was trained") as raised:
        load_bundle(folder)
    want, got = float(raised.value.expected.split()[0]), float(raised.value.got.split()[0])
    assert np.isclose(back.golden.out_BTO, want, atol=1e-6).any()
    assert abs(want - got) > 1e-5
    assert "within 1e-05" in raised.value.expected
    assert "fetch the model again" in raised.value.do


def test_golden_outputs_are_those_of_the_network_over_the_rows_they_name() -> None:
    bundle = golden_bundle()
    assert bundle.golden is not None
    assert bundle.golden.x_BTF.shape == (2, 16, 3)  # two of three sequences, the first and the last
    x_NF = np.random.default_rng(0).normal(size=(90, 3)).astype(np.float32)
    with torch.no_grad():
        for index, start in enumerate((0, 50)):
            slow_TO = bundle.network(torch.from_numpy(x_NF[None, start : start + 40]))[0].numpy()
            assert bundle.golden.out_BTO[index] == pytest.approx(slow_TO[:16], abs=1e-6)


def test_short_sequences_and_none_give_shorter_golden_ones_and_none() -> None:
    network = small_bundle().network
    x_NF = np.zeros((9, 3), dtype=np.float32)
    short = make_golden(network, x_NF, Sequences(np.array([0, 4]), np.array([4, 5]), np.array([0, 0])))
    assert short is not None
    assert short.x_BTF.shape == (1, 5, 3)
    empty = np.zeros(0, dtype=np.int64)
    assert make_golden(network, x_NF, Sequences(empty, empty, empty)) is None


@pytest.mark.parametrize("number", [1, 2])
def test_bundles_of_before_there_were_golden_rows_load(tmp_path: Path, number: int) -> None:
    folder = save_bundle(small_bundle(), tmp_path / "m")
    assert sorted(path.name for path in folder.iterdir()) == [TABLE, WEIGHTS]
    table = json.loads((folder / TABLE).read_text())
    del table["golden"]
    (folder / TABLE).write_text(json.dumps(sealed({**table, "klinepred_bundle": number})))
    assert load_bundle(folder).golden is None


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), f"no readable {FILE}"),
        (lambda path: path.write_bytes(path.read_bytes()[:-4]), "checksum"),
        (lambda path: path.write_bytes(b""), "checksum"),
    ],
)
def test_golden_rows_that_are_gone_or_damaged_are_refused(tmp_path: Path, damage: Any, words: str) -> None:
    folder = save_bundle(golden_bundle(), tmp_path / "m")
    damage(folder / FILE)
    with pytest.raises(ModelError, match=words):
        load_bundle(folder)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x80\x04K\x01.",
        save({"inputs": torch.zeros(1, 2, 9), "outputs": torch.zeros(1, 2, 1)}),
        save({"inputs": torch.zeros(1, 2, 3), "outputs": torch.zeros(1, 2, 4)}),
        save({"x": torch.zeros(3)}),
    ],
)
def test_golden_rows_of_another_shape_are_refused(tmp_path: Path, payload: bytes) -> None:
    folder = save_bundle(golden_bundle(), tmp_path / "m")
    (folder / FILE).write_bytes(payload)
    reseal(folder, golden={**here(), "sha256": hashlib.sha256(payload).hexdigest()})
    with pytest.raises(ModelError):
        load_bundle(folder)


def test_a_large_network_is_checked_only_where_something_is_another_than_when_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = golden_bundle()
    assert bundle.golden is not None
    assert needs_check(bundle.network, bundle.golden)  # a small one always
    monkeypatch.setattr(made_here, "CHEAP", 10)
    assert not needs_check(bundle.network, bundle.golden)
    for key in ("device", "dtype", "torch", "klinepred"):
        other = replace(bundle.golden, made={**bundle.golden.made, key: "2.0.0"})
        assert needs_check(bundle.network, other)
    folder = save_bundle(
        replace(bundle, golden=replace(bundle.golden, made={**here(), "torch": "2.0.0"})), tmp_path / "m"
    )
    assert load_bundle(folder).golden is not None  # another version that answers alike is fine
    touch_weights(folder)
    with pytest.raises(ModelError, match=r"as on torch 2\.0\.0") as raised:
        load_bundle(folder)
    assert f"on torch {torch.__version__}" in raised.value.got
    assert "use the versions" in raised.value.do


def test_half_precision_passes_within_its_own_tolerance() -> None:
    bundle = golden_bundle(kind="quantiles")
    assert bundle.golden is not None
    assert check_golden(bundle.network, bundle.golden, name="m") <= 1e-6
    worst = check_golden(bundle.network, bundle.golden, name="m", dtype=torch.bfloat16)
    assert 0.0 < worst < 5e-2
    wrong = replace(bundle.golden, out_BTO=bundle.golden.out_BTO + 0.5)
    with pytest.raises(ModelError, match="dtype bfloat16"):
        check_golden(bundle.network, wrong, name="m", dtype=torch.bfloat16)


def test_an_output_that_is_not_a_number_is_refused(tmp_path: Path) -> None:
    folder = save_bundle(golden_bundle(), tmp_path / "m")
    touch_weights(folder, name="head.0.weight", by=float("nan"))
    with pytest.raises(ModelError, match="does not answer") as raised:
        load_bundle(folder)
    assert raised.value.got == "nan"
