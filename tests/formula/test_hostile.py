"""In: texts made to break a parser. Out: one message each, at once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from klinepred.errors import ConfigError
from klinepred.formula.parse import parse_formula
from klinepred.formula.tree import Node, size

GROWING: dict[str, Callable[[int], str]] = {
    "brackets": lambda n: "(" * n + "close" + ")" * n,
    "open brackets": lambda n: "(" * n,
    "signs": lambda n: "- " * n + "close",
    "NOT": lambda n: "CASE WHEN " + "NOT " * n + "close > 1 THEN 1 END",
    "functions": lambda n: "ABS(" * n + "close" + ")" * n,
    "CASE": lambda n: "CASE WHEN close > 1 THEN " * n + "1" + " END" * n,
    "CASE alone": lambda n: "CASE " * n,
    "BETWEEN": lambda n: "CASE WHEN " * n + "close" + " BETWEEN 1 AND 2 THEN 1 ELSE 0 END" * n,
    "CASE x": lambda n: "CASE " * n + "close" + " WHEN 1 THEN 2 END" * n,
    "NULLIF": lambda n: "NULLIF(" * n + "close" + ", 1)" * n,
    "sum": lambda n: " + ".join(["close"] * n),
    "windows": lambda n: "AVG(" * n + "close" + ") OVER (ORDER BY ts ROWS 2 PRECEDING)" * n,
    "LAG": lambda n: "LAG(" * n + "close" + ", 1)" * n,
    "queries": lambda n: "(SELECT " * n + "1" + ")" * n,
    "lists": lambda n: "[" * n + "]" * n,
    "dots": lambda n: "a." * n + "close",
    "CAST": lambda n: "CAST(" * n,
    "digits": lambda n: "9" * n + " * close",
    "blanks": lambda n: " " * n + "close",
    "comment": lambda n: "/*" * n,
    "text": lambda n: "'" + "a" * n,
    "quotes": lambda n: '"' * n,
    "statements": lambda n: "close;" * n,
    "columns": lambda n: ", ".join(["close"] * n),
}


@pytest.mark.timeout(30)  # milliseconds; what grows exponentially would take years
@pytest.mark.parametrize("count", [3, 23, 90, 400, 100_000])
@pytest.mark.parametrize("kind", GROWING)
def test_size_and_depth_end_in_a_small_tree_or_one_message(kind: str, count: int) -> None:
    tree = _read(GROWING[kind](count))
    if tree is not None:
        nodes, depth = size(tree)
        assert nodes <= 200
        assert depth <= 64


def test_words_of_sql_in_any_order_end_in_a_tree_or_one_message(capfd: pytest.CaptureFixture[str]) -> None:
    text = (
        "close open LAG LEAD AVG SUM ( ) ( ) , , 1 2.5 -3 'x' \" ` ; -- /* */ OVER ORDER BY ts PARTITION symbol ROWS"
        " BETWEEN 3 PRECEDING AND CURRENT ROW FOLLOWING UNBOUNDED CASE WHEN THEN ELSE END NULL IS NOT IN SELECT FROM"
        " WHERE UNION WITH AS * + / % ^ || :: . @ $ ? { } [ ] : # \\ \x00 \n é 日 now() RANDOM() INTERVAL CAST DATE"
        " EXTRACT STRUCT ARRAY MAP LATERAL PIVOT DISTINCT FILTER WITHIN GROUP IGNORE NULLS <> != = < => -> ->>"
    )
    words = text.split(" ")
    chance = random.Random(7)  # noqa: S311
    for _ in range(1500):
        drawn = " ".join(chance.choice(words) for _ in range(chance.randrange(1, 16)))
        _read(drawn)
    assert capfd.readouterr() == ("", "")


def _read(text: str) -> Node | None:
    """The tree, or None where there is one whole message of moderate length."""
    try:
        return parse_formula(text, where="features.custom.custom__a")
    except ConfigError as error:
        whole = bool(error.expected and error.got and error.do) and len(str(error)) < 700
    assert whole, text
    return None
