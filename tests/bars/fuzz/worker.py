"""In: a seed, a share of its inputs, a sandbox. Out: each taken in; counts as JSON on stdout, failing inputs kept."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import json
import logging
import os
import shutil
import sys
import time
import traceback
import warnings
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any, Final

import polars as pl

from klinepred.bars.batches import within
from klinepred.bars.check import check_bars
from klinepred.bars.clean import clean
from klinepred.bars.dry_run import dry_run
from klinepred.bars.ingest import ingest
from klinepred.bars.store import list_symbols, scan_bars, store_version
from klinepred.bars.supply import deliveries
from klinepred.bars.tables import QUARANTINE, scan_table
from klinepred.calendar import Clock, segments
from klinepred.cli import main as typed
from klinepred.errors import KlinepredError, StoreError
from klinepred.paths import Workspace
from klinepred.settings import DataSettings
from tests.bars.fuzz.inputs import Input, make
from tests.bars.fuzz.oracle import judge_bars, judge_folder, judge_report, judge_symbol, keys_of
from tests.bars.fuzz.watch import Watch
from tests.bars.made import NOW

FRESH_EVERY: Final = 25
"""After so many inputs the store begins anew."""
STOP_AFTER: Final = 20
"""Failing inputs after which a worker gives up."""


class FaultError(AssertionError):
    """Something that must never be."""


class Desk:
    """Where inputs are taken in: `in/` holds the files, `space/` the workspace, `tmp/` copies, `cwd/` nothing."""

    def __init__(self, sandbox: Path, watch: Watch) -> None:
        self.sandbox, self.watch = sandbox, watch
        for name in ("in", "space", "tmp", "cwd"):
            (sandbox / name).mkdir(parents=True, exist_ok=True)
        os.environ["TMPDIR"] = str(sandbox / "tmp")
        os.chdir(sandbox / "cwd")
        self.space = Workspace(sandbox / "space")

    def take(self, given: Input) -> tuple[bool, str]:
        """Whether bars or rows came past the header, and how it ended in a word."""
        for old in (self.sandbox / "in").iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        paths = []
        for name, content in given.files.items():
            path = self.sandbox / "in" / name
            path.write_bytes(content)
            paths.append(str(path))
        days = {key: date.fromisoformat(given.options[key]) for key in ("start", "end") if key in given.options}
        table = {**given.options, **days, "source": "files"}
        table["paths"] = (str(self.sandbox / "in"),) if given.folder else tuple(paths)
        data = DataSettings().model_copy(update=table)
        before = os.fstat(2).st_size
        self.watch.on = True
        try:
            past, word = getattr(self, f"_{given.mode.replace('-', '_')}")(data)
        except KlinepredError as error:
            past, word = False, type(error).__name__
            if not (error.expected and error.got and error.do):
                raise FaultError("a message without its three parts") from error
        finally:
            self.watch.on = False
        if self.watch.seen:
            seen, self.watch.seen = self.watch.seen, []
            raise FaultError("; ".join(seen[:5]))
        if os.fstat(2).st_size != before:
            raise FaultError("text on stderr")
        if left := list(judge_folder(self.sandbox, {"in", "space", "tmp", "cwd"})):
            raise FaultError("; ".join(left[:5]))
        return past, word

    def _read(self, data: DataSettings) -> tuple[bool, str]:
        clock = Clock(data.calendar, data.hours)
        segments(clock)
        past, good = False, 0
        for delivery in deliveries(data, clock, NOW):
            past |= delivery.understood is not None
            frame = within(delivery.frame, data.start, data.end, clock)
            cleaned = clean(frame, clock=clock, now=NOW)
            check_bars(cleaned.bars, clock=clock)
            _none(judge_bars(cleaned.bars, data.calendar, data.hours))
            count = cleaned.counts
            lost = frame.height - cleaned.bars.height - cleaned.rejects.height
            if lost != int(count.select(pl.sum("duplicates") + pl.sum("empty") + pl.sum("held")).item() or 0):
                raise FaultError(f"{lost} of {frame.height} rows are neither bars nor set aside nor counted")
            good += cleaned.bars.height
        return past, "bars" if good else "no bars"

    def _store(self, data: DataSettings) -> tuple[bool, str]:
        before, old = self._stored(), store_version(self.space)
        report = ingest(data, self.space, now=NOW)
        _none(judge_report(report))
        after = self._stored()
        gone = keys_of(before) - keys_of(after)  # those that newer bars show to be isolated price errors are set aside
        if not gone <= keys_of(scan_table(self.space.data, QUARANTINE).collect()):
            raise FaultError("stored bars are gone")
        if report.version != store_version(self.space):
            raise FaultError(f"the report names version {report.version}, the store has {store_version(self.space)}")
        added = after.height - before.height + len(gone)
        if added != sum(row.new for row in report.symbols):
            raise FaultError(f"{added} bars more in the store, another number in the report")
        if old == report.version and not after.equals(before):
            raise FaultError("the store changed without a version")
        if len(data.paths) == 1 and report.exit_code == 0 and not (self.sandbox / "in").is_symlink():
            again = ingest(data, self.space, now=NOW)
            if any("isolated" in row.message for row in again.symbols):  # now that they are stored, they tell of others
                report, again = again, ingest(data, self.space, now=NOW)
            if again.version != report.version and not self._many():
                raise FaultError("the same file once more made a new version")
        return any(row.received for row in report.symbols), "stored" if added else "nothing new"

    def _many(self) -> bool:
        files = [path for path in (self.sandbox / "in").rglob("*") if path.is_file()]
        return len(files) > 1 or files[0].read_bytes()[:2] == b"PK"

    def _stored(self) -> pl.DataFrame:
        try:
            bars = scan_bars(self.space).collect()
        except StoreError:
            return pl.DataFrame(schema={"symbol": pl.String, "ts": pl.Datetime("us", "UTC")})
        check_bars(bars)
        for (text,), part in bars.group_by("calendar"):
            clock = Clock.parse(str(text))
            _none(judge_bars(part.sort("symbol", "ts"), clock.calendar, clock.hours))
        for symbol in list_symbols(self.space)["symbol"]:
            _none(judge_symbol(symbol))
        return bars

    def _dry_run(self, data: DataSettings) -> tuple[bool, str]:
        before = store_version(self.space)
        made = dry_run(data, now=NOW)
        json.dumps(made.to_dict(), default=str)
        if store_version(self.space) != before:
            raise FaultError("a dry run stored something")
        return any(file.how for file in made.files), "dry"

    def _typed(self, data: DataSettings) -> tuple[bool, str]:
        words = ["ingest", "-w", str(self.space.root), "--now", "2026-11-30", "--format", "json"]
        for name in ("calendar", "tz", "stamp", "vendor", "hours", "start", "end"):
            value = getattr(data, name)
            words += [] if value is None else [f"--{name}={value}"]
        words += [f"--symbols={','.join(data.symbols)}"] if data.symbols else []
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            try:
                code = typed([*words, "--", *data.paths])
            finally:
                _silence()
        out, err = (stream.buffer.getvalue().decode() for stream in streams)
        if code not in (0, 1, 2, 3):
            raise FaultError(f"exit code {code}")
        if "Traceback" in err or "panicked" in err:
            raise FaultError(f"a traceback: {err[-500:]}")
        if out:
            json.loads(out)
        elif code == 0 or not err:
            raise FaultError(f"exit code {code} without a word")
        return code in (0, 3), f"exit {code}"


def _silence() -> None:
    """No log on stderr: what comes there is of nobody's making."""
    log = logging.getLogger("klinepred")
    log.handlers[:] = [logging.NullHandler()]
    log.propagate = False


