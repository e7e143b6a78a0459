"""In: files of every form, damaged by chance. Out: none ends in a traceback, a hang or an impossible bar."""

from __future__ import annotations

import os
import time
from pathlib import Path

import polars as pl
import pytest

from tests.bars.fuzz.campaign import campaign
from tests.bars.fuzz.inputs import make
from tests.bars.fuzz.oracle import judge_bars, judge_folder
from tests.bars.made import ROUND, walk

SOAK = os.environ.get("KLINEPRED_SOAK") == "1"
COUNT = int(os.environ.get("KLINEPRED_FUZZ", "100000" if SOAK else "120"))
SEED = int(os.environ.get("KLINEPRED_SEED", "11"))


@pytest.mark.timeout(6 * 3600 if SOAK else 300)
def test_hostile_files_never_end_in_a_traceback_a_hang_or_an_impossible_bar(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = campaign(COUNT, seed=SEED, workers=(os.cpu_count() or 1) if SOAK else 1)
    if SOAK:
        with capsys.disabled():
            print(f"\nfuzz of the readers, seed {SEED}: {outcome}")
    assert not outcome.faults, f"{outcome.faults[:5]}; inputs under {outcome.failures}"
    assert outcome.inputs == COUNT
    assert outcome.past >= 0.3 * COUNT


def test_an_input_is_the_same_each_time_it_is_made() -> None:
    first = [make(3, number) for number in range(400)]
    time.sleep(2.0)  # the clock of zip files ticks every other second
    assert first == [make(3, number) for number in range(400)]
    assert first[14] != first[15]


@pytest.mark.parametrize(
    "spoil",
    [
        pl.col("ts") + pl.duration(minutes=1),
        (pl.col("high") - 5.0).alias("high"),
        (pl.col("volume") * -1.0).alias("volume"),
        (pl.col("close") * float("inf")).alias("close"),
        pl.lit("A\u200fB").alias("symbol"),
        pl.lit("../evil").alias("symbol"),
        pl.lit(walk(["A"], days=1)["ts"][0]).alias("ts"),
    ],
)
def test_the_judge_of_the_fuzz_sees_each_kind_of_fault(spoil: pl.Expr) -> None:
    good = walk(["A"], days=1)
    assert not list(judge_bars(good, "XNYS"))
    assert list(judge_bars(good.with_columns(spoil), "XNYS"))


def test_the_judge_of_the_fuzz_sees_bars_outside_the_sessions() -> None:
    assert list(judge_bars(walk(["A"], days=1, clock=ROUND), "XNYS"))
    assert not list(judge_bars(walk(["A"], days=1, clock=ROUND), "24/7"))


@pytest.mark.parametrize("name", ["evil", "space/evil", "space/data/bars/AAPL", "tmp/copy.csv"])
def test_the_judge_of_the_fuzz_sees_files_left_behind(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    assert [text for text in judge_folder(tmp_path, {"space", "tmp"}) if repr(name) in text]
