"""In: answers in Yahoo's form that refuse, break or hang. Out: bounded waits, then the bars or a named failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.delivery import Delivery
from klinepred.bars.sources import patience, yahoo_chart
from klinepred.bars.sources import yahoo as source
from klinepred.calendar import Clock
from tests.yahoo_server import (
    FakeYahoo,
    Reply,
    bars_of,
    busy,
    chart,
    error,
    not_found,
    serve,
    yfinance_on,
)

NOW = datetime(2026, 6, 30, 22, 0, tzinfo=UTC)
DAY = bars_of(datetime(2026, 6, 30, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC))


@pytest.fixture
def yahoo(tmp_path: Path) -> Iterator[FakeYahoo]:
    with serve() as server, yfinance_on(server, tmp_path):
        yield server


def ask(*symbols: str, end: date | None = None) -> Delivery:
    """All of what came, as if it were one delivery."""
    got = list(source.fetch(symbols, clock=Clock("XNYS"), start=None, end=end, now=NOW))
    failures = {name: failure for one in got for name, failure in one.failures.items()}
    return Delivery(pl.concat([one.frame for one in got]), got[0].source, failures)


def heights(got: Delivery) -> dict[str, int]:
    return dict(got.frame.group_by("symbol", maintain_order=True).len().iter_rows())


def test_a_rate_limit_that_passes_is_waited_out(yahoo: FakeYahoo, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(source, "rest", waits.append)
    # yfinance asks twice before it gives a 429 up
    yahoo.answers["AAPX"] = [busy(), busy(), busy(), busy(), chart("AAPX", DAY)]
    one = ask("AAPX")
    assert one.frame.height == 78
    assert len(waits) == 2
    assert 2.0 <= waits[0] <= 3.0
    assert 4.0 <= waits[1] <= 6.0


def test_two_of_five_rate_limited_leaves_three_delivered_and_bounds_the_waits(
    yahoo: FakeYahoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 05."""
    waits: list[float] = []
    monkeypatch.setattr(source, "rest", waits.append)
    for name in ("A", "B", "C", "D", "E"):
        yahoo.answers[name] = busy() if name in ("B", "D") else chart(name, DAY)
    got = ask(*"ABCDE")
    assert heights(got) == {"A": 78, "C": 78, "E": 78}
    assert {name: failure.status for name, failure in got.failures.items()} == {
        "B": "rate-limited",
        "D": "rate-limited",
    }
    assert "rate limit" in got.failures["B"].message
    assert len(waits) == 5 + 4  # B: all of them; D: 2 + 4 + 8 + 16 fill the 90 seconds
    assert patience.BUSY_TOTAL_S <= sum(waits) <= 1.5 * patience.BUSY_TOTAL_S
    assert waits[:5] == sorted(waits[:5])


def test_two_of_five_rate_limited_at_first_are_delivered_in_the_end(yahoo: FakeYahoo) -> None:
    """Case 05, the variant: the first two tries only (each try of yfinance is two requests)."""
    for name in "ABCDE":
        yahoo.answers[name] = [*[busy()] * 4, chart(name, DAY)] if name in "BD" else chart(name, DAY)
    got = ask(*"ABCDE")
    assert heights(got) == dict.fromkeys("ABCDE", 78)
    assert not got.failures


