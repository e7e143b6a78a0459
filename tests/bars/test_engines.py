"""In: files, a simulated market, a Ray cluster on this machine. Out: claims that who reads changes nothing stored."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars import tables
from klinepred.bars.history import list_history
from klinepred.bars.store import list_symbols, scan_bars
from klinepred.cli import main
from klinepred.paths import Workspace
from tests.bars.made import walk
from tests.engine.clusters import alone
from tests.small_market import MARKET

BY_RAY = """
import json, logging, sys, ray
from klinepred.cli import main

quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "include_dashboard": False}
ray.init("local", num_cpus=2, _node_ip_address="127.0.0.1", **quiet)
for words in json.loads(sys.argv[1]):
    print("exit", main([*words, "--engine", "ray"]), flush=True)
"""


def csv(frame: pl.DataFrame) -> str:
    return frame.with_columns(pl.col("ts").dt.strftime("%Y-%m-%dT%H:%M:%SZ")).write_csv()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain and packed files with bad rows, repeats and revisions; one that is no file of bars."""
    home = tmp_path_factory.mktemp("delivered")
    frame = walk(["A", "B", "C"], days=8)
    of = {name: frame.filter(pl.col("symbol") == name) for name in "ABC"}
    (home / "1-a.csv").write_text(csv(of["A"]))
    with zipfile.ZipFile(home / "2-b.zip", "w") as box:
        box.writestr("first.csv", csv(of["B"].head(200)))
        box.writestr("none.csv", "nothing\n")
        box.writestr("rest.csv", csv(of["B"].slice(190)))
    crossed = of["C"].slice(5, 1).with_columns(low=pl.lit(1e4))
    shifted = of["C"].slice(9, 1).with_columns(pl.col("ts").dt.offset_by("2m"))
    (home / "3-c.csv").write_text(csv(pl.concat([of["C"], of["C"].head(7), crossed, shifted])))
    (home / "4-broken.parquet").write_bytes(b"PAR1 and no more")
    (home / "5-revised.csv").write_text(csv(of["A"].slice(50, 20).with_columns(pl.col("close") + 0.005)))
    return home


def stored(space: Workspace) -> list[pl.DataFrame]:
    """Bars, symbols, quarantine, and what the log says of each version."""
    log = list_history(space).drop("time")
    rest = tables.scan_table(space.store, tables.QUARANTINE).collect().sort(pl.all())
    return [scan_bars(space).collect(), list_symbols(space), rest, log]


@pytest.mark.timeout(900)
def test_ingest_by_ray_stores_says_and_commits_what_ingest_here_does(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.toml").write_text(MARKET, encoding="utf-8")
    told = []
    here, there = (Workspace(tmp_path / name) for name in ("here", "there"))
    words = [
        [*("ingest", str(files), "-w", "SPACE", "--calendar", "XNYS", "--now", "2026-11-30T00:00:00Z")],
        [*("ingest", str(files / "1-a.csv"), "-w", "SPACE", "--calendar", "XNYS", "--format", "json")],
        [*("ingest", str(files / "4-broken.parquet"), "-w", "SPACE", "--calendar", "XNYS")],
        [*("ingest", "-p", str(tmp_path / "small.toml"), "-w", "SPACE")],
    ]
    order = [[word if word != "SPACE" else str(here.root) for word in line] for line in words]
    for line in order:
        code = main(line)
        told.append(f"{capsys.readouterr().out}exit {code}")
    by_ray = [[word if word != "SPACE" else str(there.root) for word in line] for line in words]
    done = alone("-c", BY_RAY, json.dumps(by_ray))
    assert done.stdout == "".join(f"{text}\n" for text in told), done.stderr
    assert [text.splitlines()[-1] for text in told] == ["exit 3", "exit 0", "exit 1", "exit 0"]
    for mine, its in zip(stored(here), stored(there), strict=True):
        assert mine.equals(its)
    assert stored(here)[2].height == 2  # a crossed row, and one off the grid
    assert "4-broken.parquet: " in done.stderr
