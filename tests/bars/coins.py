"""In: markets to ask for. Out: what the exchange on 127.0.0.1 delivers, from 1 June 2026 on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime

from klinepred.bars.delivery import Delivery, Failure
from klinepred.bars.sources import exchange
from klinepred.schema import BAR

T0 = datetime(2026, 6, 1, tzinfo=UTC)
FIRST = date(2026, 6, 1)


def at(bars: int) -> datetime:
    return T0 + bars * BAR


def ask(
    *symbols: str,
    now: datetime,
    start: date | None = FIRST,
    end: date | None = None,
    stored: Mapping[str, Sequence[exchange.Span]] | None = None,
    barred: Mapping[str, Failure] | None = None,
    name: str = "binance",
) -> list[Delivery]:
    return list(
        exchange.fetch(symbols, exchange=name, start=start, end=end, now=now, stored=stored or {}, barred=barred or {})
    )
