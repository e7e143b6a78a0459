"""In: the name of something done to a store, the folder of its files. Out: it done; the program that is killed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from klinepred.bars.compaction import compact
from klinepred.bars.ingest import ingest
from klinepred.bars.store import scan_bars
from klinepred.bars.tables import QUARANTINE, scan_table
from klinepred.bars.undo import delete_bars, restore_bars
from klinepred.errors import KlinepredError
from klinepred.paths import Workspace
from tests.bars.made import NOW, flat, from_files, rows, utc, walk

SYMBOLS: Final = tuple(f"S{number:02d}" for number in range(20))


@dataclass(frozen=True)
class State:
    """What a store holds: bars with their calendar, the quarantine; both in one order."""

    bars: pl.DataFrame
    quarantine: pl.DataFrame

    def same(self, other: State) -> bool:
        """Whether both hold the same rows."""
        return self.bars.equals(other.bars) and self.quarantine.equals(other.quarantine)


def state_of(space: Workspace) -> State:
    """Everything stored; no rows where nothing is."""
    quarantine = scan_table(space.data, QUARANTINE).collect()
    try:
        bars = scan_bars(space).collect()
    except KlinepredError:
        bars = pl.DataFrame()
    return State(
        bars.with_columns(pl.col("calendar").cast(pl.String)) if bars.width else bars, quarantine.sort(pl.all())
    )


def make_files(folder: Path, *, days: int = 60) -> None:
    """Write what the deeds need into `folder`: files of bars, and the store `base` that most of them begin with."""
    whole = walk(SYMBOLS, start="2026-01-05", days=days)
    middle = whole["ts"].unique().sort()[len(whole["ts"].unique()) * 2 // 3]
    old, new = whole.filter(pl.col("ts") < middle), whole.filter(pl.col("ts") >= middle)
    bad = rows(flat("S00", "2026-01-05T23:00:00"), flat("S01", "2026-01-05T14:31:00"))
    revised = old.with_row_index().with_columns(
        volume=pl.when(pl.col("index") % 97 == 0).then(pl.col("volume") + 1.0).otherwise("volume")
    )
    prices = ("open", "high", "low", "close")
    split = whole.filter(pl.col("symbol").is_in(SYMBOLS[:4]) & (pl.col("ts") >= middle - pl.duration(days=5)))
    pl.concat([whole, bad]).write_parquet(folder / "whole.parquet")
    old.write_parquet(folder / "old.parquet")
    new.write_parquet(folder / "new.parquet")
    pl.concat([revised.drop("index"), new, bad]).write_parquet(folder / "revised.parquet")
    split.with_columns(pl.col(*prices) / 2.0, pl.col("volume") * 2.0).write_parquet(folder / "split.parquet")
    for number in range(3):
        part = whole.filter(pl.col("symbol").is_in(SYMBOLS[number::3]))
        part.write_parquet(folder / f"part{number}.parquet")
    base = Workspace(folder / "base")
    ingest(from_files(folder / "old.parquet"), base, now=NOW)
    ingest(from_files(folder / "part0.parquet"), base, now=NOW)


def _take(*names: str, rescale: str = "confirmed") -> Callable[[Workspace, Path], object]:
    def take(space: Workspace, folder: Path) -> object:
        report = ingest(from_files(*(folder / f"{name}.parquet" for name in names), rescale=rescale), space, now=NOW)
        if report.exit_code:
            raise SystemExit(report.exit_code)
        return report

    return take


DEEDS: Final[dict[str, Callable[[Workspace, Path], object]]] = {
    "fresh": _take("whole"),
    "new": _take("new"),
    "revised": _take("revised"),
    "split": _take("split", rescale="always"),
    "several": _take("part0", "part1", "part2"),
    "delete": lambda space, _: delete_bars(space, SYMBOLS[2:9], start=utc("2026-01-20T00:00:00")),
    "restore": lambda space, _: restore_bars(space, 0),
    "compact": lambda space, _: compact(space, most=1),
}
FROM_NOTHING: Final = ("fresh", "several")
IN_STEPS: Final = ("several", "compact")
"""Deeds of several commits: stopped in between, the store is neither as before nor as after."""


def main() -> int:
    """`deeds NAME SPACE FOLDER`: say `ready`, wait for a line, do it."""
    name, space, folder = sys.argv[1:]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    try:
        DEEDS[name](Workspace(space), Path(folder))
    except KlinepredError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
