"""In: a shelf with models, whole and broken. Out: rows and facts of those that can be read, a word on the others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from klinepred.model.bundle import load_bundle, save_bundle
from tests.conftest import Typed
from tests.model.bundles import small_bundle


@pytest.fixture
def space(tmp_path: Path) -> Path:
    """Two models of pipeline `mine`, the older one champion, and a folder that is none."""
    for day, seed in (("02", 1), ("03", 2)):
        bundle = replace(
            small_bundle(seed=seed),
            pipeline={"name": "mine"},
            provenance={
                "created": f"2026-06-{day}T00:00:00Z",
                "run_id": f"run{seed}",
                "precision": "fp32",
                "epochs": 2,
            },
        )
        save_bundle(bundle, tmp_path / "models" / "trained" / f"mine-{day}")
    (tmp_path / "models" / "trained" / "broken").mkdir()
    (tmp_path / "models" / "trained" / "broken" / "bundle.json").write_text("{}")
    (tmp_path / "models" / "trained" / "README.md").write_text("a file is no model\n")
    (tmp_path / "models" / "trained" / "champion.json").write_text('{"model": "mine-02"}')
    return tmp_path


def test_list_gives_the_readable_models_oldest_first_and_names_the_others(space: Path, typed: Typed) -> None:
    code, out, err = typed("models", "list", "-w", str(space), "--format", "json")
    rows = json.loads(out)
    assert code == 0
    assert [(row["model"], row["champion"], row["run_id"]) for row in rows] == [
        ("mine-02", True, "run1"),
        ("mine-03", False, "run2"),
    ]
    assert rows[0]["symbols"] == len(load_bundle(space / "models" / "trained" / "mine-02").universe)
    assert rows[0]["pipeline"] == "mine"
    assert "broken is no model" in err
    assert typed("models", "list", "-w", str(space), "--format", "json", "-q")[1:] == (out, "")
    assert "README" not in err


def test_list_of_an_empty_shelf_is_an_empty_list_with_advice(tmp_path: Path, typed: Typed) -> None:
    code, out, err = typed("models", "list", "-w", str(tmp_path), "--format", "json")
    assert (code, json.loads(out)) == (0, [])
    assert "klinepred train" in err


def test_the_verdict_stands_beside_each_model(space: Path, typed: Typed) -> None:
    table = {"verdict": "NO EDGE", "sentence": "NO EDGE: an IC of nothing."}
    (space / "models" / "trained" / "mine-03" / "verdict.json").write_text(json.dumps(table))
    rows = json.loads(typed("models", "list", "-w", str(space), "--format", "json")[1])
    assert [row["verdict"] for row in rows] == [None, "NO EDGE"]
    assert "an IC of nothing" in typed("models", "show", "mine-03", "-w", str(space))[1]


def test_show_takes_the_champion_unless_told_otherwise(space: Path, typed: Typed) -> None:
    assert json.loads(typed("models", "show", "-w", str(space), "--format", "json")[1])["name"] == "mine-02"
    (space / "models" / "trained" / "champion.json").unlink()
    assert json.loads(typed("models", "show", "-w", str(space), "--format", "json")[1])["name"] == "mine-03"


def test_show_gives_all_of_the_bundle_as_json_and_the_facts_as_a_table(space: Path, typed: Typed) -> None:
    folder = space / "models" / "trained" / "mine-03"
    whole = json.loads(typed("models", "show", "mine-03", "-w", str(space), "--format", "json")[1])
    assert whole["features"]["names"] == ["a", "b", "c"]
    assert {name: whole[name] for name in ("scaler", "split", "calibration")}
    code, out, _ = typed("models", "show", str(folder), "-w", str(space))
    assert code == 0
    assert "run2" in out
    assert "lstm-small" in out


@pytest.mark.parametrize(("name", "message"), [("nope", "mine-03"), ("broken", "bundle.json")])
def test_show_of_what_is_no_model_says_why(name: str, message: str, space: Path, typed: Typed) -> None:
    code, out, err = typed("models", "show", name, "-w", str(space))
    assert (code, out) == (1, "")
    assert message in err
