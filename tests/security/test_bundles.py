"""In: bundles whose checksums vouch for what is wrong in them. Out: a bundle or one refusal, never more memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from klinepred.errors import KlinepredError, ModelError
from klinepred.model.bundle import TABLE, WEIGHTS, features_of, load_bundle, save_bundle, sealed
from klinepred.model.golden import FILE
from tests.model.bundles import small_bundle
from tests.security.poison import marker_in, poison

Table = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_bundle(small_bundle(), tmp_path / "m")


def nested(depth: int) -> Table:
    table: Table = {}
    for _ in range(depth):
        table = {"a": table}
    return table


ODD: tuple[Any, ...] = (None, [], {}, "x", -1, 1e308, [None], {"a": {}}, "\ud800", float("nan"), nested(300))


def rewritten(folder: Path, change: Callable[[Table], object]) -> None:
    table = json.loads((folder / TABLE).read_text())
    change(table)
    (folder / TABLE).write_text(json.dumps(sealed(table)))


def places(table: Table, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in table.items():
        yield (*above, key)
        if isinstance(value, dict) and not above:
            yield from places(value, (key,))


def test_any_value_of_another_kind_ends_in_a_bundle_or_one_message(folder: Path) -> None:
    text = (folder / TABLE).read_text()
    whole = list(places(json.loads(text)))
    assert len(whole) > 40
    for number, place in enumerate(whole):
        for odd in ODD[number % 3 :: 3]:
            table = json.loads(text)
            spot = table if len(place) == 1 else table[place[0]]
            spot[place[-1]] = odd
            (folder / TABLE).write_text(json.dumps(sealed(table)))
            with suppress(KlinepredError):  # it has three parts, always
                features_of(load_bundle(folder))


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": 8192, "layers": 16},
        {"flatten": 2048, "hidden": 8192, "head": 8192},
        {"head": 8192, "hidden": 8192},
    ],
)
def test_a_network_larger_than_its_weights_takes_no_memory(folder: Path, change: dict[str, int]) -> None:
    """16 layers of 8192 would be 32 GiB."""
    rewritten(folder, lambda table: table["model"].update(change))
    with pytest.raises(ModelError, match="does not fit"):
        load_bundle(folder)


@pytest.mark.parametrize("depth", [500, 990, 1_100, 5_000])
def test_a_table_of_any_depth_is_one_message(folder: Path, depth: int) -> None:
    (folder / TABLE).write_text('{"klinepred_bundle": 3, "a": ' + '{"a":' * depth + "1" + "}" * depth + "}")
    with pytest.raises(ModelError):
        load_bundle(folder)


@pytest.mark.parametrize(
    "arrays",
    [
        {"inputs": np.zeros(3, np.float32), "outputs": np.zeros(3, np.float32)},
        {"inputs": np.zeros((2, 3, 99), np.float32), "outputs": np.zeros((2, 3, 1), np.float32)},
        {"inputs": np.zeros((2, 3, 3), np.int64), "outputs": np.zeros((2, 3, 1), np.float32)},
        {"inputs": np.zeros((0, 3, 3), np.float32), "outputs": np.zeros((0, 3, 1), np.float32)},
        {"outputs": np.zeros((2, 3, 1), np.float32)},
    ],
)
def test_golden_arrays_of_no_such_network_are_refused(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    payload = save(arrays)
    (folder / FILE).write_bytes(payload)
    made = {"sha256": hashlib.sha256(payload).hexdigest()}
    rewritten(folder, lambda table: table.update(golden=made))
    with pytest.raises(ModelError):
        load_bundle(folder)


def test_a_pickle_in_any_place_of_a_bundle_does_not_run(folder: Path, tmp_path: Path) -> None:
    payload = poison(tmp_path)
    digest = hashlib.sha256(payload).hexdigest()
    (folder / FILE).write_bytes(payload)
    rewritten(folder, lambda table: table.update(golden={"sha256": digest}))
    with pytest.raises(ModelError):
        load_bundle(folder)
    (folder / WEIGHTS).write_bytes(payload)
    rewritten(folder, lambda table: table.update(golden=None, weights_sha256=digest))
    with pytest.raises(ModelError):
        load_bundle(folder)
    for name in ("model.pkl", "python_model.pkl", "network.pt", "__init__.py", "sitecustomize.py"):
        (folder / name).write_bytes(payload)
    (folder / TABLE).write_bytes(payload)
    with pytest.raises(ModelError):
        load_bundle(folder)
    assert not marker_in(tmp_path).exists()
