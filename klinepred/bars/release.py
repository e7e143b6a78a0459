"""In: all that was held of a symbol until its last bar had come. Out: it is stored on one basis, or refused."""

from __future__ import annotations

import json

import polars as pl

from klinepred.bars.change import Change, commit_bars
from klinepred.bars.clean import REJECT_SCHEMA
from klinepred.bars.delivery import Failure
from klinepred.bars.desk import COLUMNS, KEYS, Desk, say_rescaled, settle, what_is_kept
from klinepred.bars.doubt import Held
from klinepred.bars.reconcile import compare, reconcile
from klinepred.bars.sift import sift
from klinepred.bars.steps import find_steps
from klinepred.bars.store import keep_quarantine, keep_symbols
from klinepred.bars.surroundings import read_history
from klinepred.bars.together import Together, bring_together
from klinepred.schema import BAR_SCHEMA


def settle_held(held: Held, desk: Desk) -> None:
    """Store what was held of a symbol, or refuse it. The caller holds the writer's lock.

    Where stored bars may be rescaled and the symbol came in several parts, these are first brought to one basis.
    """
    came = desk.doubt.stretches.get(held.symbol, []) if desk.doubt else []
    stored = pl.DataFrame(schema=BAR_SCHEMA)
    found: Together | str | None = None
    if desk.permit == "always" and len(held.parts) + len(came) > 1:
        stored = read_history(desk.space, [held.symbol]).sort(KEYS)
        found = bring_together(held.symbol, held.parts, stored, came)
    if found is None:
        settle(held.once, pl.DataFrame(schema=REJECT_SCHEMA), source=held.source, desk=desk.at_the_end())
    elif isinstance(found, str):
        desk.tally.add_failure(held.symbol, Failure("rejected", f"{found}; {what_is_kept(held.symbol, desk)}"))
        desk.tally.add_bars(held.once)
    else:
        _store(held, found, stored, desk)


def _store(held: Held, found: Together, stored: pl.DataFrame, desk: Desk) -> None:
    """Write the symbol as it is on one basis, and count the bars that were held against those stored before."""
    tally, symbol = desk.tally, held.symbol
    received = found.bars.join(held.once.select("ts"), on="ts", how="semi", maintain_order="left")
    rest = found.bars.join(held.once.select("ts"), on="ts", how="anti", maintain_order="left").select(*BAR_SCHEMA)
    sifted = sift(received.select(*BAR_SCHEMA), stored=rest, waiting=rest.clear())
    bars = pl.concat([sifted.bars, rest]).sort(KEYS)
    result = reconcile(compare(sifted.bars, stored))
    tally.add_counts(result.counts)
    tally.add_bars(held.once.join(sifted.rejects.select(KEYS), on=KEYS, how="anti", maintain_order="left"))
    tally.add_rejects(sifted.rejects)
    keep_quarantine(desk.space, sifted.rejects, source=held.source)
    if bars.equals(stored):
        for one in found.records:
            tally.add_note(symbol, f"{one.words}: they are stored like that already")
        return
    note = {
        "klinepred.new": str(result.new.height),
        "klinepred.revised": str(result.revised.height),
        "klinepred.rescaled": json.dumps([one.to_dict() for one in found.records]),
    }
    none = held.once.clear().select(COLUMNS)
    change = Change(new=none, revised=none, withdrawn=none.select(KEYS), whole=bars, note=note)
    keep_symbols(desk.space, [symbol], clock=desk.clock, source=held.source)
    commit_bars(desk.space, change, stored=stored.clear(), clock=desk.clock, source=held.source)
    for one in found.records:
        say_rescaled(one, desk)
    desk.steps.extend(find_steps(sifted.bars, rest))
