"""In: the OVER of a function. Out: `Span`: how many bars before the present one it takes in, and where it is cut."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from klinepred.formula.fault import FRAME, OVER, PAST, FormulaError
from klinepred.formula.tree import WITHIN


@dataclass(frozen=True)
class Span:
    """The present bar and the `bars` before it; none before the start of its `within` ("" = of its symbol)."""

    bars: int
    within: str


def span_of(over: exp.Window, *, lag: bool, text: str) -> Span:
    """Read an OVER.

    Parameters
    ----------
    lag
        It belongs to a LAG, which has no frame.
    text
        The whole expression, for messages.

    Raises
    ------
    FormulaError
        Its rows are not bounded, not in time order, not of the past, or cut where causality cannot be told.
    """
    if over.args.get("alias") is not None or over.args.get("first") is not None:
        raise FormulaError(expected=OVER, got=f"{text}: a window with a name", do="write the window out")
    _order(over.args.get("order"), text, lag=lag)
    spec = over.args.get("spec")
    within = _within(over.args.get("partition_by") or [], text)
    if lag:
        if spec is not None:
            raise FormulaError(expected="LAG(x, n) OVER (ORDER BY ts)", got=f"a frame: {text}", do="leave it out")
        return Span(0, within)
    if spec is None:
        raise FormulaError(
            expected=f"a bounded window: {OVER}",
            got=f"{text}: all bars so far, without bound, so that no lookback can be told",
            do=f"add {FRAME} with a number",
        )
    return Span(_bars(spec, text), within)


def _bars(spec: exp.WindowSpec, text: str) -> int:
    kind, start, end = (str(spec.args.get(name) or "").upper() for name in ("kind", "start", "end"))
    sides = (str(spec.args.get("start_side") or "").upper(), str(spec.args.get("end_side") or "").upper())
    if "FOLLOWING" in sides:
        raise FormulaError(expected=PAST, got=f"FOLLOWING in {text}: bars that are not known yet", do=f"write {FRAME}")
    if kind != "ROWS":
        raise FormulaError(expected=FRAME, got=f"{kind or 'a frame'} in {text}", do="count bars, with ROWS")
    if "UNBOUNDED" in (start, end):
        raise FormulaError(
            expected=f"a bounded window: {OVER}",
            got=f"UNBOUNDED PRECEDING in {text}: known in time, but without bound, so that no lookback can be told",
            do=f"write {FRAME} with a number",
        )
    if spec.args.get("exclude"):
        raise FormulaError(expected=FRAME, got=f"EXCLUDE in {text}", do="leave EXCLUDE out")
    number = spec.args.get("start")
    if end not in ("", "CURRENT ROW"):
        raise FormulaError(
            expected=FRAME,
            got=f"a window that ends before the present bar: {text}",
            do="write LAG(AVG(x) OVER (…), n) for a window that ended n bars ago",
        )
    if not isinstance(number, exp.Literal) or number.is_string or not number.this.isdecimal() or int(number.this) < 1:
        raise FormulaError(expected=f"{FRAME} with a whole number n from 1 on", got=text, do="write the number")
    return int(number.this)


def _order(order: exp.Order | None, text: str, *, lag: bool) -> None:
    frame = "" if lag else f" {FRAME}"
    needed = f"OVER (ORDER BY ts{frame})"
    if order is None:
        why = "rows without an order" if lag else "rows without an order, later bars among them"
        raise FormulaError(expected=needed, got=f"{text}: {why}", do="add ORDER BY ts")
    first, *others = order.expressions
    column = first.this if isinstance(first, exp.Ordered) else first
    if others or not isinstance(column, exp.Column) or column.name.lower() != "ts" or column.args.get("table"):
        raise FormulaError(expected=needed, got=f"another order than time: {text}", do="write ORDER BY ts")
    if isinstance(first, exp.Ordered) and first.args.get("desc"):
        raise FormulaError(
            expected=needed, got=f"ORDER BY ts DESC in {text}: later bars come before", do="leave DESC out"
        )


def _within(parts: list[exp.Expression], text: str) -> str:
    names = [part.name.lower() if isinstance(part, exp.Column) and not part.args.get("table") else "" for part in parts]
    cuts = [name for name in names if name != "symbol"]
    if len(cuts) > 1 or any(name not in WITHIN for name in cuts):
        raise FormulaError(
            expected=f"PARTITION BY symbol, {' or '.join(WITHIN)}",
            got=f"another partition: {text}; how far back its rows lie cannot be told",
            do="leave it out: each symbol is computed by itself",
        )
    return cuts[0] if cuts else ""
