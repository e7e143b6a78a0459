"""In: the versions that somebody names, an age. Out: the disk without the data files of all other versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import unquote

from klinepred.bars.commits import LOG, Commit, read_commits
from klinepred.bars.history import walk_versions
from klinepred.bars.lock import WAIT_S
from klinepred.bars.tables import BARS, QUARANTINE, SYMBOLS
from klinepred.bars.turn import store_writer
from klinepred.errors import StoreError
from klinepred.objects import Place, inner_name
from klinepred.paths import Workspace

KEEP_DAYS: Final = 30


@dataclass(frozen=True)
class Vacuumed:
    """What a vacuum removes.

    Attributes
    ----------
    files
        Data files, and how many bytes they have in all.
    orphans
        How many of them no version names: left by a process that was killed.
    kept
        Each version that stays readable and why.
    lost
        Versions that could be read before and no longer can.
    """

    files: tuple[Place, ...]
    size: int
    orphans: int
    kept: Mapping[int, str]
    lost: tuple[int, ...]


def vacuum(
    space: Workspace,
    *,
    named: Mapping[int, str],
    keep_days: float = KEEP_DAYS,
    now: datetime | None = None,
    rehearse: bool = False,
    wait_s: float = WAIT_S,
) -> Vacuumed:
    """Remove the data files that no version to be kept is made of. Never done but by the user's command.

    Kept are: the latest version, every version that was the latest at some moment of the last `keep_days` days, and
    those `named`. The log stays whole, so what was done stays known; the clocks of all versions stay too.

    Parameters
    ----------
    named
        Versions that models, runs or checkpoints were made from, and which ones.
    rehearse
        Only say what would be removed.

    Raises
    ------
    StoreError
        The log is damaged, another process writes, or a file cannot be removed.
    """
    at = datetime.now(UTC) if now is None else now
    folder = space.store / BARS
    if not folder.is_dir():
        return Vacuumed((), 0, 0, {}, ())
    with store_writer(space, wait_s=wait_s):
        commits = read_commits(folder)
        kept = _kept(commits, named, since=at - timedelta(days=keep_days))
        files = {inner_name(path, folder): path for path in _data_files(folder)}
        needed: set[str] = set()
        known: set[str] = set()
        for commit, live in walk_versions(commits):
            known.update(map(unquote, commit.added))
            if commit.version in kept:
                needed.update(map(unquote, live))
        lost = [
            commit.version
            for commit, live in walk_versions(commits)
            if commit.version not in kept
            and all(unquote(path) in files for path in live)
            and not all(unquote(path) in needed for path in live)
        ]
        gone = [path for name, path in sorted(files.items()) if name not in needed]
        stray = [path for name, path in files.items() if name not in known]
        for name in (SYMBOLS, QUARANTINE):  # small: all their versions stay
            named_there = {unquote(path) for commit in read_commits(space.store / name) for path in commit.added}
            stray += [path for path in _data_files(space.store / name) if path.name not in named_there]
        gone += [path for path in stray if path not in set(gone)]
        size = sum(path.stat().st_size for path in gone)
        if not rehearse:
            _remove(gone)
    return Vacuumed(tuple(gone), size, len(stray), kept, tuple(lost))


def _kept(commits: list[Commit], named: Mapping[int, str], *, since: datetime) -> dict[int, str]:
    versions = {commit.version for commit in commits}
    kept = {version: why for version, why in sorted(named.items()) if version in versions}
    young = {commit.version for commit in commits if commit.time >= since}
    before = [commit.version for commit in commits if commit.time < since]
    if before:
        young.add(before[-1])  # the latest one when the span began
    for version in young:
        kept.setdefault(version, "young")
    if commits:
        kept.setdefault(commits[-1].version, "latest")
        if kept[commits[-1].version] == "young":
            kept[commits[-1].version] = "latest"
    return dict(sorted(kept.items()))


def _data_files(folder: Place) -> list[Place]:
    return [path for path in folder.rglob("*.parquet") if LOG not in inner_name(path, folder).split("/")]


def _remove(files: list[Place]) -> None:
    for path in files:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"vacuum of {path}",
                expected="a file that can be removed",
                got=str(error),
                do="mend the permissions and run the same command again; what is needed is untouched",
            ) from error
