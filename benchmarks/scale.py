"""In: simulated markets of 1 to 50 million bars. Out: seconds and memory per million of each stage; two workers' gain.

50 M bars are 500 symbols x 5 years. Smaller markets have fewer symbols over the same five years (--cut symbols): a
prediction, which costs by symbol, can then be put on the same scale, and every size has the history that features,
targets and a split need, which 500 symbols over a tenth of a year have not. --cut years: 500 symbols over fewer years.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from benchmarks.scale_stages import END
from benchmarks.scale_workers import two_workers
from klinepred.dataset.memory import free_bytes

MOST: Final = 50
SYMBOLS, DAYS = 500, 1826
STAGES: Final = ("ingest", "features", "epoch", "predict")
DATASET_GIB: Final = 0.18
"""What making a dataset takes a million bars of its own, its matrix in a file: sizes that do not fit are left out."""


@dataclass(frozen=True)
class Cell:
    """A stage at a size: seconds, those of processor time, highest memory in GiB, millions of bars in the store.

    `peak_gib` counts pages of mapped files, `own_gib` does not.
    """

    seconds: float
    cpu_seconds: float
    peak_gib: float
    own_gib: float
    millions: float

    @property
    def seconds_per_m(self) -> float:
        """Seconds a million bars."""
        return self.seconds / self.millions

    @property
    def cpu_per_m(self) -> float:
        """Seconds of processor time a million bars: what other work on the machine changes least."""
        return self.cpu_seconds / self.millions

    @property
    def gib_per_m(self) -> float:
        """Peak memory a million bars."""
        return self.peak_gib / self.millions

    @property
    def own_per_m(self) -> float:
        """Peak of its own memory a million bars."""
        return self.own_gib / self.millions


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1,5,10,50", help="millions of bars, such as 1,5")
    parser.add_argument("--quick", action="store_true", help="1 and 3 M bars: end within two minutes on two cores")
    parser.add_argument(
        "--cut", choices=["symbols", "years"], default="symbols", help="what smaller markets have less of"
    )
    parser.add_argument("--form", choices=["parquet", "csv"], default="parquet", help="of the files that are taken in")
    parser.add_argument("--stages", default=",".join(STAGES), help="which of them; a stage needs those before it")
    parser.add_argument("--no-workers", action="store_true", help="leave two workers against one out")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder for files and stores (default: a temporary one)"
    )
    words = parser.parse_args()
    sizes = [1.0, 3.0] if words.quick else [float(text) for text in words.sizes.split(",")]
    stages = [stage for stage in STAGES if stage in words.stages.split(",")]
    table: dict[str, dict[float, Cell]] = {stage: {} for stage in stages}
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=words.data) as folder:
            for stage, cell in market(Path(folder), size, cut=words.cut, form=words.form, stages=stages).items():
                table[stage][size] = cell
    show(table, sizes)
    workers = {} if words.no_workers else two_workers(quick=words.quick)
    print(json.dumps({**summary(table, sizes), **workers}))


def market(root: Path, size: float, *, cut: str, form: str, stages: Sequence[str]) -> dict[str, Cell]:
    """All stages on a market of `size` million bars, each in a process of its own."""
    share = size / MOST
    symbols = max(8, round(SYMBOLS * share)) if cut == "symbols" else SYMBOLS
    days = DAYS if cut == "symbols" else round(DAYS * share)
    made = stage_of(root, "make", str(symbols), (END - timedelta(days=days)).isoformat(), form)
    millions = made["rows"] / 1e6
    print(
        f"{symbols} symbols x {days / 365.25:.2g} years: {made['rows']:,.0f} bars, {made['bytes'] / 1e6:,.0f} MB {form}"
        f", in {made['s']:.0f} s, {made['peak_gib']:.2f} GiB"
    )
    cells = {}
    for stage in stages:
        free = free_bytes()
        if stage == "epoch" and free is not None and DATASET_GIB * millions * 2**30 > 0.8 * free:
            print(f"epoch: wants some {DATASET_GIB * millions:.0f} GiB, {free / 2**30:.0f} are free: left out")
            continue
        found = stage_of(root, stage)
        if stage in ("ingest", "features"):
            assert found["rows"] == made["rows"], f"{stage}: not every bar came through"  # noqa: S101
        cells[stage] = Cell(found["s"], found["cpu_s"], found["peak_gib"], found["own_gib"], millions)
        more = f", {found['bytes'] / made['rows']:.0f} bytes a bar" if "bytes" in found else ""
        more += f" (batches alone {found['epoch_s']:.1f} s, {found['labels']:,.0f} labels)" if "labels" in found else ""
        print(
            f"{stage}: {found['s']:.1f} s ({found['cpu_s']:.1f} of processor), {found['peak_gib']:.2f} GiB"
            f" ({found['own_gib']:.2f} its own, {found['start_gib']:.2f} libraries){more}"
        )
        if stage == "ingest":
            shutil.rmtree(root / "files")
    return cells


def stage_of(root: Path, stage: str, *more: str) -> dict[str, float]:
    """What `benchmarks.scale_stages` says of a stage."""
    line = [sys.executable, "-m", "benchmarks.scale_stages", stage, str(root), *more]
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{stage} ended with {done.returncode}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def show(table: dict[str, dict[float, Cell]], sizes: Sequence[float]) -> None:
    """Per million bars: a row a stage, a column a size; the largest over the smallest, and the worst growth."""
    values = (
        ("seconds", "seconds_per_m"),
        ("CPU seconds", "cpu_per_m"),
        ("GiB at the peak", "gib_per_m"),
        ("GiB of its own", "own_per_m"),
    )
    for title, value in values:
        print(f"\n{title} per M bars" + "".join(f"{size:>9g} M" for size in sizes) + "   max/min    growth")
        for stage, cells in table.items():
            row = [getattr(cells[size], value) if size in cells else None for size in sizes]
            known = [one for one in row if one is not None]
            texts = "".join(f"{'-' if one is None else f'{one:.3f}':>11}" for one in row)
            print(
                f"{stage:<{len(title) + 11}}{texts}"
                + (f"{max(known) / min(known):10.2f}{growth(known):10.2f}" if known else "")
            )


def growth(values: Sequence[float]) -> float:
    """The most by which a larger size costs more a million than a smaller one; 1 = never more."""
    return max([1.0, *(late / early for spot, early in enumerate(values) for late in values[spot + 1 :])])


def summary(table: dict[str, dict[float, Cell]], sizes: Sequence[float]) -> dict[str, object]:
    """Keys for machines: sums over the stages that every size has; by stage in lists, a size each."""
    both = [stage for stage, cells in table.items() if all(size in cells for size in sizes)]
    first, last = (round(sum(table[stage][size].seconds_per_m for stage in both), 3) for size in (sizes[0], sizes[-1]))
    cells = [cell for row in table.values() for cell in row.values()]
    return {
        "s_per_M_first": first,
        "s_per_M_last": last,
        "stages": both,
        "largest_M": max((round(cell.millions, 2) for cell in cells), default=0),
        "peak_gib": max((round(cell.peak_gib, 2) for cell in cells), default=0),
        "s_per_M": {stage: [round(cell.seconds_per_m, 3) for cell in row.values()] for stage, row in table.items()},
        "cpu_s_per_M": {stage: [round(cell.cpu_per_m, 3) for cell in row.values()] for stage, row in table.items()},
        "own_gib_per_M": {stage: [round(cell.own_per_m, 3) for cell in row.values()] for stage, row in table.items()},
        "gib_per_M": {stage: [round(cell.gib_per_m, 3) for cell in row.values()] for stage, row in table.items()},
    }


if __name__ == "__main__":
    main()
