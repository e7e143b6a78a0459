"""In: a small simulated market. Out: ingest, train, evaluate, predict through the command line, as typed."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import klinepred as kp
from klinepred.cli import main
from tests.security.secret import leaks, secrets, told

NOW = "2026-04-30T22:00:00Z"
SMALL = (
    "--set=data.simulate.symbols=6",
    "--set=data.simulate.start=2026-02-02",
    "--set=data.simulate.end=2026-04-30",
    "--set=model.preset=lstm-small",
    "--set=model.hidden=16",
    "--set=train.epochs=2",
    "--set=train.batch=16",
    "--set=evaluate.bootstrap=100",
)


@dataclass(frozen=True)
class Journey:
    """A workspace in which the whole job has run once."""

    space: Path
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Journey:
    import subprocess
    import sys

    space = tmp_path_factory.mktemp("kline été") / "№ 1"
    done = subprocess.run(
        [sys.executable, "-m", "klinepred", "run", "-p", "demo", "-w", str(space), "--now", NOW, *SMALL],
        env={**os.environ, **secrets()},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return Journey(space, done.stdout, done.stderr)


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main([*words])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_run_ends_with_predictions_verdict_and_the_way_to_mlflow(journey: Journey) -> None:
    lines = journey.stdout.strip().splitlines()
    assert sum(line.startswith("SIM00") for line in lines) == 6
    assert any(line.startswith("verdict: ") for line in lines)
    assert "klinepred ui -w" in lines[-1]
    assert "Traceback" not in journey.stderr


def test_no_secret_of_the_environment_is_in_the_workspace_or_on_the_screen(journey: Journey) -> None:
    names = {path.name for path in journey.space.rglob("*")}
    assert {"mlflow.db", "bundle.json", "report.html", "MLmodel"} <= names
    assert (leaks(journey.space), told(journey.stdout + journey.stderr)) == ({}, [])


def test_predictions_have_the_agreed_columns_and_the_next_session_s_first_bar(
    journey: Journey, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = typed(capsys, "predict", "-p", "demo", "-w", str(journey.space), "--now", NOW, "--format", "json")
    assert code == 0
    rows = json.loads(out)
    assert [row["symbol"] for row in rows] == [f"SIM{i:03d}" for i in range(1, 7)]
    for row in rows:
        assert list(row) == [
            *("symbol", "bar_ts", "asof", "target_ts", "target", "expected_return_bps", "p_up", "lo80_bps"),
            *("hi80_bps", "stale", "in_training", "note", "model", "run_id"),
        ]
        assert row["bar_ts"] == "2026-04-30T19:55:00Z"
        assert row["asof"] == "2026-04-30T20:00:00Z"
        assert row["target_ts"] == "2026-05-01T13:30:00Z"
        assert row["lo80_bps"] < 0 < row["hi80_bps"]
        assert 0 < row["p_up"] < 1
        assert row["in_training"] is True
        assert row["stale"] is False


def test_prices_are_the_last_close_moved_by_the_returns(journey: Journey, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", "-p", "demo", "-w", str(journey.space), "--now", NOW, "--format", "json", "--prices")
    code, out, _ = typed(capsys, *words, "--top", "2")
    rows = json.loads(out)
    assert (code, len(rows)) == (0, 2)
    bars = (
        kp.scan_bars(kp.Workspace(journey.space))
        .filter(pl.col("ts") == datetime(2026, 4, 30, 19, 55, tzinfo=UTC))
        .collect()
    )
    closes = dict(bars.select("symbol", "close").iter_rows())
    for row in rows:
        assert row["last_close"] == closes[row["symbol"]]
        assert row["lo80_close"] == pytest.approx(row["last_close"] * math.exp(row["lo80_bps"] / 1e4), rel=1e-12)
        assert row["hi80_close"] == pytest.approx(row["last_close"] * math.exp(row["hi80_bps"] / 1e4), rel=1e-12)
        assert row["lo80_close"] < row["expected_close"] < row["hi80_close"]
    code, out, _ = typed(capsys, *words[:-3], "--top", "2", "--prices")
    assert code == 0
    assert "expected_close" in out


def test_repeating_a_prediction_gives_the_same_bytes(
    journey: Journey, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    words = ["predict", "-p", "demo", "-w", str(journey.space), "--now", NOW, "--format", "json", "-q"]
    assert main(words) == 0
    one, err = capsysbinary.readouterr()
    assert err == b""
    assert main(words) == 0
    assert capsysbinary.readouterr().out == one


def test_53_a_moved_workspace_predicts_the_same_bytes(
    journey: Journey, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    moved = tmp_path / "w 2 für später"
    shutil.copytree(journey.space, moved)
    answers = []
    for place in (journey.space, moved):
        words = ["predict", "-p", "demo", "-w", str(place), "--now", NOW, "--format", "json", "-q", "--no-record"]
        assert main(words) == 0
        answers.append(capsysbinary.readouterr().out)
    assert answers[0] == answers[1]


def test_replayed_predictions_equal_those_that_evaluate_graded(journey: Journey) -> None:
    """One plan: the newest-bar path on truncated history gives what the batch path over the test part gives."""
    from klinepred.model.forward import forward_rows
    from klinepred.model.shelf import choose_model
    from klinepred.pipeline import dataset_of

    space = kp.Workspace(journey.space)
    bundle = kp.load_bundle(choose_model(space, pipeline="demo"))
    data = dataset_of(bundle, space)
    batch = forward_rows(bundle.network, data.x_NF, data.sequences)
    test = np.flatnonzero(data.mask("test"))
    bars = kp.scan_bars(space)
    for row in (test[0], test[len(test) // 3], test[-5]):
        symbol, ts = data.rows["symbol"][int(row)], data.rows["ts"][int(row)]
        as_of = ts + (datetime(2026, 1, 1, 0, 5) - datetime(2026, 1, 1))
        alone = kp.predict(bundle, bars, symbols=[symbol], as_of=as_of).row(0, named=True)
        assert alone["bar_ts"] == ts
        want = float(batch[row]) * float(data.vol_N[row]) * 1e4
        assert alone["expected_return_bps"] == pytest.approx(want, abs=1e-4, rel=1e-5)
        together = kp.predict(bundle, bars, as_of=as_of).filter(pl.col("symbol") == symbol).row(0, named=True)
        assert together["expected_return_bps"] == pytest.approx(want, abs=1e-4, rel=1e-5)


def test_a_changed_future_leaves_an_earlier_prediction_as_it_was(journey: Journey) -> None:
    from klinepred.model.shelf import choose_model

    space = kp.Workspace(journey.space)
    bundle = kp.load_bundle(choose_model(space, pipeline="demo"))
    as_of = datetime(2026, 4, 28, 17, 0, tzinfo=UTC)
    bars = kp.scan_bars(space)
    wild = bars.with_columns(
        pl.when(pl.col("ts") >= as_of).then(pl.col(name) * 3.0).otherwise(pl.col(name)).alias(name)
        for name in ("open", "high", "low", "close")
    )
    assert kp.predict(bundle, bars, as_of=as_of).equals(kp.predict(bundle, wild, as_of=as_of))  # type: ignore[arg-type]


def test_evaluate_gives_a_verdict_beside_baselines(journey: Journey, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = typed(
        *(capsys, "evaluate", "-p", "demo", "-w", str(journey.space), "--format", "json"),
        *("--set=evaluate.bootstrap=100", "-q"),
    )
    assert (code, err) == (0, "")
    table = json.loads(out)
    assert table["verdict"] in ("EDGE", "NO EDGE", "NOT ENOUGH DATA", "SUSPICIOUSLY GOOD")
    assert {"zero", "last return", "ridge", "hgb"} <= set(table["baselines"])
    assert table["test"]["first_session"] > "2026-04-01"


def test_a_model_compared_with_itself_does_not_differ(journey: Journey, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("-p", "demo", "-w", str(journey.space))
    _, out, _ = typed(capsys, "models", "list", "-w", str(journey.space), "--format", "json")
    (model,) = json.loads(out)
    code, out, _ = typed(capsys, "compare", model["model"], model["run_id"][:8], *where, "--format", "json")
    assert code == 0
    table = json.loads(out)
    assert table["outcome"] in ("NO DIFFERENCE", "NOT ENOUGH DATA")
    assert table["difference"]["ic"]["value"] == 0.0
    assert table["a"] == table["b"]
    code, out, _ = typed(capsys, "compare", model["model"], model["model"], *where)
    assert code == 0
    assert out.strip().splitlines()[-1].startswith(table["outcome"])
    code, out, err = typed(capsys, "compare", model["model"], "nobody", *where)
    assert (code, out) == (1, "")
    assert model["model"] in err


def test_a_stale_store_is_flagged_with_its_age_and_not_refused(
    journey: Journey, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("predict", "-p", "demo", "-w", str(journey.space), "--format", "json")
    code, out, _ = typed(capsys, *words, "--now", "2026-05-01T15:00:00Z")
    assert code == 0
    row = json.loads(out)[0]
    assert row["stale"] is True
    assert "1140 min ago" in row["note"]  # closed on 30 April at 20:00Z
    code, out, _ = typed(capsys, *words, "--now", "2026-05-01T13:34:59Z")  # the first bar is not finished yet
    assert json.loads(out)[0]["stale"] is False


def test_unknown_symbols_are_named_and_the_good_ones_still_come_out(
    journey: Journey, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("predict", "-p", "demo", "-w", str(journey.space), "--now", NOW, "--format", "json", "--symbols")
    code, out, err = typed(capsys, *words, "SIM002,XYZX")
    assert code == 3
    assert [row["symbol"] for row in json.loads(out)] == ["SIM002"]
    assert "no data for XYZX" in err
    code, out, err = typed(capsys, *words, "XYZX")
    assert (code, out) == (1, "")
    assert "no data for XYZX" in err
    assert "Traceback" not in err


def test_a_moment_after_the_clock_shows_nothing_that_the_clock_hides(
    journey: Journey, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("predict", "-p", "demo", "-w", str(journey.space), "--format", "json", "--now", "2026-04-15T15:00:00Z")
    _, plain, _ = typed(capsys, *words)
    code, later, _ = typed(capsys, *words, "--as-of", "2026-04-28T15:00:00Z")
    assert code == 0
    assert json.loads(later)[0]["bar_ts"] == "2026-04-15T14:55:00Z"
    assert later == plain


def test_too_little_history_says_what_there_is_and_what_is_needed(
    journey: Journey, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = typed(capsys, "predict", "-p", "demo", "-w", str(journey.space), "--as-of", "2026-02-09T16:00:00Z")
    assert code == 1
    assert "too little history" in err
    assert "need" in err


def test_a_range_marks_bars_of_the_training_span(journey: Journey, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = typed(
        capsys,
        *("predict", "-p", "demo", "-w", str(journey.space), "--symbols", "SIM001", "--format", "json"),
        *("--start", "2026-03-09", "--end", "2026-05-01"),
    )
    assert code == 0
    rows = json.loads(out)
    notes = ["in training span" in row["note"] for row in rows]
    assert notes[0]
    assert not notes[-1]
    assert notes == sorted(notes, reverse=True)


def test_a_copied_workspace_keeps_its_verdict_to_itself(journey: Journey, tmp_path: Path) -> None:
    import shutil
    import subprocess
    import sys

    def stamps() -> dict[Path, int]:
        files = (path for path in journey.space.glob("mlruns/artifacts/**/*") if path.is_file())
        return {path: path.stat().st_mtime_ns for path in files}

    kept, new = stamps(), tmp_path / "new"
    shutil.copytree(journey.space, new)
    (report,) = new.glob("mlruns/artifacts/**/report.html")
    report.unlink()
    words = ("evaluate", "-p", "demo", "-w", str(new), "--set", "evaluate.bootstrap=100")
    # in a process of its own: MLflow remembers within one where the artifacts of a run lie
    subprocess.run([sys.executable, "-m", "klinepred", *words], check=True, capture_output=True, timeout=120)
    assert report.is_file()
    assert stamps() == kept
