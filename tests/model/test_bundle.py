"""In: bundles, whole, damaged and hostile. Out: what was saved comes back; anything else is refused, nothing runs."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from klinepred.dataset.sequences import Sequences
from klinepred.errors import ModelError
from klinepred.model.bundle import TABLE, WEIGHTS, load_bundle, save_bundle, sealed
from klinepred.model.forward import forward_rows
from klinepred.model.lstm import build_network, parameter_count
from klinepred.model.shelf import choose_model, list_models
from klinepred.paths import Workspace
from klinepred.settings import ModelSettings
from tests.model.bundles import small_bundle


def test_a_saved_bundle_predicts_the_same_numbers(tmp_path: Path) -> None:
    bundle = small_bundle()
    back = load_bundle(save_bundle(bundle, tmp_path / "m"))
    x_NF = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    whole = Sequences(np.array([0, 9]), np.array([9, 11]), np.array([0, 2]))
    assert np.array_equal(
        forward_rows(back.network, x_NF, whole), forward_rows(bundle.network, x_NF, whole), equal_nan=True
    )
    assert back.scaler.to_dict() == bundle.scaler.to_dict()
    assert (back.split, back.universe, back.feature_names) == (bundle.split, bundle.universe, bundle.feature_names)
    assert back.name == "m"
    assert back.run_id == "abc"


def test_forward_owns_exactly_the_own_rows_and_keeps_the_mode() -> None:
    network = build_network(ModelSettings(hidden=4, layers=2, head=4, dropout=0.5), inputs=3)
    network.train()
    x_NF = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    cut = Sequences(np.array([0, 5]), np.array([5, 7]), np.array([2, 0]))
    one = forward_rows(network, x_NF, cut)
    assert network.training
    assert np.isnan(one).tolist() == [True, True] + [False] * 10
    assert np.array_equal(one, forward_rows(network, x_NF, cut), equal_nan=True)  # dropout is off
    assert forward_rows(network, x_NF, cut, steps=1) == pytest.approx(one, abs=1e-6, nan_ok=True)
    with torch.no_grad():
        network.eval()
        slow = network(torch.from_numpy(x_NF[None, 5:12]))[0, :, 0].numpy()
    assert one[5:] == pytest.approx(slow, abs=1e-6)


def test_a_later_row_never_changes_an_earlier_prediction() -> None:
    network = small_bundle().network
    x_NF = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    whole = Sequences(np.array([0]), np.array([30]), np.array([0]))
    one = forward_rows(network, x_NF, whole)
    x_NF[20:] = 99.0
    two = forward_rows(network, x_NF, whole)
    assert np.array_equal(one[:20], two[:20])
    assert not np.array_equal(one[20:], two[20:])


def test_default_preset_has_the_stated_size() -> None:
    count = parameter_count(build_network(ModelSettings(), inputs=50))
    lstm = sum(4 * 256 * (inputs + 256 + 2) for inputs in (50, 256, 256))
    assert count == lstm + (256 * 128 + 128) + (128 + 1)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / WEIGHTS).write_bytes(b"x" * 100), "checksum"),
        (lambda folder: (folder / WEIGHTS).unlink(), WEIGHTS),
        (lambda folder: (folder / TABLE).write_text("{"), "not JSON"),
        (lambda folder: (folder / TABLE).write_text("[]"), "format"),
        (lambda folder: (folder / TABLE).write_text('{"klinepred_bundle": 99}'), "format 99"),
        (lambda folder: (folder / TABLE).unlink(), TABLE),
    ],
)
def test_a_damaged_bundle_is_refused_in_words(tmp_path: Path, damage: object, words: str) -> None:
    folder = save_bundle(small_bundle(), tmp_path / "m")
    damage(folder)  # type: ignore[operator]
    with pytest.raises(ModelError, match=words):
        load_bundle(folder)


def test_a_bundle_with_a_missing_part_is_refused(tmp_path: Path) -> None:
    folder = save_bundle(small_bundle(), tmp_path / "m")
    table = json.loads((folder / TABLE).read_text())
    for key in ("scaler", "calibration", "split", "features", "model"):
        (folder / TABLE).write_text(json.dumps(sealed({k: v for k, v in table.items() if k != key})))
        with pytest.raises(ModelError):
            load_bundle(folder)


@pytest.mark.parametrize(
    "edit",
    [
        lambda t: t["scaler"]["names"].reverse(),
        lambda t: t["features"]["names"].reverse(),
        lambda t: t["scaler"]["centre"].pop(),
        lambda t: t["scaler"]["centre"].__setitem__(0, float("nan")),
        lambda t: t["scaler"]["scale"].__setitem__(0, 0.0),
        lambda t: t["calibration"]["within"].update(residual=[]),
        lambda t: t["calibration"]["within"].update(lo=5.0, hi=-5.0),
        lambda t: t["dataset"].update(target="raw"),
        lambda t: t["universe"].pop(),
        lambda t: t.pop("content_sha256"),
    ],
)
def test_numbers_edited_after_saving_are_refused(tmp_path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    folder = save_bundle(small_bundle(), tmp_path / "m")
    table = json.loads((folder / TABLE).read_text())
    edit(table)
    (folder / TABLE).write_text(json.dumps(table))
    with pytest.raises(ModelError, match="changed after it was saved"):
        load_bundle(folder)


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (os.environ["BOMB"],)


def test_a_pickle_is_refused_and_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 54."""
    monkeypatch.setenv("BOMB", str(tmp_path / "marker"))
    evil = tmp_path / "evil.pt"
    evil.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ModelError):
        load_bundle(evil)
    folder = save_bundle(small_bundle(), tmp_path / "m")
    (folder / WEIGHTS).write_bytes(pickle.dumps(Bomb()))
    table = json.loads((folder / TABLE).read_text())
    import hashlib

    table["weights_sha256"] = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    (folder / TABLE).write_text(json.dumps(sealed(table)))
    with pytest.raises(ModelError):
        load_bundle(folder)
    assert not (tmp_path / "marker").exists()


