"""In: predict, ingest, grade and drift as they are typed. Out: a ledger that fills and is graded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import klinepred as kp
from klinepred.live.ledger import PREDICTIONS, ledger_folder
from klinepred.live.table import scan
from tests.bars.made import utc
from tests.conftest import Typed
from tests.live.market import open_market, simulated

AT, NEXT = "2026-04-28T15:02:00Z", "2026-04-28T15:11:00Z"


def _stored(space: kp.Workspace) -> int:
    return scan(ledger_folder(space), PREDICTIONS).collect().height


def _until(bars: pl.DataFrame, stamp: str) -> pl.DataFrame:
    return bars.filter(pl.col("ts") < utc(stamp))


def test_live_predictions_are_kept_graded_and_shown(tmp_path: Path, typed: Typed) -> None:
    bars = simulated()
    space, bundle = open_market(tmp_path / "wörk 1", _until(bars, "2026-04-28T15:00"))
    place = ("-w", str(space.root))
    words = ("predict", "-p", "demo", *place, "--format", "json")

    for replay in (("--as-of", "2026-04-28T14:40:00Z"), ("--start", "2026-04-28", "--end", "2026-04-28T14:00:00Z")):
        assert typed(*words, *replay, "--now", AT)[0] == 0
    assert typed(*words, "--no-record", "--now", AT)[0] == 0
    assert not ledger_folder(space).exists()

    code, out, err = typed(*words, "--now", AT)
    assert (code, _stored(space)) == (0, 3)
    assert "ledger" not in err
    made = json.loads(out)
    assert {row["target_ts"] for row in made} == {"2026-04-28T15:00:00Z"}
    again = typed(*words, "--now", AT)
    assert "3 of this model were in it already, and the first stand" in again[2]
    late = typed(*words, "--now", NEXT)
    assert "3 are for bars that have finished already, so they are not live" in late[2]
    assert _stored(space) == 3

    path = tmp_path / "later.parquet"
    bars.filter(pl.col("ts") < utc("2026-04-28T15:05")).write_parquet(path)
    code, _, err = typed("ingest", str(path), *place, "--calendar", "XNYS", "--now", NEXT)
    assert (code, "ledger: 3 predictions graded" in err) == (0, True)

    code, out, err = typed("grade", *place, "--format", "json", "--now", NEXT)
    (found,) = json.loads(out)
    assert (code, found["model"], found["graded"], found["sessions"]) == (0, bundle.name, 3, 1)
    assert "3 of 3 predictions were made with --now" in err
    closes = {
        symbol: part["close"].to_list()
        for (symbol,), part in bars.filter(pl.col("ts").is_between(utc("2026-04-28T14:55"), utc("2026-04-28T15:00")))
        .sort("symbol", "ts")
        .group_by("symbol")
    }
    code, out, _ = typed("grade", *place, "--rows", "--format", "json", "--now", NEXT, "--model", "b" * 8)
    rows = json.loads(out)
    for row in rows:
        before, after = closes[row["symbol"]]
        realised = pl.select(pl.lit(after / before).log() * 1e4).item()
        assert row["realised_bps"] == pytest.approx(realised)
        assert row["inside"] == (row["lo80_bps"] <= realised <= row["hi80_bps"])
    code, out, _ = typed("grade", *place, "--by", "symbol", "--now", NEXT)
    assert code == 0
    assert [line.split()[1] for line in out.splitlines() if "SIM" in line] == ["SIM001", "SIM002", "SIM003"]


def test_grade_with_a_clock_shows_the_ledger_as_it_was_then(tmp_path: Path, typed: Typed) -> None:
    bars = simulated()
    space, _ = open_market(tmp_path, _until(bars, "2026-04-28T15:05"))
    place = ("-w", str(space.root))
    for now in (AT, "2026-04-28T15:06:00Z"):
        assert typed("predict", "-p", "demo", *place, "--now", now)[0] == 0
    assert typed("grade", *place, "--now", NEXT)[0] == 0

    def seen(now: str) -> list[tuple[str, bool]]:
        code, out, _ = typed("grade", *place, "--rows", "--no-mlflow", "--format", "json", "--now", now)
        assert code == 0
        return sorted((row["bar_ts"], row["realised_bps"] is not None) for row in json.loads(out))

    first = "2026-04-28T14:55:00Z"
    assert seen("2026-04-28T15:03:00Z") == [(first, False)] * 3  # before the second predictions, and all grades
    assert seen(NEXT)[:3] == [(first, True)] * 3
    assert len(seen(NEXT)) == 6
    code, _, err = typed("grade", *place, "--now", "2020-01-01")
    assert (code, "none yet" in err) == (1, True)


def test_a_damaged_part_of_the_ledger_is_told_in_words_and_ingest_shows_its_table_first(
    tmp_path: Path, typed: Typed
) -> None:
    bars = simulated()
    space, _ = open_market(tmp_path, _until(bars, "2026-04-28T15:00"))
    place = ("-w", str(space.root))
    assert typed("predict", "-p", "demo", *place, "--now", AT)[0] == 0
    (part,) = (ledger_folder(space) / "predictions").glob("*.parquet")
    part.write_bytes(bytes(part.stat().st_size))  # as long as before
    path = tmp_path / "later.parquet"
    bars.filter(pl.col("ts") < utc("2026-04-28T15:05")).write_parquet(path)
    code, out, err = typed("ingest", str(path), *place, "--calendar", "XNYS", "--now", NEXT)
    assert code == 0
    assert "SIM001" in out
    assert "the bars are stored, but live predictions are not graded" in err
    for words in (("grade",), ("drift", "-p", "demo")):
        code, _, err = typed(*words, *place, "--now", NEXT)
        assert code == 1
        assert "a data file that cannot be read" in err
        assert "do this:" in err
    code, out, err = typed("predict", "-p", "demo", *place, "--format", "json", "--now", AT)
    assert (code, len(json.loads(out))) == (3, 3)
    assert "are not in the ledger" in err


def test_a_damaged_part_of_the_store_is_told_in_words(tmp_path: Path, typed: Typed) -> None:
    space, _ = open_market(tmp_path, _until(simulated(), "2026-04-28T15:00"))
    for part in (space.data / "bars").rglob("*.parquet"):
        part.write_bytes(bytes(part.stat().st_size))
    for more in ((), ("--follow",)):
        code, out, err = typed("predict", "-p", "demo", "-w", str(space.root), "--now", AT, *more)
        assert (code, out) == (1, "")
        assert "expected: Parquet, as it was written" in err
        assert "Traceback" not in err


def test_a_ledger_that_cannot_be_written_costs_no_prediction(tmp_path: Path, typed: Typed) -> None:
    space, _ = open_market(tmp_path, _until(simulated(), "2026-04-28T15:00"))
    ledger_folder(space).write_text("in the way")
    code, out, err = typed("predict", "-p", "demo", "-w", str(space.root), "--format", "json", "--now", AT)
    assert code == 3
    assert len(json.loads(out)) == 3
    assert "these predictions are not in the ledger (--no-record leaves it out)" in err
    assert "Traceback" not in err


def test_grading_in_ingest_loads_neither_torch_nor_mlflow(tmp_path: Path, typed: Typed) -> None:
    bars = simulated()
    space, _ = open_market(tmp_path, _until(bars, "2026-04-28T15:00"))
    typed("predict", "-p", "demo", "-w", str(space.root), "--now", AT)
    bars.filter(pl.col("ts") < utc("2026-04-28T15:05")).write_parquet(tmp_path / "later.parquet")
    line = ["ingest", str(tmp_path / "later.parquet"), "-w", str(space.root), "--calendar", "XNYS", "--now", NEXT]
    loaded = "[name for name in ('torch', 'mlflow') if name in sys.modules]"
    code = f"import sys\nfrom klinepred.cli import main\nmain({line!r})\nprint({loaded})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "3 predictions graded" in done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_empty_ledger_and_an_unknown_model_are_told_in_words(tmp_path: Path, typed: Typed) -> None:
    code, _, err = typed("grade", "-w", str(tmp_path))
    assert (code, "got:      none yet" in err) == (1, True)
    space, bundle = open_market(tmp_path, _until(simulated(), "2026-04-28T15:00"))
    typed("predict", "-p", "demo", "-w", str(space.root), "--now", AT)
    code, _, err = typed("grade", "-w", str(space.root), "--model", "nobody")
    assert (code, bundle.name in err) == (1, True)


def test_drift_says_one_sentence_and_exits_with_0(tmp_path: Path, typed: Typed) -> None:
    space, bundle = open_market(tmp_path, simulated())
    words = ("drift", "-p", "demo", "-w", str(space.root), "--now", "2026-04-30T21:00:00Z")
    code, out, _ = typed(*words)
    assert code == 0
    assert out.splitlines()[0] == f"model {bundle.name}"
    assert out.splitlines()[-1].startswith("No need to retrain: ")
    code, out, err = typed(*words, "--format", "json")
    found = json.loads(out)
    assert (code, found["drifted"], found["model"]) == (0, False, bundle.name)
    assert err.strip().splitlines()[-1] == found["sentence"]
