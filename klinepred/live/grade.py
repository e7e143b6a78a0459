"""In: a ledger and the bars that came since. Out: a grade for each prediction whose bar has come, appended once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import polars as pl

from klinepred.bars.commits import list_versions, read_commit
from klinepred.bars.lock import WAIT_S, writer
from klinepred.bars.store import store_version
from klinepred.bars.tables import BARS
from klinepred.live.ledger import KEY, PREDICTIONS, ledger_folder
from klinepred.live.outcome import outcomes
from klinepred.live.table import Table, append, reading, scan, version
from klinepred.paths import Workspace, write_atomic
from klinepred.schema import BAR, TS

GRADES: Final = Table(
    "grades",
    {
        "model": pl.String(),
        "run_id": pl.String(),
        "symbol": pl.String(),
        "bar_ts": TS,
        "revision": pl.Int64(),
        "graded_at": TS,
        "store_version": pl.Int64(),
        "session": pl.Date(),
        "session_end": TS,
        "kind": pl.Int64(),
        "realised_bps": pl.Float64(),
        "raw_bps": pl.Float64(),
        "vol_bps": pl.Float64(),
        "hit": pl.Boolean(),
        "inside": pl.Boolean(),
        "reason": pl.String(),
    },
)
"""Of several grades of one prediction the one with the highest `revision` counts; see `klinepred.live.outcome`."""
RETRY: Final = timedelta(days=60)
"""So long bars that were missing are looked for again."""
SAME_BPS: Final = 1e-4
"""A return that moved by less was not revised: rounding of a split, sums taken from another bar on."""
STATE: Final = "graded.json"
_PLAIN: Final = {"ingest", "compact", "settings"}


@dataclass(frozen=True)
class Graded:
    """What one pass of grading did.

    Attributes
    ----------
    graded, ungradable
        Predictions that got their first grade, and those that got a reason instead.
    revised
        Predictions graded anew, since stored bars were revised or came late.
    waiting
        Predictions whose bar has finished but is not stored yet.
    """

    graded: int = 0
    ungradable: int = 0
    revised: int = 0
    waiting: int = 0

    def sentence(self) -> str:
        """One plain line; empty where nothing was done."""
        parts = [f"{self.graded:,} predictions graded"] if self.graded else []
        if self.ungradable:
            parts.append(f"{self.ungradable:,} cannot be graded (klinepred grade --rows says why)")
        if self.revised:
            parts.append(f"{self.revised:,} graded anew after a revision of the bars")
        return "ledger: " + ", ".join(parts) if parts else ""


def grade_open(space: Workspace, *, now: datetime | None = None) -> Graded:
    """Grade what can be graded by now; costs next to nothing where there is no ledger or nothing is open.

    A grade is a row of its own beside the prediction, which stays as it is. Where stored bars were revised since, a
    prediction whose return moved gets another grade; a bar that is gone from the store takes no grade away. What
    could not be graded is tried again for 60 days.

    Parameters
    ----------
    now
        The clock (aware); default: the machine's.

    Raises
    ------
    StoreError
        The store or the ledger is damaged, or the ledger cannot be written.
    """
    folder = ledger_folder(space)
    if not folder.is_dir() or (made := version(folder, PREDICTIONS)) < 0 or (bars := store_version(space)) is None:
        return Graded()
    clock = datetime.now(UTC) if now is None else now.astimezone(UTC)
    state = _read_state(folder)
    same = state.get("predictions") == made
    revised = _revised_since(space, state["store"] if state else _last_store(folder))
    oldest = state.get("oldest_open")
    if same and not revised and oldest is None:
        return Graded()
    since = datetime.fromisoformat(oldest) if same and not revised and oldest else None
    with reading(folder):
        rows = scan(folder, PREDICTIONS, since=since).collect()
    rows = rows.join(latest_grades(space, since=since), on=KEY, how="left", nulls_equal=True, maintain_order="left")
    retry = pl.col("reason").is_not_null() & (pl.col("target_ts") + RETRY > pl.lit(clock, TS))
    new = pl.col("revision").is_null()
    due = rows.filter((pl.col("target_ts") + BAR <= pl.lit(clock, TS)) & (new | retry | pl.lit(revised)))
    fresh, waiting = _grades(due, space, clock=clock, bars=bars)
    if fresh.height:
        with writer(folder, wait_s=WAIT_S), reading(folder):
            keys = [*KEY, "revision"]
            low: Any = fresh.get_column("bar_ts").min()
            have = scan(folder, GRADES, since=low).select(keys).collect()
            fresh = fresh.join(have, on=keys, how="anti", nulls_equal=True, maintain_order="left")
            if fresh.height:  # another process may have graded the same
                append(folder, GRADES, fresh)
    settled = fresh.filter(pl.col("reason").is_null()).select(*KEY, _done=True)
    left = rows.join(settled, on=KEY, how="left", nulls_equal=True).filter(pl.col("_done").is_null() & (new | retry))
    end: Any = left.get_column("bar_ts").min()
    table = {"predictions": made, "store": bars, "oldest_open": None if end is None else end.isoformat()}
    write_atomic(folder / STATE, json.dumps(table))
    anew = pl.col("revision") > 0
    failed = ~anew & pl.col("reason").is_not_null()
    graded, ungradable, again = fresh.select(ok=(~anew & ~failed).sum(), failed=failed.sum(), anew=anew.sum()).row(0)
    return Graded(int(graded), int(ungradable), int(again), waiting)


def latest_grades(space: Workspace, *, since: datetime | None = None, now: datetime | None = None) -> pl.DataFrame:
    """The grade that counts of each graded prediction: the columns of `GRADES`, without its `store_version`.

    Parameters
    ----------
    now
        As they were then (aware): later ones are left out. Default: all.
    """
    folder = ledger_folder(space)
    graded = scan(folder, GRADES, since=since).drop("store_version")
    with reading(folder):
        rows = (
            graded if now is None else graded.filter(pl.col("graded_at") <= pl.lit(now.astimezone(UTC), TS))
        ).collect()
    return rows.sort("revision").unique(KEY, keep="last", maintain_order=True)


def _grades(due: pl.DataFrame, space: Workspace, *, clock: datetime, bars: int) -> tuple[pl.DataFrame, int]:
    """Rows for `GRADES`, and how many predictions still wait for their bar."""
    schema = dict(GRADES.schema)
    if due.is_empty():
        return pl.DataFrame(schema=schema), 0
    before = {name: f"_{name}" for name in ("realised_bps", "raw_bps", "reason")}
    clean = due.rename(before).drop("kind", "session", "session_end", "vol_bps", "hit", "inside", "graded_at")
    found = outcomes(clean, space, now=clock)
    first = pl.col("revision").is_null() & ~pl.col("open")
    moved = pl.any_horizontal(
        pl.col(name).is_not_null()
        & (pl.col(f"_{name}").is_null() | ((pl.col(name) - pl.col(f"_{name}")).abs() > SAME_BPS))
        for name in ("realised_bps", "raw_bps")
    )
    again = pl.col("revision").is_not_null() & ~pl.col("open") & moved
    waiting = found.filter(pl.col("revision").is_null() & pl.col("open")).height
    found = found.filter(first | again)
    sign = pl.col("expected_return_bps").sign() * pl.col("realised_bps").sign()
    rows = found.with_columns(
        revision=pl.col("revision").fill_null(-1) + 1,
        graded_at=pl.lit(clock, TS),
        store_version=pl.lit(bars, pl.Int64),
        hit=pl.when(sign != 0.0).then(sign > 0.0),
        inside=pl.col("raw_bps").is_between("lo80_bps", "hi80_bps"),
    )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in schema.items()), waiting


def _last_store(folder: Path) -> int | None:
    """The newest version of the bar store that something was graded by; None = nothing was."""
    with reading(folder):
        found: Any = scan(folder, GRADES).select(pl.col("store_version").max()).collect().item()
    return None if found is None else int(found)


def _revised_since(space: Workspace, number: int | None) -> bool:
    """Whether stored bars changed (not: were added) after version `number` of the store."""
    if number is None:
        return False
    folder = space.store / BARS
    versions = list_versions(folder)
    if number not in versions:
        return True
    commits = (read_commit(folder, one) for one in versions if one > number)
    return any(one.operation not in _PLAIN or one.note.get("revised", "0") != "0" for one in commits)


def _read_state(folder: Path) -> dict[str, Any]:
    """What the last pass left, so that the next need not read the ledger; empty where it is not known."""
    try:
        table = json.loads((folder / STATE).read_text(encoding="utf-8"))
        oldest = table["oldest_open"]
        if oldest is not None:
            datetime.fromisoformat(oldest)
        return {"predictions": int(table["predictions"]), "store": int(table["store"]), "oldest_open": oldest}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
