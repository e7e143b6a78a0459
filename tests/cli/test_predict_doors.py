"""In: models and symbols that cannot be used, as typed. Out: one message, its exit code, and the good rows."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import load, save

import klinepred as kp
from klinepred.bars.ingest import ingest
from klinepred.features import custom
from klinepred.features.spec import FeatureSet
from klinepred.model.bundle import TABLE, WEIGHTS, save_bundle, sealed
from tests.asked import asked_bundle, walked
from tests.bars.made import NOW, from_files
from tests.conftest import Typed

CLOCKS = dict.fromkeys(("AAA", "BBB", "CCC", "DDD", "EEE"), "XNYS")
CLOCK = "2026-06-09T21:00:00Z"


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> kp.Workspace:
    """Six symbols, of which one is of no training and one is new; a model on the shelf."""
    root = tmp_path_factory.mktemp("doors")
    bars = walked({**CLOCKS, "NEW": "XNYS", "OTHER": "XNYS"}, days=60).collect().drop("calendar")
    late = pl.col("ts") >= pl.lit("2026-06-05T00:00:00Z").str.to_datetime(time_zone="UTC")
    bars.filter((pl.col("symbol") != "NEW") | late).write_parquet(root / "bars.parquet")
    space = kp.Workspace(root / "w")
    ingest(from_files(root / "bars.parquet"), space, now=NOW)
    save_bundle(replace(asked_bundle(CLOCKS), provenance={"created": "2026-06-01T00:00:00Z"}), space.trained / "asked")
    return space


def asked(typed: Typed, space: kp.Workspace, *words: str) -> tuple[int, list[dict[str, object]], str]:
    code, out, err = typed("predict", "-p", "demo", "-w", str(space.root), "--now", CLOCK, "--format", "json", *words)
    assert "Traceback" not in err
    return code, json.loads(out) if out else [], err


def test_the_good_ones_come_out_and_the_exit_code_is_3(space: kp.Workspace, typed: Typed) -> None:
    code, rows, err = asked(typed, space, "--symbols", "XYZX,OTHER,NEW,AAA")
    assert code == 3
    assert [row["symbol"] for row in rows] == ["AAA", "OTHER"]
    assert [row["in_training"] for row in rows] == [True, False]
    assert [row["note"] for row in rows] == ["", "not in training"]  # case 62
    assert "no prediction: XYZX: no data for XYZX in the store" in err
    assert "no prediction: NEW: too little history: have 234 bars and 2 finished sessions, need" in err


@pytest.mark.parametrize("symbol", ["XYZX", "NEW"])
def test_where_none_can_be_predicted_the_exit_code_is_1_and_nothing_is_printed(
    space: kp.Workspace, typed: Typed, symbol: str
) -> None:
    code, rows, err = asked(typed, space, "--symbols", symbol)
    assert (code, rows) == (1, [])
    assert err.count("expected:") == err.count("got:") == err.count("do this:") == 1
    assert symbol in err


@pytest.mark.parametrize("more", [[], ["--symbols", "AAA,OTHER"]])
def test_a_range_in_which_no_bar_has_finished_is_told_so(space: kp.Workspace, typed: Typed, more: list[str]) -> None:
    late = ("--start", "2026-06-09T15:00:00Z", "--end", "2026-06-09T15:05:00Z", "--now", "2026-06-09T15:02:00Z")
    code, rows, err = asked(typed, space, *more, *late)
    assert (code, rows) == (1, [])
    assert "no finished bar in that range" in err
    assert "too little history" not in err
    code, rows, err = asked(typed, space, *more, "--start", "2027-01-04", "--end", "2027-01-05")
    assert (code, rows) == (1, [])
    assert "no finished bar from 2027-01-04T00:00:00Z to 2027-01-05T00:00:00Z" in err


def test_a_model_without_a_name_is_usage(space: kp.Workspace, typed: Typed) -> None:
    code, _, err = asked(typed, space, "--model", "")
    assert code == 2
    assert "the name, the run or the folder of a model" in err


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (os.environ["BOMB"],)


def resealed(folder: Path, payload: bytes, **changes: object) -> None:
    """Weights that the checksums vouch for."""
    (folder / WEIGHTS).write_bytes(payload)
    table = json.loads((folder / TABLE).read_text())
    table = {**table, "weights_sha256": hashlib.sha256(payload).hexdigest(), **changes}
    (folder / TABLE).write_text(json.dumps(sealed(table)))


def other_shape(folder: Path) -> None:
    weights = load((folder / WEIGHTS).read_bytes())
    weights["head.3.weight"] = torch.zeros(1, 5)
    resealed(folder, save(weights))


def without_table(folder: Path) -> None:
    (folder / TABLE).unlink()
    (folder / "model.pt").write_bytes(pickle.dumps(Bomb()))


Damage = Callable[[Path], object]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (without_table, "model.pt may hold a pickle"),
        (lambda f: resealed(f, pickle.dumps(Bomb())), "does not fit"),
        (lambda f: resealed(f, (f / WEIGHTS).read_bytes()[:-40]), "does not fit"),
        (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-40]), "checksum"),
        (other_shape, "size mismatch for head.3.weight"),
        (lambda f: resealed(f, (f / WEIGHTS).read_bytes(), members=10**9), "1000000000 members"),
        (lambda f: resealed(f, (f / WEIGHTS).read_bytes(), calendars=["XNYS"]), "does not fit"),
        (lambda f: resealed(f, (f / WEIGHTS).read_bytes(), split=[]), "does not fit"),
        (lambda f: resealed(f, (f / WEIGHTS).read_bytes(), klinepred_bundle=5), "format 5"),
        (lambda f: (f / TABLE).write_text("[" * 100_000), "not JSON"),
        (lambda f: (f / TABLE).write_bytes(b"\xff\xfe\x00"), "not JSON"),
    ],
)
def test_a_folder_that_is_no_model_of_ours_is_refused_and_nothing_in_it_runs(
    space: kp.Workspace, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Damage, words: str
) -> None:
    """Case 54."""
    monkeypatch.setenv("BOMB", str(tmp_path / "marker"))
    folder = save_bundle(asked_bundle(CLOCKS), tmp_path / "m")
    damage(folder)
    code, rows, err = asked(typed, space, "--model", str(folder))
    assert (code, rows) == (1, [])
    assert words in err
    assert "expected: a folder with bundle.json and weights.safetensors" in err
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("name", ["that.pt", "that.safetensors"])
def test_a_file_is_no_model(
    space: kp.Workspace, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("BOMB", str(tmp_path / "marker"))
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    code, rows, err = asked(typed, space, "--model", str(tmp_path / name))
    assert (code, rows) == (1, [])
    assert ("may hold a pickle" in err) == name.endswith(".pt")
    assert not (tmp_path / "marker").exists()


def test_a_path_that_does_not_exist_is_usage_and_an_unknown_name_is_told_what_there_is(
    space: kp.Workspace, typed: Typed, tmp_path: Path
) -> None:
    assert asked(typed, space, "--model", str(tmp_path / "nowhere"))[0] == 2
    code, _, err = asked(typed, space, "--model", "nobody")
    assert code == 1
    assert "the workspace has asked" in err


def test_a_model_of_other_features_is_refused_by_name(
    space: kp.Workspace, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 58, (ii)."""
    monkeypatch.setattr(custom, "FEATURE_SETS", {"f50": FeatureSet("f50", kp.F50.features[:-1])})
    code, rows, err = asked(typed, space)
    assert (code, rows) == (1, [])
    assert f"without {kp.F50.names[-1]}" in err