def test_rate_limits_now_and_then_do_not_use_the_waits_up(yahoo: FakeYahoo, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(source, "rest", waits.append)
    names = [f"S{i}" for i in range(20)]
    for name in names:
        yahoo.answers[name] = [busy(), busy(), chart(name, DAY)]
    assert not ask(*names).failures
    assert len(waits) == 20 / source.AT_ONCE  # one for each four that were asked together
    assert max(waits) <= 3.0


def test_a_ban_stops_the_asking(yahoo: FakeYahoo) -> None:
    names = [f"S{i}" for i in range(20)]
    for name in names:
        yahoo.answers[name] = busy()
    got = ask(*names)
    assert {name: failure.status for name, failure in got.failures.items()} == dict.fromkeys(names, "rate-limited")
    assert {symbol for symbol, _ in yahoo.asked} == {"S0", "S1", "S2", "S3"}  # four are asked for at once
    assert len(yahoo.asked) == 2 * (
        4 + 5 + 2
    )  # each at first, S0 after five waits, S1 and S2 once more; by yfinance twice


def test_four_symbols_are_asked_for_at_the_same_time_and_each_gets_its_own_bars(yahoo: FakeYahoo) -> None:
    together = threading.Barrier(4, timeout=20.0)
    names = [f"S{i}" for i in range(12)]

    def at_price(name: str, price: float) -> Callable[[dict[str, str]], Reply]:
        rows = bars_of(datetime(2026, 6, 30, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC), price=price)

        def answer(query: dict[str, str]) -> Reply:
            together.wait()
            return chart(name, rows)

        return answer

    for k, name in enumerate(names):
        yahoo.answers[name] = at_price(name, 100.0 * (k + 1))
    got = ask(*names)
    assert heights(got) == dict.fromkeys(names, 78)
    firsts = got.frame.group_by("symbol", maintain_order=True).agg(pl.col("open").first())
    assert firsts["open"].to_list() == [100.0 * (k + 1) for k in range(12)]


def test_an_unknown_symbol_between_is_no_sign_of_a_ban(yahoo: FakeYahoo) -> None:
    names = ["S0", "S1", "GONE", "S2", "S3", "LAST"]
    for name in names:
        yahoo.answers[name] = not_found() if name == "GONE" else chart(name, DAY) if name == "LAST" else busy()
    got = ask(*names)
    assert heights(got) == {"LAST": 78}
    assert [got.failures[name].status for name in names[:-1]] == [
        "rate-limited",
        "rate-limited",
        "unknown-symbol",
        "rate-limited",
        "rate-limited",
    ]


def test_when_yahoo_is_down_the_rest_is_not_asked_for(yahoo: FakeYahoo) -> None:
    names = [f"S{i}" for i in range(9)]
    for name in names:
        yahoo.answers[name] = Reply(200, "Will be right back")
    got = ask(*names)
    assert {name: failure.status for name, failure in got.failures.items()} == dict.fromkeys(names, "failed")
    assert {symbol for symbol, _ in yahoo.asked} == {"S0", "S1", "S2", "S3"}
    assert "not asked for" in got.failures["S8"].message


@pytest.mark.parametrize("end", [None, date(2026, 6, 30)])
@pytest.mark.parametrize("broken", [Reply(200, "{"), Reply(503, "Unavailable"), error(500, "Internal", "x")])
def test_a_broken_answer_is_asked_for_again(yahoo: FakeYahoo, broken: Reply, end: date | None) -> None:
    """With an end in the past too, where yfinance itself would repeat the answer it has kept."""
    yahoo.answers["AAPX"] = [broken, broken, chart("AAPX", DAY)]
    one = ask("AAPX", end=end)
    assert one.frame.height == 78


@pytest.mark.parametrize("broken", [Reply(200, "{"), Reply(200, "<html>"), Reply(502, "<html>Bad gateway</html>")])
def test_an_answer_that_stays_no_json_is_named_so(yahoo: FakeYahoo, broken: Reply) -> None:
    yahoo.answers["AAPX"] = broken
    failure = ask("AAPX").failures["AAPX"]
    assert failure.status == "failed"
    assert "no JSON: an error page of the server, or cut off" in failure.message
    assert "JSONDecodeError" not in failure.message


def test_a_revision_of_the_past_is_seen_in_the_same_process(yahoo: FakeYahoo) -> None:
    yahoo.answers["AAPX"] = [chart("AAPX", DAY), chart("AAPX", DAY[:-1])]
    assert [ask("AAPX", end=date(2026, 6, 30)).frame.height for _ in range(2)] == [78, 77]


def test_yfinance_s_cookie_and_crumb_go_with_the_request(yahoo: FakeYahoo) -> None:
    yahoo.answers["AAPX"] = chart("AAPX", DAY)
    ask("AAPX")
    assert list(dict.fromkeys(yahoo.visited)) == [
        "fc.yahoo.com/",
        "query1.finance.yahoo.com/v1/test/getcrumb",
        "query2.finance.yahoo.com/v8/finance/chart/AAPX",
    ]
    assert yahoo.asked[-1][1]["crumb"] == "crumb.of.test"


def test_bars_come_without_a_crumb_when_crumbs_are_rate_limited(yahoo: FakeYahoo) -> None:
    yahoo.crumb = busy()
    yahoo.answers["AAPX"] = chart("AAPX", DAY)
    one = ask("AAPX")
    assert one.frame.height == 78
    assert "crumb" not in yahoo.asked[-1][1]


def test_a_slow_server_is_a_failure_in_bounded_time(yahoo: FakeYahoo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yahoo_chart, "TIMEOUT_S", 0.3)
    yahoo.answers["AAPX"] = Reply(200, "", wait_s=5.0)
    one = ask("AAPX")
    assert one.failures["AAPX"].status == "failed"
    assert len(yahoo.asked) == 3
