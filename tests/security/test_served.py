"""In: a registry of MLflow that somebody else may write to. Out: the bundle in it, and nothing of its code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import klinepred as kp
from klinepred.errors import ModelError, TrainingError
from klinepred.model.bundle import ModelBundle
from klinepred.serving.served import champion_of
from klinepred.training.registry import crown
from tests.security.poison import marker_in, poison
from tests.serving.market import open_market


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> tuple[kp.Workspace, ModelBundle]:
    space, bundle = open_market(tmp_path_factory.mktemp("served"))
    assert crown(space, pipeline="demo", run_id=bundle.run_id)
    return space, bundle


def test_the_address_of_the_run_store_is_afterwards_what_it_was(market: tuple[kp.Workspace, ModelBundle]) -> None:
    champion_of(market[0], "demo")
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_code_that_a_champion_brings_along_is_not_run(market: tuple[kp.Workspace, ModelBundle], tmp_path: Path) -> None:
    space, bundle = market
    (table,) = space.artifacts.rglob("MLmodel")
    folder = table.parent
    marker = marker_in(tmp_path)
    (folder / "next_bar.py").write_text(f"import os\nos.mkdir({str(marker)!r})\n")
    (folder / "python_model.pkl").write_bytes(poison(tmp_path))
    text = table.read_text()
    table.write_text(text.replace("    model_code_path", "    python_model: python_model.pkl\n    model_code_path"))
    assert table.read_text() != text
    model = champion_of(space, "demo")
    own = model.unwrap_python_model()._bundle  # type: ignore[no-untyped-call]
    assert (own.name, own.fingerprint) == (bundle.name, bundle.fingerprint)
    assert not marker.exists()


def test_a_champion_whose_bundle_is_a_pickle_is_one_message(
    market: tuple[kp.Workspace, ModelBundle], tmp_path: Path
) -> None:
    space, _ = market
    (weights,) = space.artifacts.rglob("weights.safetensors")
    weights.write_bytes(poison(tmp_path))
    with pytest.raises(ModelError, match="checksum"):
        champion_of(space, "demo")
    (weights.parent / "bundle.json").unlink()
    with pytest.raises(TrainingError, match="0 bundles") as caught:
        champion_of(space, "demo")
    assert "klinepred models promote" in caught.value.do
    assert not marker_in(tmp_path).exists()
