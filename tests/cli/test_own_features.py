"""In: pipelines with features of the user's own. Out: listed, shown, trained on and predicted with, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from klinepred.config import load_pipeline
from klinepred.features.build import F50
from klinepred.model.bundle import save_bundle
from klinepred.paths import Workspace
from klinepred.pipeline import build_dataset
from klinepred.training.loop import train
from tests.conftest import Typed
from tests.features.packages import install

PIPELINE = """
name = "own"
[data]
source = "simulate"
[data.simulate]
symbols = 3
start = 2026-02-02
end = 2026-04-10
[features]
exclude = ["cross", "VOLUME"]
plugins = ["tilt"]
[features.custom]
custom__momentum_3 = "LN(close / LAG(close, 3) OVER (ORDER BY ts))"
custom__range_6 = '''
(high - low) / AVG(high - low) OVER (ORDER BY ts ROWS BETWEEN 5 PRECEDING AND CURRENT ROW) - 1  -- now against six bars
'''
[dataset]
target = "raw"
[model]
preset = "lstm-small"
hidden = 8
[train]
epochs = 1
batch = 16
"""
NOW = "2026-04-10T22:00:00Z"
ADDED = ["custom__momentum_3", "custom__range_6", "tilt__mean_4", "tilt__body"]


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    dropped = next(name for name in F50.names if name.startswith("volume__"))
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "own.toml").write_text(PIPELINE.replace("VOLUME", dropped))
    install(tmp_path / "site", monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_list_shows_them_with_formula_reach_and_origin(space: Path, typed: Typed) -> None:
    code, out, err = typed("features", "list", "-p", "own", "--format", "json")
    assert code == 0, err
    rows = {row["name"]: row for row in json.loads(out)}
    assert len(rows) == 50 - 5 + 4
    assert list(rows)[-4:] == ADDED
    assert rows["custom__momentum_3"]["formula"] == "LN(close / LAG(close, 3) OVER (ORDER BY ts))"
    assert rows["custom__momentum_3"]["family"] == "custom"
    assert (rows["custom__momentum_3"]["first_value"], rows["custom__range_6"]["lookback_bars"]) == (4, 6)
    assert rows["tilt__body"]["source"].startswith("made for tests; tilt-pack 1.2 (code ")
    assert "49 features, set f50+4-5" in err
    code, out, _ = typed("features", "list", "-p", "own")
    assert code == 0
    assert all(name in out for name in ADDED)


def test_train_and_predict_go_through_them_and_notice_what_changed(
    space: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = typed("ingest", "-q", "-p", "own")
    assert code == 0, err
    run, here = load_pipeline("own", workspace=Workspace(space)), Workspace(space)
    bundle = train(build_dataset(run, here), run.model, run.train, pipeline=run)
    save_bundle(bundle, here.trained / "own-1")
    code, out, err = typed("predict", "-p", "own", "--now", NOW, "--format", "json")
    assert code == 0
    assert err.splitlines() == [  # nobody audited it: that is what training from Python leaves to the caller
        "warning: model own-1 was trained without a leak certificate: klinepred audit --model looks for leaks"
    ]
    before = json.loads(out)
    assert len(before) == 3
    assert all(row["expected_return_bps"] is not None for row in before)
    code, out, _ = typed("models", "show", "--format", "json")
    assert json.loads(out)["features"]["names"][-4:] == ADDED

    code, out, err = typed("features", "show", "-p", "own", "--symbols", "SIM001", "--format", "csv", "-o", "one.csv")
    assert code == 0, err
    shown = pl.read_csv(space / "one.csv")
    assert shown.columns[-4:] == ADDED
    wanted = (shown["close"] / shown["close"].shift(3)).log()
    assert (shown["custom__momentum_3"] - wanted).drop_nulls().abs().max() < 1e-6  # type: ignore[operator]

    changed = 'features.custom.custom__momentum_3="LN(close / LAG(close, 2) OVER (ORDER BY ts))"'
    code, out, err = typed("predict", "-p", "own", "--now", NOW, "--format", "json", "--set", changed)
    assert code == 0
    assert "pipeline own has other features today" in err
    assert json.loads(out) == before
    code, out, err = typed("evaluate", "-p", "own", "--now", NOW, "--format", "json")
    assert code == 0, err

    monkeypatch.undo()
    monkeypatch.chdir(space)
    code, out, err = typed("predict", "-p", "own", "--now", NOW)
    assert (code, out) == (1, "")
    assert "features.plugins: tilt" in err
    assert "tilt-pack 1.2" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("key", "text", "told"),
    [
        ("custom__ahead", "LEAD(close, 1) OVER (ORDER BY ts) / close", "LEAD(close, 1)"),
        ("custom__mean", "close / AVG(close)", "AVG(close) without OVER"),
        ("custom__all", "SUM(volume) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING)", "FOLLOWING"),
        ("price__mine", "close", "built in"),
        ("spread", "close", "custom__spread"),
        ("custom__big", "(" * 100_000, "100000 characters"),
    ],
)
def test_every_command_refuses_when_it_reads_the_file(
    space: Path, typed: Typed, key: str, text: str, told: str
) -> None:
    (space / "bad.toml").write_text(f'name = "bad"\n[features.custom]\n{key} = "{text}"\n')
    for command in ("ingest", "train", "predict", "evaluate", "run", "features list"):
        code, out, err = typed(*command.split(), "-p", "bad.toml")
        assert (code, out) == (2, "")
        assert "features.custom" in err
        assert key in err
        assert told in err
        assert "expected:" in err
        assert "do this:" in err
        assert "Traceback" not in err


def test_a_formula_that_is_no_text_and_an_unknown_key_are_told(space: Path, typed: Typed) -> None:
    for line, told in {
        "[features.custom]\ncustom__a = 3": "text in quotes",
        "[features]\ncustom = 'close'": "features.custom",
        "[features]\nplugin = ['a']": "plugins",
        "[features]\nplugins = 'tilt'": "a list",
    }.items():
        (space / "bad.toml").write_text(f'name = "bad"\n{line}\n')
        code, out, err = typed("features", "list", "-p", "bad.toml")
        assert (code, out) == (2, "")
        assert told in err
        assert "Traceback" not in err


def test_an_absent_package_is_one_message(space: Path, typed: Typed) -> None:
    code, out, err = typed("features", "list", "-p", "own", "--set", 'features.plugins=["tilted"]')
    assert (code, out) == (1, "")
    assert "did you mean tilt?" in err
