"""In: nothing. Out: an exchange on 127.0.0.1 that ccxt asks, and the seconds that would have been waited."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.binance_server import FakeBinance, ccxt_on, serve


@pytest.fixture
def fake() -> Iterator[FakeBinance]:
    with serve() as server:
        yield server


@pytest.fixture
def waits(fake: FakeBinance) -> Iterator[list[float]]:
    with ccxt_on(fake) as noted:
        yield noted
