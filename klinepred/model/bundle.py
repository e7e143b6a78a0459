"""In: a trained network and all that prediction needs. Out: a folder of safetensors and JSON, and back; no pickle."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from klinepred.dataset.scale import Scaler
from klinepred.dataset.split import Split
from klinepred.errors import ConfigError, FeatureError, ModelError
from klinepred.features.custom import assemble
from klinepred.features.recipe import Recipe
from klinepred.features.spec import FeatureSet, tell_apart
from klinepred.model.calibration import Calibration
from klinepred.model.ensemble import AnyNetwork, members_of, network_from
from klinepred.model.golden import FILE as GOLDEN
from klinepred.model.golden import Golden, check_golden, needs_check
from klinepred.model.golden_bars import FILE as GOLDEN_BARS
from klinepred.model.golden_bars import GoldenBars, check_golden_bars
from klinepred.model.novelty import Novelty
from klinepred.model.table import FORMAT, foreign, read_checked
from klinepred.model.table import TABLE as TABLE  # their place for who imports them from here
from klinepred.model.table import WEIGHTS as WEIGHTS
from klinepred.model.table import read_table as read_table
from klinepred.model.table import sealed as sealed
from klinepred.paths import new_folder, write_atomic
from klinepred.settings import DatasetSettings, ModelSettings


@dataclass(frozen=True)
class ModelBundle:
    """What `predict` needs.

    Attributes
    ----------
    network
        On the CPU, in eval mode; an ensemble answers with the mean of its members.
    features
        Name of the feature set, its names in order and its fingerprint.
    calendars
        By symbol of the universe, text of its `Clock`.
    pipeline
        The resolved pipeline as plain values; empty when trained without one.
    provenance
        run_id, created, klinepred, torch, store_version, commit, device, precision … whatever was known.
    recipe
        How the feature set was put together; None for a built-in set.
    marks
        Fingerprint of each feature; empty in bundles of before there were any.
    golden
        A few inputs and the network's answers to them; None in bundles of before there were any.
    golden_bars
        Made-up bars and what their features were; None likewise.
    novelty
        How far rows lie from those of training; None likewise, or where there were too few to tell.
    """

    network: AnyNetwork
    model: ModelSettings
    dataset: DatasetSettings
    feature_set: str
    feature_names: tuple[str, ...]
    fingerprint: str
    universe: tuple[str, ...]
    calendars: dict[str, str]
    scaler: Scaler
    split: Split
    calibration: Calibration
    pipeline: dict[str, Any]
    provenance: dict[str, Any]
    name: str = ""
    recipe: Recipe | None = None
    marks: dict[str, str] = field(default_factory=dict)
    golden: Golden | None = None
    golden_bars: GoldenBars | None = None
    novelty: Novelty | None = None

    @property
    def run_id(self) -> str:
        """MLflow run that made it; empty when there was none."""
        return str(self.provenance.get("run_id", ""))


def save_bundle(bundle: ModelBundle, folder: Path) -> Path:
    """Write `bundle` as `folder`, which appears whole or not at all.

    Raises
    ------
    ModelError
        The folder exists already, or cannot be written (the old state stays).
    """
    if folder.exists():
        raise ModelError(
            f"model {folder}", expected="a folder that does not exist yet", got="one that does", do="name another"
        )
    payload = save({name: tensor.contiguous() for name, tensor in bundle.network.state_dict().items()})
    golden = bundle.golden.to_bytes() if bundle.golden else b""
    bars = bundle.golden_bars.to_bytes() if bundle.golden_bars else b""
    table = {
        "klinepred_bundle": FORMAT,
        "weights_sha256": hashlib.sha256(payload).hexdigest(),
        "golden": {"sha256": hashlib.sha256(golden).hexdigest(), **bundle.golden.made} if bundle.golden else None,
        "golden_bars": {"sha256": hashlib.sha256(bars).hexdigest(), **bundle.golden_bars.made}
        if bundle.golden_bars
        else None,
        "members": len(members_of(bundle.network)),
        "model": bundle.model.model_dump(mode="json"),
        "dataset": bundle.dataset.model_dump(mode="json"),
        "features": {
            "set": bundle.feature_set,
            "names": list(bundle.feature_names),
            "fingerprint": bundle.fingerprint,
            "recipe": recipe_in(bundle).to_dict(),
            "marks": bundle.marks,
        },
        "universe": list(bundle.universe),
        "calendars": bundle.calendars,
        "scaler": bundle.scaler.to_dict(),
        "split": bundle.split.to_dict(),
        "calibration": bundle.calibration.to_dict(),
        "novelty": bundle.novelty.to_dict() if bundle.novelty else None,
        "pipeline": bundle.pipeline,
        "provenance": bundle.provenance,
    }
    try:
        with new_folder(folder) as part:
            write_atomic(part / WEIGHTS, payload)
            for name, content in ((GOLDEN, golden), (GOLDEN_BARS, bars)):
                if content:
                    write_atomic(part / name, content)
            write_atomic(part / TABLE, json.dumps(sealed(table), ensure_ascii=False, allow_nan=False, indent=1))
    except OSError as error:
        raise ModelError(
            f"model {folder}",
            expected="room and permission to write it",
            got=str(error),
            do="free space or mend the permissions, then resume the run",
        ) from error
    return folder


def load_bundle(folder: str | Path) -> ModelBundle:
    """Read a bundle; nothing in it is executed.

    The network is asked for its golden outputs where that costs next to nothing, and always where device, dtype, torch
    or klinepred are others than when it was made.

    Raises
    ------
    ModelError
        There is no such folder, it is no bundle of klinepred, of a newer format, incomplete or damaged; or its network
        does not answer as when it was made.
    """
    folder = Path(folder)
    table = read_table(folder)
    payload = read_checked(folder, WEIGHTS, table.get("weights_sha256"))
    try:
        bundle = _assemble(folder, table, payload)
        if (made := _made(table, "golden")) is not None:
            bundle = replace(bundle, golden=Golden.from_bytes(read_checked(folder, GOLDEN, made[0]), made[1]))
        if (made := _made(table, "golden_bars")) is not None:
            bars = GoldenBars.from_bytes(read_checked(folder, GOLDEN_BARS, made[0]), made[1])
            bundle = replace(bundle, golden_bars=bars)
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError, RuntimeError, SafetensorError) as error:
        raise foreign(folder, f"{TABLE} that does not fit: {_short(error)}") from error
    try:
        if bundle.golden is not None and needs_check(bundle.network, bundle.golden):
            check_golden(bundle.network, bundle.golden, name=bundle.name)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise foreign(folder, f"{GOLDEN} that does not fit: {_short(error)}") from error
    return bundle


def _made(table: dict[str, Any], name: str) -> tuple[str, dict[str, Any]] | None:
    """Checksum of a file of golden rows, and by what they were made; None where there are none."""
    made = table.get(name)
    if not isinstance(made, dict):
        return None
    return made["sha256"], {key: text for key, text in made.items() if key != "sha256"}


def _short(error: Exception) -> str:
    """In one line; torch says on the second what does not fit."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def _assemble(folder: Path, table: dict[str, Any], payload: bytes) -> ModelBundle:
    model = ModelSettings.model_validate(table["model"])
    features = table["features"]
    members = table.get("members", 1)
    weights = load(payload)
    if not isinstance(members, int) or not 1 <= members <= len(weights):
        raise ValueError(f"{members!r} members of {len(weights)} arrays")
    return ModelBundle(
        network=network_from(weights, model, inputs=len(features["names"]), members=members),
        model=model,
        dataset=DatasetSettings.model_validate(table["dataset"]),
        feature_set=str(features["set"]),
        feature_names=tuple(features["names"]),
        fingerprint=str(features["fingerprint"]),
        universe=tuple(table["universe"]),
        calendars=dict(table["calendars"]),
        scaler=Scaler.from_dict(table["scaler"]),
        split=Split.from_dict(table["split"]),
        calibration=Calibration.from_dict(table["calibration"]),
        pipeline=dict(table["pipeline"]),
        provenance=dict(table["provenance"]),
        name=folder.name,
        recipe=Recipe.from_dict(features["recipe"]) if "recipe" in features else None,
        marks={str(name): str(mark) for name, mark in features.get("marks", {}).items()},
        novelty=Novelty.from_dict(table["novelty"]) if table.get("novelty") else None,
    )


