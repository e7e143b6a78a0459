"""In: the data settings of a pipeline. Out: what its source delivers, one delivery after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from klinepred.bars.delivery import Delivery
from klinepred.bars.tally import Tally
from klinepred.calendar import Clock
from klinepred.errors import UsageError
from klinepred.paths import Workspace
from klinepred.settings import DataSettings

if TYPE_CHECKING:
    from klinepred.bars.sources.files import Unread


def arrivals(
    data: DataSettings, clock: Clock, now: datetime, *, space: Workspace | None = None, tally: Tally | None = None
) -> Iterable[Delivery | Unread]:
    """`deliveries`, but files are only named: who takes them in says where they are read."""
    return _unread(data, clock) if data.source == "files" else deliveries(data, clock, now, space=space, tally=tally)


def deliveries(
    data: DataSettings, clock: Clock, now: datetime, *, space: Workspace | None = None, tally: Tally | None = None
) -> Iterator[Delivery]:
    """What the source of `data` gives, one delivery after another; for errors see `klinepred.bars.ingest`.

    An exchange is asked only for what is not in the store of `space` (None: as if nothing were), which `tally` is told.
    """
    _need_text(data)
    if data.source == "files":
        from klinepred.bars.sources.files import read_file

        return (delivery for one in _unread(data, clock) for delivery in read_file(one))
    if data.source == "simulate":
        from klinepred.bars.sources.simulate import simulate

        return simulate(data.simulate, clock=clock)
    if not data.symbols:
        named, some = ("Yahoo", "AAPL,MSFT") if data.source == "yahoo" else ("an exchange", "BTC/USDT,ETH/USDT")
        raise UsageError(
            f"ingest from {named}",
            expected="at least one symbol",
            got="none",
            do=f"add --symbols {some}, or set data.symbols in the pipeline",
        )
    if data.source == "exchange":
        from klinepred.bars.resume import from_exchange

        return from_exchange(data, clock, now, space=space, tally=tally)
    from klinepred.bars.sources.yahoo import fetch

    return fetch(data.symbols, clock=clock, start=data.start, end=data.end, now=now)


def are_many_parts(data: DataSettings) -> bool:
    """Whether the bars of one symbol may come in several deliveries."""
    _need_text(data)
    if data.source == "files":
        from klinepred.bars.sources.files import are_many, find_files

        return are_many(find_files([Path(path) for path in data.paths]))
    return data.source in ("simulate", "exchange")


def _need_text(data: DataSettings) -> None:
    broken = [name for name in data.symbols if any("\ud800" <= sign <= "\udfff" for sign in name)]
    if broken:
        raise UsageError(
            "--symbols", expected="text in UTF-8", got=ascii(broken[0])[:80], do="type the names of the symbols anew"
        )


def _unread(data: DataSettings, clock: Clock) -> list[Unread]:
    from klinepred.bars.sources.files import find_unread

    _need_text(data)
    if not data.paths:
        raise UsageError(
            "ingest from files",
            expected="at least one file, folder or pattern",
            got="none",
            do="write klinepred ingest PATH…, or set data.paths in the pipeline",
        )
    paths = [Path(path) for path in data.paths]
    return find_unread(paths, clock=clock, tz=data.tz, stamp=data.stamp, symbols=data.symbols, vendor=data.vendor)
