"""In: models with and without certificate and verdict. Out: who may become champion, who may not, and why."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from klinepred.errors import ModelError
from klinepred.model.bundle import save_bundle
from klinepred.model.promotion import promote
from klinepred.model.shelf import champions, choose_model, list_models
from klinepred.paths import Workspace
from tests.conftest import Typed
from tests.model.bundles import small_bundle

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def shelve(
    space: Workspace,
    name: str,
    *,
    verdict: str | None = "NO EDGE",
    certificate: str = "passed",
    pipeline: str = "mine",
    created: str = "2026-06-01",
) -> Path:
    made = {"created": f"{created}T00:00:00Z", "run_id": f"{name:0>8}", "leak_certificate": certificate}
    save_bundle(replace(small_bundle(seed=1), pipeline={"name": pipeline}, provenance=made), space.trained / name)
    if verdict:
        (space.trained / name / "verdict.json").write_text(json.dumps({"verdict": verdict}))
    return space.trained / name


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def test_a_champion_is_used_by_its_pipeline_alone(space: Workspace) -> None:
    old, new = shelve(space, "old"), shelve(space, "new", created="2026-06-02")
    other = shelve(space, "coin", pipeline="crypto")
    done = promote(space, old, now=NOW)
    assert (done.before, done.verdict, done.overruled) == (None, "NO EDGE", ())
    assert choose_model(space, pipeline="mine") == old
    assert choose_model(space, pipeline="crypto") == other
    promote(space, other, now=NOW)
    assert choose_model(space, pipeline="mine") == old, "a champion of another pipeline takes nothing away"
    assert promote(space, new, now=NOW).before == "old"
    assert champions(space) == {"mine": "new", "crypto": "coin"}
    assert {entry.name for entry in list_models(space) if entry.champion} == {"new", "coin"}
    table = json.loads((space.trained / "champion.json").read_text())
    assert (table["model"], table["promoted"], table["overruled"]) == ("new", "2026-06-01T12:00:00Z", [])


@pytest.mark.parametrize(
    ("certificate", "verdict", "reason"),
    [
        ("", "EDGE", "leak certificate is lacking"),
        ("failed: 1 of 108 checks", "EDGE", "leak certificate failed"),
        ("passed", None, "no verdict yet"),
        ("passed", "SUSPICIOUSLY GOOD", "its verdict is SUSPICIOUSLY GOOD"),
        ("passed", "MARVELLOUS", "no verdict yet"),
    ],
)
def test_what_stands_against_a_model_is_named_and_force_overrules_it(
    space: Workspace, certificate: str, verdict: str | None, reason: str
) -> None:
    folder = shelve(space, "one", certificate=certificate, verdict=verdict)
    with pytest.raises(ModelError, match=reason):
        promote(space, folder)
    assert champions(space) == {}
    assert any(reason in line for line in promote(space, folder, force=True).overruled)
    assert champions(space) == {"mine": "one"}


@pytest.mark.parametrize(
    ("champion", "candidate", "allowed"),
    [
        ("EDGE", "NO EDGE", False),
        ("EDGE", "NOT ENOUGH DATA", False),
        ("NO EDGE", "NOT ENOUGH DATA", False),
        ("NO EDGE", "NO EDGE", True),
        ("NOT ENOUGH DATA", "NO EDGE", True),
        ("SUSPICIOUSLY GOOD", "NOT ENOUGH DATA", True),
        ("NO EDGE", "EDGE", True),
    ],
)
def test_a_worse_verdict_than_the_champions_is_refused(
    space: Workspace, champion: str, candidate: str, allowed: bool
) -> None:
    promote(space, shelve(space, "best", verdict=champion), force=True)
    folder = shelve(space, "next", verdict=candidate)
    if allowed:
        assert promote(space, folder).model == "next"
    else:
        with pytest.raises(ModelError, match=f"{candidate}, the champion's {champion}"):
            promote(space, folder)
        assert champions(space) == {"mine": "best"}


def test_a_model_from_elsewhere_is_not_promoted(space: Workspace, tmp_path: Path) -> None:
    folder = shelve(Workspace(tmp_path / "else"), "far")
    with pytest.raises(ModelError, match="lies elsewhere"):
        promote(space, folder, force=True)


def test_promote_as_typed(space: Workspace, typed: Typed) -> None:
    shelve(space, "abcdef0123", verdict=None)
    where = ("-w", str(space.root))
    code, out, err = typed("models", "promote", "abcdef0123", *where)
    assert (code, out) == (1, "")
    assert "klinepred evaluate abcdef0123" in err
    code, out, err = typed("models", "promote", "abcdef0123", "--force", *where)
    assert code == 0
    assert out == "abcdef0123 is the champion of mine (verdict none)\n"
    assert "overruled: it has no verdict yet" in err
    code, _, err = typed("models", "promote", "nobody", *where)
    assert code == 1
    assert "abcdef0123" in err