def _none(complaints: Any) -> None:
    first = next(iter(complaints), None)
    if first is not None:
        raise FaultError(first)


def keep(given: Input, folder: Path, text: str) -> None:
    """Write a failing input, with what happened."""
    spot = folder / f"{given.seed}-{given.number}"
    (spot / "files").mkdir(parents=True, exist_ok=True)
    for name, data in given.files.items():
        with contextlib.suppress(OSError, ValueError):
            (spot / "files" / name).write_bytes(data)
    about = {"seed": given.seed, "number": given.number, "mode": given.mode, "options": given.options}
    (spot / "case.json").write_text(json.dumps({**about, "folder": given.folder, "form": given.form}, indent=1))
    (spot / "what.txt").write_text(text, errors="replace")


def run(seed: int, numbers: range, sandbox: Path, failures: Path) -> dict[str, Any]:
    """Take in all inputs; a fault is kept and counted, and the next one comes."""
    watch = Watch(sandbox)
    desk = Desk(sandbox, watch)
    beat = os.open(failures / f"beat-{numbers.start}-{os.getpid()}", os.O_CREAT | os.O_WRONLY)
    ends: Counter[str] = Counter()
    modes: Counter[str] = Counter()
    past = faults = 0
    slow: list[tuple[float, int]] = []
    for number in numbers:
        os.pwrite(beat, f"{number:12d}".encode(), 0)
        given = make(seed, number)
        if number // numbers.step % FRESH_EVERY == 0:
            shutil.rmtree(desk.space.data, ignore_errors=True)
        began = time.perf_counter()
        try:
            through, word = desk.take(given)
        except BaseException as error:  # whatever comes out, panics of Rust included, is what is looked for
            if isinstance(error, KeyboardInterrupt):
                raise
            keep(given, failures, traceback.format_exc())
            through, word, faults = False, "FAULT", faults + 1
            shutil.rmtree(sandbox, ignore_errors=True)
            watch.seen = []
            desk = Desk(sandbox, watch)
        past += through
        ends[word] += 1
        modes[f"{given.mode} {given.form}"] += 1
        slow = sorted([*slow, (round(time.perf_counter() - began, 2), number)])[-5:]
        if faults >= STOP_AFTER:
            break
    return {"inputs": sum(ends.values()), "past": past, "faults": faults, "ends": ends, "modes": modes, "slow": slow}


def main() -> None:
    """One worker; see `campaign`."""
    given = argparse.ArgumentParser()
    for name in ("--seed", "--start", "--stop", "--step"):
        given.add_argument(name, type=int, required=True)
    for name in ("--sandbox", "--failures"):
        given.add_argument(name, type=Path, required=True)
    asked = given.parse_args()
    faulthandler.enable()
    warnings.simplefilter("error")
    _silence()
    made = run(
        asked.seed, range(asked.start, asked.stop, asked.step), asked.sandbox.resolve(), asked.failures.resolve()
    )
    sys.stdout.write(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