def test_an_existing_model_is_never_overwritten(tmp_path: Path) -> None:
    folder = save_bundle(small_bundle(), tmp_path / "m")
    before = (folder / TABLE).read_bytes()
    with pytest.raises(ModelError, match="does not exist yet"):
        save_bundle(small_bundle(seed=1), folder)
    assert (folder / TABLE).read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_the_shelf_chooses_the_champion_else_the_newest_of_the_pipeline(tmp_path: Path) -> None:
    from dataclasses import replace

    space = Workspace(tmp_path)
    with pytest.raises(ModelError, match="klinepred train -p demo"):
        choose_model(space, pipeline="demo")
    for name, created in (("b-old", "2026-01-01T00:00:00Z"), ("a-new", "2026-02-01T00:00:00Z")):
        bundle = small_bundle()
        save_bundle(replace(bundle, provenance={"created": created}), space.trained / name)
    assert [entry.name for entry in list_models(space)] == ["b-old", "a-new"]
    assert choose_model(space, pipeline="demo").name == "a-new"
    (space.trained / "champion.json").write_text('{"model": "b-old"}')
    assert choose_model(space, pipeline="demo").name == "b-old"
    assert choose_model(space, pipeline="demo", name="a-new").name == "a-new"
    (space.trained / "champion.json").write_text('{"model": "gone"}')
    with pytest.raises(ModelError, match="champion 'gone'"):
        choose_model(space, pipeline="demo")
    assert choose_model(space, pipeline="demo", name="a-new").name == "a-new"
    for odd in ("[]", "null", "{}", '{"model": 3}'):
        (space.trained / "champion.json").write_text(odd)
        with pytest.raises(ModelError, match="JSON without a model"):
            choose_model(space, pipeline="b")
    (space.trained / "champion.json").unlink()
    with pytest.raises(ModelError, match="use -p demo"):
        choose_model(space, pipeline="other")
    with pytest.raises(ModelError, match="a-new"):
        choose_model(space, pipeline="demo", name="nothing")


def test_a_model_of_other_features_is_refused_with_both_fingerprints() -> None:
    import klinepred as kp
    from klinepred.model.bundle import features_of

    with pytest.raises(ModelError, match="train again") as caught:
        features_of(small_bundle())
    assert "0" * 16 in str(caught.value)
    assert kp.F50.fingerprint in str(caught.value)
