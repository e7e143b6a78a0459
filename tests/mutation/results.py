"""In: verdicts, one at a time. Out: a file of lines that survives an interruption, and the figures of a sample."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.mutation.bench import Verdict
from tests.mutation.operators import Mutant
from tests.mutation.sample import Trial

EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")
"""Mutants that were looked at and change nothing that matters, each with its reason."""


def key(mutant: Mutant) -> str:
    """The same for the same change of the same source, and for no other."""
    return hashlib.sha256(f"{mutant.module}\n{mutant.code}".encode()).hexdigest()[:16]


def known(path: Path) -> dict[str, Verdict]:
    """Verdicts written so far, by `key`; of several about one mutant the last."""
    found: dict[str, Verdict] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        row = json.loads(line)
        found[row["key"]] = Verdict(row["outcome"], row["by"], row["seconds"])
    return found


def write(path: Path, trial: Trial, verdict: Verdict) -> None:
    """Add one."""
    mutant = trial.mutant
    row = {"key": key(mutant), "room": trial.room, "module": mutant.module, "spot": mutant.spot, **asdict(verdict)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({**row, "was": mutant.was, "now": mutant.now}) + "\n")


def equivalents() -> list[dict[str, str]]:
    """module, was, now, why of each."""
    found: list[dict[str, str]] = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", [])
    return found


def is_equivalent(mutant: Mutant) -> bool:
    """Whether it was judged so."""
    mine = (mutant.module, mutant.was, mutant.now)
    return any((row["module"], row["was"], row["now"]) == mine for row in equivalents())


def figures(trials: Sequence[Trial], verdicts: dict[str, Verdict]) -> dict[str, dict[str, Any]]:
    """By room and for `all`: mutants tried, killed (those that ran out of time among them), survived, equivalent."""
    table: dict[str, dict[str, Any]] = {}
    for trial in trials:
        verdict = verdicts.get(key(trial.mutant))
        if verdict is None:
            continue
        for name in (trial.room, "all"):
            row = table.setdefault(name, dict.fromkeys(("mutants", "killed", "timeout", "survived", "equivalent"), 0))
            row["mutants"] += 1
            row["killed"] += verdict.outcome in ("killed", "timeout")
            row["timeout"] += verdict.outcome == "timeout"
            row["survived"] += verdict.outcome == "survived"
            row["equivalent"] += verdict.outcome == "survived" and is_equivalent(trial.mutant)
    return {**{name: row for name, row in table.items() if name != "all"}, **({"all": table["all"]} if table else {})}


def say(table: dict[str, dict[str, Any]]) -> str:
    """The figures as a table for LOG.md."""
    lines = ["| room | mutants | killed | of these by time | survived | of these equivalent | killed of all |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name, row in table.items():
        share = f"{row['killed'] / row['mutants']:.1%}"
        cells = [name, *(str(row[k]) for k in ("mutants", "killed", "timeout", "survived", "equivalent")), share]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
