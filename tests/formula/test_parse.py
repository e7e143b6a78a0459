"""In: formulas. Out: allowed ones have the right reach and one spelling; all others are refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klinepred.errors import ConfigError
from klinepred.formula.parse import MOST_BARS, parse_formula
from klinepred.formula.tree import (
    COMPARISONS,
    VALUES,
    WINDOWS,
    Call,
    Case,
    Column,
    Lag,
    Node,
    Number,
    Window,
    columns,
    reach,
    text_of,
)

ROWS = "ROWS BETWEEN 5 PRECEDING AND CURRENT ROW"


def _read(text: str) -> Node:
    return parse_formula(text, where="features.custom.custom__a")


@pytest.mark.parametrize(
    ("text", "bars"),
    [
        ("close", 0),
        ("(high - low) / close", 0),
        ("LAG(close, 3)", 3),
        ("LAG(close)", 1),
        ("close / LAG(close, 3) OVER (ORDER BY ts) - 1", 3),
        ("close / LAG(close, 3) OVER (PARTITION BY symbol ORDER BY ts) - 1", 3),
        (f"AVG(close) OVER (ORDER BY ts {ROWS})", 5),
        ("AVG(close) OVER (ORDER BY ts ROWS 5 PRECEDING)", 5),
        (f"SUM(LAG(volume, 2)) OVER (PARTITION BY session ORDER BY ts ASC {ROWS})", 7),
        (f"LAG(STDDEV(LN(close / LAG(close, 1))) OVER (ORDER BY ts {ROWS}), 2)", 8),
        (f"MAX(high) OVER (ORDER BY ts {ROWS}) - MIN(LAG(low, 9)) OVER (ORDER BY ts {ROWS})", 14),
        ("CASE WHEN LAG(close, 2) < close THEN LAG(close, 7) ELSE 0 END", 7),
        ("COALESCE(NULLIF(volume, 0), LAG(volume, 4))", 4),
        (f"COUNT(*) OVER (PARTITION BY symbol, session ORDER BY ts {ROWS})", 5),
        (f"LAG(close, {MOST_BARS})", MOST_BARS),
    ],
)
def test_the_reach_is_added_up_along_what_lies_inside_one_another(text: str, bars: int) -> None:
    assert reach(_read(text)) == bars


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("LEAD(close, 1)", "LEAD"),
        ("LEAD(close, 1) OVER (ORDER BY ts)", "LEAD"),
        ("LAG(close, -1)", "LAG(close, -1)"),
        ("LAG(close, 0)", "LAG(close, 0)"),
        ("LAG(close, 1.5)", "LAG(close, 1.5)"),
        ("LAG(close, bar)", "LAG(close, bar)"),
        ("LAG(close, 1, 0)", "third argument"),
        ("LAG(close, 1) IGNORE NULLS OVER (ORDER BY ts)", "IGNORE NULLS"),
        ("LAG(close, 1) OVER (ORDER BY ts DESC)", "DESC"),
        ("LAG(close, 1) OVER (PARTITION BY symbol)", "without an order"),
        (f"LAG(close, 1) OVER (ORDER BY ts {ROWS})", "a frame"),
        (f"LAG(close, {MOST_BARS + 1})", f"{MOST_BARS + 1} bars"),
        ("close - AVG(close)", "AVG(close) without OVER"),
        ("MAX(close)", "MAX(close) without OVER"),
        ("COUNT(*)", "COUNT(*) without OVER"),
        ("STDDEV_SAMP(close)", "STDDEV_SAMP(close) without OVER"),
        ("AVG(close) OVER ()", "AVG(close) OVER ()"),
        ("AVG(close) OVER (PARTITION BY symbol)", "without an order"),
        (f"AVG(close) OVER ({ROWS})", "without an order"),
        ("AVG(close) OVER (ORDER BY ts)", "without bound"),
        ("SUM(close) OVER (ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)", "UNBOUNDED PRECEDING"),
        ("SUM(close) OVER (ORDER BY ts ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING)", "FOLLOWING"),
        ("SUM(close) OVER (ORDER BY ts ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)", "FOLLOWING"),
        ("SUM(close) OVER (ORDER BY ts ROWS BETWEEN 9 PRECEDING AND 3 PRECEDING)", "ends before the present bar"),
        ("SUM(close) OVER (ORDER BY ts ROWS BETWEEN bar PRECEDING AND CURRENT ROW)", "bar PRECEDING"),
        ("SUM(close) OVER (ORDER BY ts RANGE BETWEEN 3 PRECEDING AND CURRENT ROW)", "RANGE"),
        (f"SUM(close) OVER (ORDER BY ts {ROWS} EXCLUDE CURRENT ROW)", "EXCLUDE"),
        (f"SUM(close) OVER (ORDER BY ts DESC {ROWS})", "DESC"),
        (f"SUM(close) OVER (ORDER BY close {ROWS})", "another order"),
        (f"SUM(close) OVER (ORDER BY ts, close {ROWS})", "another order"),
        (f"SUM(close) OVER (PARTITION BY bar ORDER BY ts {ROWS})", "another partition"),
        (f"SUM(close) OVER (PARTITION BY session, segment ORDER BY ts {ROWS})", "another partition"),
        (f"SUM(DISTINCT close) OVER (ORDER BY ts {ROWS})", "DISTINCT"),
        (f"SUM(close) FILTER (WHERE close > 1) OVER (ORDER BY ts {ROWS})", "FILTER"),
        ("AVG(close) OVER w", "OVER w"),
        ("RANK() OVER (ORDER BY close)", "RANK"),
        ("DENSE_RANK() OVER (ORDER BY ts)", "DENSE_RANK"),
        ("ROW_NUMBER() OVER (ORDER BY ts)", "ROW_NUMBER"),
        ("NTILE(4) OVER (ORDER BY close)", "NTILE"),
        ("PERCENT_RANK() OVER (ORDER BY close)", "PERCENT_RANK"),
        ("FIRST_VALUE(close) OVER (ORDER BY ts)", "FIRST_VALUE"),
        (f"LAST_VALUE(close) OVER (ORDER BY ts {ROWS})", "LAST_VALUE"),
        ("FIRST(close)", "FIRST"),
        ("MEDIAN(close)", "MEDIAN"),
        ("RANDOM() * close", "number each time"),
        ("now()", "time of the machine"),
        ("CURRENT_TIMESTAMP", "time of the machine"),
        ("close - (SELECT AVG(close) FROM bars)", "SELECT AVG(close) FROM bars"),
        ("EXISTS (SELECT 1)", "EXISTS"),
        ("close FROM bars", "FROM"),
        ("close WHERE close > 1", "WHERE"),
        ("DISTINCT close", "DISTINCT"),
        ("close UNION SELECT 1", "a query"),
        ("bars.close", "a column of a table"),
        ("close, open", "2 expressions"),
        ("close; DROP TABLE bars", "semicolon"),
        ("close AS x", "second name"),
        ("*", "all columns"),
        ("", "no expressions"),
        ("-- nothing", "no expressions"),
        ("(close", "(close"),
        ("close +", "close +"),
        ("1 + 2", "constant"),
        ("'close'", "a text"),
        ("1e400 * close", "1e400"),
        ("0x10 * close", "0x10"),
        ("close > open", "comparison"),
        ("NOT close", "a number where true or false belongs"),
        ("CASE WHEN close THEN 1 END", "a number where true or false belongs"),
        ("CAST(close AS DOUBLE)", "CAST"),
        ("close ^ 2", "^"),
        ("close % 2", "remainder"),
        ("close IN (1, 2)", "a list"),
        ("LOG(close)", "LOG"),
        ("LOG(10, 2) * close", "LOG"),
        ("MAX(close, open)", "MAX(close, open)"),
        ("GREATEST(close)", "1: GREATEST(close)"),
        ("LN(close, 2)", "LN(close, 2)"),
        ("ROUND(close, 2)", "ROUND"),
        ("foo(close)", "FOO(close)"),
        ("read_csv('/etc/passwd')", "READ_CSV"),
        ("ts", "ts, which is no number"),
        ("session", "session, which is no number"),
        ("_s * close", "'_s'"),
        ("AVG(1) OVER (ORDER BY ts ROWS 3 PRECEDING)", "AVG(1)"),
    ],
)
def test_what_is_no_formula_is_refused_with_the_feature_and_the_construct(text: str, construct: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _read(text)
    assert caught.value.summary == "features.custom.custom__a"
    assert construct.lower() in caught.value.got.lower()
    assert caught.value.expected
    assert caught.value.do


def test_a_slip_of_the_pen_gets_a_suggestion() -> None:
    for text, near in {"closee / open": "close", "SQR(close)": "SQRT", "GREATST(close, open)": "GREATEST"}.items():
        with pytest.raises(ConfigError) as caught:
            _read(text)
        assert f"did you mean {near}?" in caught.value.do


def test_an_unbounded_window_is_told_from_one_that_sees_the_future() -> None:
    with pytest.raises(ConfigError) as caught:
        _read("SUM(close) OVER (ORDER BY ts ROWS UNBOUNDED PRECEDING)")
    assert "known in time" in caught.value.got
    assert "lookback" in caught.value.got


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("Close-OPEN", "(close - open)  -- the body"),
        ("LAG(close, 1)", "lag(CLOSE) over (partition by symbol order by ts asc)"),
        ("AVG(low) OVER (ORDER BY ts ROWS 3 PRECEDING)",
         "avg((low)) over (order by ts rows between 3 preceding and current row)"),
        ("CASE WHEN bar = 1 THEN 2 END", "CASE bar WHEN 1 THEN 2 ELSE NULL END"),
        ("CASE WHEN close BETWEEN 1 AND 2 THEN 1 ELSE 0 END", "CASE WHEN close >= 1 AND close <= 2 THEN 1 ELSE 0 END"),
        ("POW(close, 2)", "POWER(close, 2)"),
        ("LOG(close, 10)", "LOG10(close)"),
        ("LOG(close, 2)", "LOG2(close)"),
        ("STDDEV_SAMP(close) OVER (ORDER BY ts ROWS 3 PRECEDING)", "STDDEV(close) OVER (ORDER BY ts ROWS 3 PRECEDING)"),
        ("CASE WHEN NOT (close IS NULL) THEN 1 END", "CASE WHEN close IS NOT NULL THEN 1 END"),
    ],
)  # fmt: skip
def test_spelling_blanks_and_comments_mean_nothing(one: str, two: str) -> None:
    assert _read(one) == _read(two)
    assert text_of(_read(one)) == text_of(_read(two))


_LEAVES: st.SearchStrategy[Node] = st.one_of(
    st.sampled_from([Column(name) for name in VALUES]),
    st.floats(min_value=0.0, max_value=1e12, allow_nan=False).map(Number),
)


def _grow(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    held = inner.map(lambda node: node if columns(node) else Call("+", (Column("close"), node)))
    truth = st.builds(lambda sign, one, two: Call(sign, (one, two)), st.sampled_from(COMPARISONS), inner, inner)
    test = st.one_of(
        truth,
        st.builds(lambda word, one, two: Call(word, (one, two)), st.sampled_from(("AND", "OR")), truth, truth),
        truth.map(lambda one: Call("NOT", (one,))),
        inner.map(lambda one: Call("IS NULL", (one,))),
    )
    bars, within = st.integers(1, 20), st.sampled_from(("", "session", "segment"))
    return st.one_of(
        st.builds(lambda sign, one, two: Call(sign, (one, two)), st.sampled_from("+-*/"), inner, inner),
        st.builds(lambda name, one: Call(name, (one,)), st.sampled_from(("NEG", "ABS", "LN", "SIGN")), inner),
        st.builds(lambda one: Call("LOG10", (one,)), held),  # of a number alone it cannot be told from LOG(10, number)
        st.builds(lambda name, *two: Call(name, two), st.sampled_from(("POWER", "LEAST", "NULLIF")), inner, inner),
        st.builds(lambda when, then, other: Case(((when, then),), other), test, inner, inner | st.just(Number(None))),
        st.builds(Lag, held, bars, within),
        st.builds(Window, st.sampled_from(WINDOWS), held, bars, within),
    )  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.recursive(_LEAVES, _grow, max_leaves=12).filter(lambda node: bool(columns(node))))
def test_the_one_spelling_reads_back_to_the_same_tree(node: Node) -> None:
    assert _read(text_of(node)) == node
