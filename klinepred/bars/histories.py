"""In: plans to rescale, the bars that came. Out: the whole histories of these symbols, with a record of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from klinepred.bars.basis import in_words
from klinepred.bars.rescale import AWAY, Rescale, Rescaled, apply
from klinepred.bars.surroundings import read_history
from klinepred.paths import Workspace
from klinepred.schema import BAR_SCHEMA


@dataclass(frozen=True)
class Histories:
    """Symbols brought to the basis of the bars received.

    Attributes
    ----------
    bars
        All there will be of them, in `BAR_SCHEMA`: received bars, and the others rescaled.
    records
        What was done to each.
    refused
        Symbols that cannot be, with the reason.
    """

    bars: pl.DataFrame
    records: tuple[Rescaled, ...]
    refused: Mapping[str, str]

    @property
    def names(self) -> set[str]:
        """The symbols."""
        return set(self.bars["symbol"].unique())


def rescale_histories(
    received: pl.DataFrame,
    plans: Mapping[str, Rescale | str],
    space: Workspace,
) -> Histories:
    """Rescale what is stored of the symbols with a plan.

    Parameters
    ----------
    received
        Bars that are to be stored, of these symbols and others.
    plans
        By symbol; a text is the reason why not.
    """
    refused = {name: one for name, one in plans.items() if isinstance(one, str)}
    todo = {name: one for name, one in plans.items() if isinstance(one, Rescale)}
    bars, records = [pl.DataFrame(schema=BAR_SCHEMA)], []
    history = read_history(space, [*todo]) if todo else bars[0]
    for name, one in todo.items():
        mine = received.filter(pl.col("symbol") == name).select(*BAR_SCHEMA)
        rest = history.filter(pl.col("symbol") == name).join(mine, on=["symbol", "ts"], how="anti")
        if one.silent and rest["volume"].sum() > 0.0:
            refused[name] = (
                f"received closes are {in_words(one.price)} the stored ones, and the common bars have no volume to "
                f"tell a split from a unit, while the stored bars that did not come have; {AWAY}"
            )
            continue
        moved, record = apply(rest, one)
        bars += [mine, moved]
        records.append(record)
    return Histories(pl.concat(bars), tuple(records), refused)
