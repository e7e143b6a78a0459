"""In: a seed and a count. Out: so many mutants of the rooms where errors cost money, tried; exit 1 below the share.

`python -m tests.mutation --seed 7 --mutants 300`. What is found out is written at once, so that a run that was
interrupted goes on where it was; `--again` tries those once more that survived.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from tests.mutation.bench import Bench
from tests.mutation.results import figures, is_equivalent, key, known, say, write
from tests.mutation.rooms import PARTS, PRELOAD, ROOMS
from tests.mutation.sample import Trial, count_spots, sample

ROOT: Final = Path(__file__).parents[2]
WANTED: Final = 0.85
"""The share of the mutants that must be killed."""


def main() -> None:
    """Try what is not tried yet, and say the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--mutants", type=int, default=300, help="how many, all rooms together")
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "mutation.jsonl")
    parser.add_argument("--again", action="store_true", help="try once more what survived and is not judged equivalent")
    parser.add_argument("--trust", type=float, help="seconds a mutant; the tests are known to pass as the code is")
    parser.add_argument("--show", action="store_true", help="try nothing: say the survivors and the figures")
    options = parser.parse_args()
    rooms = {name: ROOMS[name] for name in options.rooms}
    verdicts = known(options.results)
    bench = None if options.show else Bench(ROOT, parts=PARTS, preload=PRELOAD, trust=options.trust)

    def counts(trial: Trial) -> bool:
        found = verdicts.get(key(trial.mutant))
        again = options.again and not is_equivalent(trial.mutant)
        stands = found is not None and not (again and found.outcome in ("survived", "error"))
        if bench is not None and not stands:
            found = verdicts[key(trial.mutant)] = bench.try_out(trial.mutant, trial.tests)
            write(options.results, trial, found)
            print(f"{found.outcome:8} {found.seconds:6.1f} s  {_line(trial)}", flush=True)
        return found is None or found.outcome != "void"

    with bench or nullcontext():
        trials = list(sample(ROOT, rooms, seed=options.seed, count=options.mutants, counts=counts))
    for trial in trials:
        found = verdicts.get(key(trial.mutant))
        if found is not None and found.outcome not in ("killed", "timeout"):
            word = "equivalent" if is_equivalent(trial.mutant) else found.outcome
            print(f"\n{word}: {_line(trial)}\n  - {trial.mutant.was}\n  + {trial.mutant.now}")
    table = figures(trials, verdicts)
    population = sum(count_spots(ROOT, modules) for modules in rooms.values())
    print(f"\nseed {options.seed}, {len(trials)} of some {population} mutants\n\n{say(table)}")
    total = table.get("all", {"mutants": 0, "killed": 0})
    sys.exit(0 if total["mutants"] == len(trials) and total["killed"] >= WANTED * total["mutants"] else 1)


def _line(trial: Trial) -> str:
    return f"{trial.room}: {trial.mutant.module} {trial.mutant.spot}"


if __name__ == "__main__":
    main()
