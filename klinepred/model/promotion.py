"""In: a trained model, its certificate and verdict. Out: the champion of its pipeline, or the reason why not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from klinepred.errors import ModelError
from klinepred.model.bundle import read_table
from klinepred.model.shelf import CHAMPION, champions
from klinepred.paths import Workspace, write_atomic

LOCK_S: Final = 60.0
"""How long to wait for another promotion in the same workspace, seconds."""
VERDICT: Final = "verdict.json"
"""What `klinepred evaluate` leaves beside a bundle."""
RANK: Final = {"EDGE": 3, "NO EDGE": 2, "NOT ENOUGH DATA": 1, "SUSPICIOUSLY GOOD": 0}
"""Of two verdicts the one with the higher rank is the better one."""


@dataclass(frozen=True)
class Promotion:
    """What a promotion did.

    Attributes
    ----------
    before
        The champion of the pipeline until now; None = there was none.
    overruled
        What stood against it and was overruled with `force`; empty = nothing.
    run_id
        MLflow run that made the model; empty = none did.
    """

    model: str
    pipeline: str
    verdict: str
    before: str | None
    overruled: tuple[str, ...]
    run_id: str = ""


def promote(space: Workspace, folder: Path, *, force: bool = False, now: datetime | None = None) -> Promotion:
    """Make a model of the shelf the one that its pipeline predicts with.

    Parameters
    ----------
    folder
        A folder of `space.trained`.
    force
        Promote although something stands against it; what did is kept in champion.json.

    Raises
    ------
    ModelError
        The model is not of this workspace; or, without `force`: its leak certificate is lacking or failed, it has no
        verdict yet, it is suspiciously good, or its verdict is worse than that of the champion.
    """
    if folder.resolve().parent != space.trained.resolve():
        raise ModelError(
            f"promotion of {folder}",
            expected=f"a model in {space.trained}",
            got="one that lies elsewhere",
            do=f"copy its folder into {space.trained} first",
        )
    table = read_table(folder)
    pipeline = str(table.get("pipeline", {}).get("name", ""))
    stamp = (now or datetime.now(UTC)).isoformat(timespec="seconds").replace("+00:00", "Z")
    try:
        with FileLock(space.trained / f".{CHAMPION}.lock", timeout=LOCK_S):  # another pipeline's promotion may be at it
            best = champions(space)
            before = best.get(pipeline)
            found = stands_against(folder, None if before in (None, folder.name) else space.trained / str(before))
            if found and not force:
                raise ModelError(
                    f"promotion of {folder.name}",
                    expected="a passed leak certificate and a verdict no worse than the champion's",
                    got="; ".join(found),
                    do=f"run klinepred evaluate {folder.name}, or promote it all the same with --force",
                )
            record = {
                "model": folder.name,
                "pipelines": {**best, pipeline: folder.name},
                "promoted": stamp,
                "before": before,
                "overruled": found,
            }
            write_atomic(space.trained / CHAMPION, json.dumps(record, ensure_ascii=False, indent=2) + "\n")
    except (OSError, Timeout) as error:
        raise ModelError(
            f"{space.trained / CHAMPION}", expected="a file that can be written", got=str(error), do="mend permissions"
        ) from error
    word = str((read_verdict(folder) or {}).get("verdict", "none"))
    run_id = str(table.get("provenance", {}).get("run_id") or "")
    return Promotion(folder.name, pipeline, word, before, tuple(found), run_id)


def read_verdict(folder: Path) -> dict[str, Any] | None:
    """The verdict that lies beside a model; None where it was never evaluated, or the file is damaged."""
    try:
        table = json.loads((folder / VERDICT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return table if isinstance(table, dict) and table.get("verdict") in RANK else None


def stands_against(folder: Path, rival: Path | None) -> list[str]:
    """What stands against promoting a model, in words; `rival` is the champion, None = there is none.

    Raises
    ------
    ModelError
        The model cannot be read.
    """
    return _against(read_table(folder), read_verdict(folder), None if rival is None else read_verdict(rival))


def _against(table: dict[str, Any], verdict: dict[str, Any] | None, rival: dict[str, Any] | None) -> list[str]:
    certificate = str(table.get("provenance", {}).get("leak_certificate") or "")
    out = []
    if not certificate.startswith("passed"):
        out.append(f"its leak certificate {'failed' if certificate.startswith('failed') else 'is lacking'}")
    if verdict is None:
        return [*out, "it has no verdict yet"]
    if verdict["verdict"] == "SUSPICIOUSLY GOOD":
        out.append("its verdict is SUSPICIOUSLY GOOD")
    elif rival is not None and RANK[verdict["verdict"]] < RANK[rival["verdict"]]:
        out.append(f"its verdict is {verdict['verdict']}, the champion's {rival['verdict']}")
    return out
