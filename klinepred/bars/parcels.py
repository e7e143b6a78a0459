"""In: a delivery, or a file that is still to be read. Out: its rows cleaned, parcel by parcel; nothing is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from klinepred.bars.batches import batches, within
from klinepred.bars.clean import Cleaned, clean
from klinepred.bars.delivery import Delivery
from klinepred.calendar import Clock
from klinepred.settings import DataSettings

if TYPE_CHECKING:
    from klinepred.bars.sources.files import Unread


@dataclass(frozen=True)
class Parcel:
    """Whole symbols of a delivery: what goes from who reads to who stores.

    Attributes
    ----------
    delivery
        Without its rows; of the second and later parcels also without what is told once: failures, remarks, rejects.
    cleaned
        The rows.
    """

    delivery: Delivery
    cleaned: Cleaned


def parcels(
    thing: Delivery | Unread, *, data: DataSettings, clock: Clock, now: datetime, limit: int
) -> Iterator[Parcel]:
    """Read, if need be, and clean; what comes depends on the arguments and the file alone.

    Parameters
    ----------
    now
        Bars not finished by then are held back (aware).
    limit
        Rows of a parcel, unless a single symbol has more.

    Raises
    ------
    SourceError, CalendarError
        As `klinepred.bars.sources.files.read_file` and `klinepred.bars.clean.clean`; what came before stands.
    """
    for delivery in _read(thing):
        frame = within(delivery.frame, data.start, data.end, clock) if data.source == "files" else delivery.frame
        told = replace(delivery, frame=frame.clear(), understood=None)
        for part in batches(frame, limit=limit):
            yield Parcel(told, clean(part, clock=clock, now=now))
            told = replace(told, failures={}, remarks=(), rejects=None)


def _read(thing: Delivery | Unread) -> Iterable[Delivery]:
    if isinstance(thing, Delivery):
        return [thing]
    from klinepred.bars.sources.files import read_file

    return read_file(thing)