def recipe_in(bundle: ModelBundle) -> Recipe:
    """How the feature set the model was trained on was put together."""
    return bundle.recipe or Recipe(bundle.feature_set)


def features_of(bundle: ModelBundle) -> FeatureSet:
    """The feature set the model was trained on, put together again from what the bundle carries.

    Where the code they come from is another than then, they are computed of the bundle's golden bars and compared.

    Raises
    ------
    ModelError
        It cannot be: this version of klinepred, or of a package, has no such features or computes others under their
        names. The message names them.
    """
    try:
        features = assemble(recipe_in(bundle))
    except (ConfigError, FeatureError) as error:
        raise ModelError(
            f"features of model {bundle.name}: {error.summary}", expected=error.expected, got=error.got, do=error.do
        ) from error
    if features.fingerprint != bundle.fingerprint:
        had = bundle.marks or dict.fromkeys(bundle.feature_names, "")
        apart = tell_apart(had, features.marks)
        raise ModelError(
            f"features of model {bundle.name}",
            expected=f"feature set {bundle.feature_set!r} with fingerprint {bundle.fingerprint}",
            got=f"fingerprint {features.fingerprint} in this version of klinepred{', ' if apart else ''}{apart}",
            do="train again with this version, or use the version the model was trained with",
        )
    if bundle.golden_bars is not None:
        check_golden_bars(bundle.golden_bars, features, bundle.scaler, name=bundle.name)
    return features
