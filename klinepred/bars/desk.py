"""In: the good and the bad rows of a delivery. Out: what of them is stored, set aside, held or refused; one commit."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import polars as pl

from klinepred.bars.appraisal import appraise
from klinepred.bars.change import Change, commit_bars
from klinepred.bars.delivery import Failure
from klinepred.bars.doubt import Doubt
from klinepred.bars.histories import Histories, rescale_histories
from klinepred.bars.reconcile import Reconciled, reconcile
from klinepred.bars.remarks import Remarks
from klinepred.bars.rescale import Permit, Rescaled
from klinepred.bars.slots import locate
from klinepred.bars.steps import Step, find_steps
from klinepred.bars.store import has_bars, keep_quarantine, keep_symbols, stored_clocks
from klinepred.bars.tally import Tally
from klinepred.bars.twins import find_twins
from klinepred.calendar import Clock
from klinepred.paths import Workspace
from klinepred.schema import BAR_SCHEMA

KEYS = ["symbol", "ts"]
COLUMNS = [*BAR_SCHEMA, "month"]


@dataclass(frozen=True)
class Desk:
    """What all deliveries of one ingest share.

    Attributes
    ----------
    doubt
        Where bars of one symbol may come in several deliveries; None = each symbol comes at once.
    before
        Version of the store before the ingest; None = there was none.
    permit
        When stored bars may be rescaled.
    last
        All deliveries have come: nothing is held any more.
    steps
        Steps of the price by a usual factor that came in, to be looked at when all is stored.
    """

    space: Workspace
    clock: Clock
    tally: Tally
    remarks: Remarks
    doubt: Doubt | None
    before: int | None
    permit: Permit
    last: bool = False
    steps: list[Step] = field(default_factory=list)

    def at_the_end(self) -> Desk:
        """The same, when all deliveries have come."""
        return replace(self, last=True)


def settle(
    good: pl.DataFrame, bad: pl.DataFrame, *, source: str, desk: Desk, splits: pl.DataFrame | None = None
) -> int:
    """Store what may be stored; what is in doubt is held if more of it may come. The caller holds the writer's lock.

    Parameters
    ----------
    good, bad
        Bars and rejects as `clean` gives them.
    splits
        `SPLIT_SCHEMA`: what the source tells; None = nothing.

    Returns
    -------
    int
        The number of bars written: new and revised ones.
    """
    tally, doubt = desk.tally, desk.doubt
    clocks = stored_clocks(desk.space)
    shut = _other_clocks(good, bad, desk, clocks) | (doubt.refused if doubt else set())
    came, good = good, without(good, shut)
    seen = appraise(good, desk.space, known=clocks, splits=splits, permit=desk.permit)
    waiting: set[str] = set()
    if doubt and not desk.last:
        waiting = (doubt.held() & {*good["symbol"].unique()}) | seen.doubtful
        if desk.permit == "always":  # with more bars the verdict may be another
            waiting |= {*seen.plans} | ({*seen.strange} & {*doubt.stretches})
        doubt.hold(good, waiting, source=source)
    plans = {name: one for name, one in seen.plans.items() if name not in waiting}
    histories = rescale_histories(seen.sifted.bars, plans, desk.space)
    strange = {name: text for name, text in seen.strange.items() if name not in waiting}
    refused = {**strange, **histories.refused}
    for name, text in refused.items():
        tally.add_failure(name, Failure("rejected", f"{text}; {what_is_kept(name, desk)}"))
        if doubt:
            doubt.refuse(name)
    out = waiting | {*refused}
    compared, odd = without(seen.compared, out), without(seen.sifted.rejects, out)
    freed, gone = without(seen.sifted.confirmed, out), without(seen.sifted.withdrawn, out)
    # bars of refused symbols count as come; those held count when they are let go
    counted = without(came, waiting - {*refused})
    tally.add_bars(
        counted.join(odd.select(KEYS), on=KEYS, how="anti", maintain_order="left") if odd.height else counted
    )
    tally.add_rejects(odd)
    if doubt and desk.permit == "always" and not desk.last:
        doubt.note_stored(compared)
    result = reconcile(compared)
    tally.add_counts(result.counts)
    # Quarantine, then symbols, then bars: stopped in between, what is there is true, and a second try adds the rest.
    bad = bad.filter(~pl.col("symbol").is_in([*shut, *out]).fill_null(False))
    keep_quarantine(desk.space, pl.concat([bad, odd, gone]), source=source)
    change = _change(result, histories, freed, gone, desk)
    moved = change.symbols()
    if moved:
        keep_symbols(desk.space, sorted(moved), clock=desk.clock, source=source)
        commit_bars(desk.space, change, stored=seen.stored, clock=desk.clock, source=source)
        _tell(histories, freed, gone, desk)
        _look_around(change, seen.stored, moved - {*clocks}, {*clocks}, desk)
    return result.new.height + result.revised.height


def without(frame: pl.DataFrame, symbols: set[str]) -> pl.DataFrame:
    """`frame` without the rows of `symbols`."""
    return frame.filter(~pl.col("symbol").is_in(list(symbols))) if symbols else frame


def _other_clocks(good: pl.DataFrame, bad: pl.DataFrame, desk: Desk, clocks: dict[str, Clock]) -> set[str]:
    """Symbols stored by another calendar or other hours; each is told."""
    here = {*good["symbol"].unique(), *bad["symbol"].unique()}
    other = {name for name in here if clocks.get(name, desk.clock) != desk.clock}
    other &= has_bars(desk.space) if other else other  # a stopped ingest leaves a clock without a bar: binds nobody
    for name in sorted(other):
        desk.tally.add_failure(
            name,
            Failure(
                "rejected",
                f"stored by the calendar {clocks[name]}, this ingest uses {desk.clock}: pass --calendar "
                f"{clocks[name].calendar} --hours {clocks[name].hours}, or use another workspace",
            ),
        )
    return other


def what_is_kept(name: str, desk: Desk) -> str:
    """What of a refused symbol is stored all the same, because it came before there was a doubt."""
    taken = desk.tally.taken(name)
    if not taken:
        return "nothing of this symbol was stored"
    back = "" if desk.before is None else f"; the state before is version {desk.before} (--as-of {desk.before})"
    return f"{taken:,} bars of it that came before in this ingest are stored{back}"


def _change(result: Reconciled, histories: Histories, freed: pl.DataFrame, gone: pl.DataFrame, desk: Desk) -> Change:
    months = locate(freed.get_column("ts"), desk.clock).select("month")
    note = {"klinepred.new": str(result.new.height), "klinepred.revised": str(result.revised.height)}
    if freed.height:
        note["klinepred.confirmed"] = str(freed.height)
    if gone.height:
        note["klinepred.withdrawn"] = str(gone.height)
    if histories.records:
        note["klinepred.rescaled"] = json.dumps([one.to_dict() for one in histories.records])
    new = without(result.new, histories.names).select(COLUMNS)
    return Change(
        new=pl.concat([new, freed.hstack(months).select(COLUMNS)]).sort(KEYS) if freed.height else new,
        revised=without(result.revised, histories.names).select(COLUMNS),
        withdrawn=gone.select(KEYS),
        whole=histories.bars,
        note=note,
    )


def _tell(histories: Histories, freed: pl.DataFrame, gone: pl.DataFrame, desk: Desk) -> None:
    """Say what happened to bars that were there before, in the remarks and in the report."""
    for one in histories.records:
        say_rescaled(one, desk)
    for frame, what in (
        (freed, "set aside before for their price are confirmed by their neighbours now, and stored"),
        (
            gone,
            "stored before turn out to be isolated price errors beside their neighbours, and are moved to the "
            "quarantine",
        ),
    ):
        for name, count in frame.group_by("symbol").len().sort("symbol").iter_rows():
            first = frame.filter(pl.col("symbol") == name).sort("ts")["ts"][0]
            line = f"{count:,} bars {what}, first {first:%Y-%m-%d %H:%MZ}"
            desk.tally.add_note(name, line)
            desk.remarks.say(f"{name}: {line}", loud=True)


def say_rescaled(record: Rescaled, desk: Desk) -> None:
    """Put a rescaling into the report, and say it loudly with the way back."""
    back = "" if desk.before is None else f"; the state before is version {desk.before} (--as-of {desk.before})"
    desk.tally.add_rescaled(record)
    desk.remarks.say(f"{record.symbol}: {record.words}{back}", loud=True)


def _look_around(change: Change, stored: pl.DataFrame, fresh: set[str], known: set[str], desk: Desk) -> None:
    """Remarks on what was just stored: names that look like others, steps of the price."""
    for name, twin in find_twins(fresh, known | fresh):
        desk.remarks.say(
            f"{name!r} is new beside {twin!r}: two symbols that look alike, kept apart; if they are one, take its bars "
            f"in as {twin} and remove {name} with klinepred bars delete",
            loud=True,
        )
    others = stored
    for gone in (change.revised, change.withdrawn):  # what is new is not among the stored ones
        others = others.join(gone, on=KEYS, how="anti") if gone.height else others
    others = pl.concat([others, change.revised.select(*BAR_SCHEMA)])
    desk.steps.extend(find_steps(change.new, others))
