"""In: a stored market, a model. Out: follow replayed over it says what predict says as of each close."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import klinepred as kp
from klinepred.bars.store import scan_bars
from klinepred.model.bundle import ModelBundle, save_bundle
from klinepred.model.novelty import Novelty
from klinepred.prediction import forecast
from tests.conftest import Typed
from tests.serving.market import open_market

NUMBERS = ["expected_return_bps", "p_up", "lo80_bps", "hi80_bps"]


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> tuple[kp.Workspace, ModelBundle]:
    return open_market(tmp_path_factory.mktemp("market"))


def words(space: kp.Workspace, *more: str) -> list[str]:
    return ["predict", "-p", "demo", "-w", str(space.root), "--follow", *more]


def as_of(space: kp.Workspace, bundle: ModelBundle, moment: datetime) -> pl.DataFrame:
    return forecast(bundle, scan_bars(space), as_of=moment, now=moment).rows


def test_a_replay_says_at_each_close_what_predict_says_as_of_it(
    market: tuple[kp.Workspace, ModelBundle], typed: Typed
) -> None:
    space, bundle = market
    # over a night and a weekend: Friday's last two bars, Monday's first three
    code, out, err = typed(
        *words(space, "--now", "2026-04-24T19:50:00Z", "--until", "2026-04-27T13:45:00Z", "--format", "json")
    )
    assert code == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    closes = [
        *(datetime(2026, 4, 24, 19, minute, tzinfo=UTC) for minute in (50, 55)),
        datetime(2026, 4, 24, 20, tzinfo=UTC),
        *(datetime(2026, 4, 27, 13, minute, tzinfo=UTC) for minute in (35, 40, 45)),
    ]
    assert [row["asof"] for row in rows] == [f"{close:%Y-%m-%dT%H:%M:%SZ}" for close in closes for _ in range(3)]
    for number, close in enumerate(closes):
        alone = as_of(space, bundle, close)
        mine = rows[3 * number : 3 * number + 3]
        assert [row["symbol"] for row in mine] == alone["symbol"].to_list()
        for name in NUMBERS:
            assert [row[name] for row in mine] == pytest.approx(alone[name].to_list(), abs=1e-6), name
    assert rows[8]["target_ts"] == "2026-04-27T13:30:00Z"
    assert "closed: the next bar ends at 2026-04-27 13:35Z" in err


def test_a_replay_abstains_where_predict_does(market: tuple[kp.Workspace, ModelBundle], typed: Typed) -> None:
    space, bundle = market
    size = len(bundle.feature_names)
    begin = datetime(2026, 4, 24, 19, 25, tzinfo=UTC)
    late = kp.build_features(scan_bars(space), universe=bundle.universe).frame.filter(pl.col("ts") >= begin)
    scores, _ = Novelty(np.zeros(size), np.eye(size), 0.0, 1_000).score(bundle.scaler.apply(late.head(30)))
    wary = replace(bundle, novelty=Novelty(np.zeros(size), np.eye(size), float(np.median(scores)), 1_000), name="wary")
    save_bundle(wary, space.trained / "wary")
    replay = ("--model", "wary", "--now", "2026-04-24T19:30:00Z", "--until", "2026-04-27T13:40:00Z", "--format", "json")
    code, out, err = typed(*words(space, *replay))
    assert code == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    closes = sorted({row["asof"] for row in rows})
    alone = pl.concat([as_of(space, wary, datetime.fromisoformat(close)) for close in closes])
    assert [row["note"] for row in rows] == alone["note"].to_list()
    assert [row["p_up"] is None for row in rows] == alone["p_up"].is_null().to_list()
    silent = sum(row["expected_return_bps"] is None for row in rows)
    assert 0 < silent < len(rows)
    assert silent == sum(row["note"].startswith("abstains: out of distribution") for row in rows)


def test_a_replay_without_an_end_ends_with_the_last_stored_bar(
    market: tuple[kp.Workspace, ModelBundle], typed: Typed, tmp_path: Path
) -> None:
    space, _ = market
    last = scan_bars(space).select(pl.col("ts").max()).collect().item() + timedelta(minutes=5)
    file = tmp_path / "rows.csv"
    code, out, _ = typed(*words(space, "--now", "2026-04-30T19:40:00Z", "-o", str(file)))
    assert (code, out) == (0, "")
    rows = pl.read_csv(file)
    assert rows["asof"].max() == f"{last:%Y-%m-%dT%H:%M:%SZ}"
    assert rows.height == 3 * 5
    # a second run with the same file goes on where the first ended: nothing twice
    code, _, _ = typed(*words(space, "--now", "2026-04-30T19:40:00Z", "-o", str(file)))
    assert code == 0
    assert pl.read_csv(file).equals(rows)


def test_a_line_that_was_cut_off_is_taken_away_and_written_again(
    market: tuple[kp.Workspace, ModelBundle], typed: Typed, tmp_path: Path
) -> None:
    space, _ = market
    file = tmp_path / "rows.jsonl"
    replay = words(space, "--now", "2026-04-30T19:50:00Z", "-o", str(file))
    assert typed(*replay)[0] == 0
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    code, _, err = typed(*replay)
    assert code == 0
    assert "ended within a line" in err
    assert file.read_bytes() == whole


def test_the_folder_of_the_file_is_made_and_a_file_of_another_form_is_left_alone(
    market: tuple[kp.Workspace, ModelBundle], typed: Typed, tmp_path: Path
) -> None:
    space, _ = market
    replay = words(space, "--now", "2026-04-30T19:55:00Z", "-o")
    assert typed(*replay, str(tmp_path / "new" / "rows.csv"))[0] == 0
    whole = (tmp_path / "new" / "rows.csv").read_bytes()
    assert whole.count(b"\n") == 1 + 2 * 3
    code, _, err = typed(*replay, str(tmp_path / "new" / "rows.csv"), "--format", "json")
    assert code == 2
    assert "got:      text that is no JSON, one object a line" in err
    assert (tmp_path / "new" / "rows.csv").read_bytes() == whole


def test_a_replay_can_ingest_as_it_goes(market: tuple[kp.Workspace, ModelBundle], typed: Typed, tmp_path: Path) -> None:
    copy = kp.Workspace(Path(shutil.copytree(market[0].root, tmp_path / "copy")))
    simulated = [
        *("--set", "data.simulate.symbols=3", "--set", "data.simulate.start=2026-03-18"),
        *("--set", "data.simulate.end=2026-05-01"),
    ]
    span = ["--now", "2026-05-01T13:31:00Z", "--until", "2026-05-01T13:40:00Z", "--ingest", "--format", "csv"]
    code, out, err = typed(*words(copy, *simulated, *span))
    assert code == 0, err
    rows = pl.read_csv(out.encode())
    asofs = ["2026-04-30T20:00:00Z", "2026-05-01T13:35:00Z", "2026-05-01T13:40:00Z"]
    assert rows["asof"].to_list() == [asof for asof in asofs for _ in range(3)]
    last = scan_bars(copy).select(pl.col("ts").max()).collect().item()
    assert last == datetime(2026, 5, 1, 13, 35, tzinfo=UTC)


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["--as-of", "2026-04-24"], "--as-of with --follow"),
        (["--top", "2"], "--top with --follow"),
        (["--format", "parquet"], "added one after another"),
        (["-o", "rows.txt"], "added one after another"),
        (["--now", "2026-04-24T19:00:00Z", "--ingest"], "--until, the last close"),
        (["--now", "2026-04-24T19:00:00Z", "--until", "2026-04-24T18:00:00Z"], "from 2026-04-24T19:00:00Z on"),
    ],
)
def test_what_does_not_go_with_follow_is_refused(
    more: list[str], part: str, market: tuple[kp.Workspace, ModelBundle], typed: Typed
) -> None:
    code, _, err = typed(*words(market[0], *more))
    assert code == 2
    assert part in err
    assert "do this:" in err


def test_options_of_follow_without_it_are_refused(market: tuple[kp.Workspace, ModelBundle], typed: Typed) -> None:
    code, _, err = typed("predict", "-p", "demo", "-w", str(market[0].root), "--until", "2026-04-24")
    assert code == 2
    assert "--until without --follow" in err


def test_neither_predict_nor_follow_loads_mlflow(market: tuple[kp.Workspace, ModelBundle]) -> None:
    where = ["predict", "-p", "demo", "-w", str(market[0].root), "--now", "2026-04-30T19:55:00Z", "--no-record"]
    code = (
        "import sys\nfrom klinepred.cli import main\n"
        f"assert main({where!r}) == 0\nassert main({[*where, '--follow']!r}) == 0\n"
        "assert 'mlflow' not in sys.modules, 'loaded'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("SIM001") == 1 + 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_live_run_with_its_code_and_whole_lines(
    number: signal.Signals, code: int, market: tuple[kp.Workspace, ModelBundle], tmp_path: Path
) -> None:
    file = tmp_path / "live.csv"
    words_ = [sys.executable, "-m", "klinepred", *words(market[0], "--no-ingest", "--no-record", "-o", str(file))]
    with subprocess.Popen(words_, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()  # it has said something of the newest bar, and waits
        while "rows into" not in first and "no prediction" not in first:
            first = process.stderr.readline()
        process.send_signal(number)
        err = process.stderr.read()
    assert process.returncode == code, err
    assert f"stopped by {number.name}" in err
    assert "Traceback" not in err
    assert not file.exists() or file.read_text().endswith("\n")
