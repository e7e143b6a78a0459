"""In: names of entry points. Out: the features that installed packages declare under them, checked before use."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

import polars as pl

from klinepred.errors import ConfigError, FeatureError
from klinepred.features.blame import one_line
from klinepred.features.recipe import Plugin
from klinepred.features.spec import Feature
from klinepred.formula.names import check_name, nearest
from klinepred.schema import BAR, BAR_SCHEMA, CALENDAR, VALUES

GROUP: Final = "klinepred.features"
PLACE: Final = ("session", "bar", "session_bars", "slot", "segment")
COLUMNS: Final = (*BAR_SCHEMA, CALENDAR, *PLACE)
"""What an expression of a package may read; documented in docs/features-custom.md."""


def load_plugin(wanted: Plugin) -> tuple[Plugin, tuple[Feature, ...]]:
    """The features of one entry point, and from which version of which distribution they are.

    Parameters
    ----------
    wanted
        With distribution and version: no other will do.

    Raises
    ------
    FeatureError
        No such entry point, several, another version, its code fails, or what it gives is no feature.
    """
    point = _find(wanted)
    found = Plugin(wanted.name, *_origin(point))
    given = _given(point, found)
    found = replace(found, code=_code(point))
    if wanted.distribution and found != wanted:
        other = (found.distribution, found.version) != (wanted.distribution, wanted.version)
        raise FeatureError(
            f"features.plugins: {wanted.name}",
            expected=wanted.origin,
            got=found.origin,
            do=f"pip install {wanted.distribution}=={wanted.version}, or train again"
            if other
            else f"put the files of {wanted.distribution} back as they were, or train again",
        )
    if not given:
        raise _bad(found, "at least one Feature", "none")
    return found, tuple(_checked(one, found) for one in given)


def _find(wanted: Plugin) -> EntryPoint:
    every = entry_points(group=GROUP)
    # a distribution that lies on the path twice declares the same twice
    fitting = {(*_origin(point), point.value): point for point in every.select(name=wanted.name)}
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    summary = f"features.plugins: {wanted.name}"
    if fitting:
        raise FeatureError(
            summary,
            expected=f"one package with {GROUP}:{wanted.name}",
            got=f"{len(fitting)}: {', '.join(sorted(f'{name} {version}' for name, version, _ in fitting))}",
            do="uninstall all but one",
        )
    names = sorted({point.name for point in every})
    near = nearest(wanted.name, names)
    source = f"{wanted.distribution} {wanted.version}" if wanted.distribution else "the package that declares it"
    raise FeatureError(
        summary,
        expected=f"an installed package with an entry point of that name in the group {GROUP}",
        got=f"none; there are: {', '.join(names[:10]) or 'no others either'}",
        do=f"did you mean {near}?" if near else f"install {source} beside klinepred",
    )


def _origin(point: EntryPoint) -> tuple[str, str]:
    if point.dist is None:
        return "an unnamed distribution", "without version"
    return str(point.dist.name), str(point.dist.version)


def _code(point: EntryPoint) -> str:
    """8 hex digits over the Python files beside the module that declares it, and below; of a single file alone."""
    module = sys.modules.get(point.module)
    file = Path(str(getattr(module, "__file__", None) or ""))
    files = sorted(file.parent.rglob("*.py")) if getattr(module, "__package__", "") else [file]
    digest = hashlib.sha256()
    for path in files:
        if path.is_file():
            digest.update(path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()[:8]


def _given(point: EntryPoint, found: Plugin) -> Sequence[object]:
    try:
        thing = point.load()
        if not isinstance(thing, Feature | tuple | list) and callable(thing):
            thing = thing()
    except (Exception, SystemExit) as error:
        raise _fails(found, f"loading {point.value}", error) from error
    if isinstance(thing, Feature):
        return (thing,)
    if isinstance(thing, tuple | list):
        return thing
    raise _bad(found, "a Feature, a tuple of them, or a function without arguments that returns them", _kind(thing))


def _checked(feature: object, found: Plugin) -> Feature:
    if not isinstance(feature, Feature):
        raise _bad(found, "klinepred.features.spec.Feature", _kind(feature))
    if not isinstance(feature.name, str):
        raise _bad(found, "a name that is text", _kind(feature.name))
    try:
        check_name(feature.name, where=f"features.plugins: {_who(found)}")
    except ConfigError as error:
        raise FeatureError(
            error.summary, expected=error.expected, got=error.got, do=f"{_who(found)}: {error.do}"
        ) from error
    for words, fits in _RULES.items():
        if not fits(feature):
            raise _bad(found, f"in {feature.name}, {words}", _facts(feature))
    _read_only_documented(feature, found)
    _try(feature, found)
    return replace(feature, origin=found.origin)


def _whole(number: object, least: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= least


def _line(text: object) -> bool:
    return isinstance(text, str) and bool(text.strip()) and text.isprintable() and "|" not in text


_RULES: Final[dict[str, Callable[[Feature], bool]]] = {
    "formula and source as one line of text each, without |": lambda one: _line(one.formula) and _line(one.source),
    "a polars expression": lambda one: isinstance(one.expression, pl.Expr),
    "first_value and lookback_bars as whole numbers from 1 on, lookback_sessions and revision from 0 on": lambda one: (
        _whole(one.first_value, 1)
        and _whole(one.lookback_bars, 1)
        and _whole(one.lookback_sessions, 0)
        and _whole(one.revision, 0)
    ),
    "a lookback that reaches first_value": lambda one: (
        one.lookback_bars >= one.first_value or one.lookback_sessions > 0
    ),
}


def _facts(one: Feature) -> str:
    return (
        f"formula {one.formula!r:.60}, source {one.source!r:.60}, expression of type {_kind(one.expression)},"
        f" first_value {one.first_value!r:.20}, lookback_bars {one.lookback_bars!r:.20},"
        f" lookback_sessions {one.lookback_sessions!r:.20}, revision {one.revision!r:.20}"
    )


def _read_only_documented(feature: Feature, found: Plugin) -> None:
    """The columns klinepred computes for itself change without notice, and no fingerprint would tell."""
    names = feature.expression.meta.root_names()
    strange = sorted(set(names) - set(COLUMNS))
    if strange or feature.expression.meta.has_multiple_outputs():
        raise _bad(
            found,
            f"{feature.name} to read columns by name, of {', '.join(COLUMNS)}",
            ", ".join(strange) or "a selector",
        )


def _try(feature: Feature, found: Plugin) -> None:
    """Compute it once on a few made-up bars, so that what cannot work fails here and not hours later."""
    bars = _bars()
    try:
        values = bars.select(feature.expression.alias(feature.name))
    except (Exception, SystemExit) as error:
        raise _fails(found, f"computing {feature.name}", error) from error
    kind = values.dtypes[0]
    if values.shape != (bars.height, 1) or not (kind.is_numeric() or kind == pl.Boolean):
        raise _bad(found, f"{feature.name} to be one number per bar", f"{values.height} of {kind} for {bars.height}")


def _bars() -> pl.DataFrame:
    """Three sessions of a dozen bars, as `klinepred.calendar.place` would have them."""
    start, count = datetime(2026, 1, 5, tzinfo=UTC), 36
    close = [100.0 + (step * 7) % 11 for step in range(count)]
    return pl.DataFrame(
        {
            "symbol": ["AAA"] * count,
            "ts": [start + timedelta(days=step // 12) + BAR * (step % 12) for step in range(count)],
            "open": [100.0, *close[:-1]],
            "high": [value + 2.0 for value in close],
            "low": [value - 9.0 for value in close],
            "close": close,
            "volume": [1000.0 + step for step in range(count)],
            CALENDAR: ["24/7"] * count,
            "session": [date(2026, 1, 5) + timedelta(days=step // 12) for step in range(count)],
            "bar": [step % 12 for step in range(count)],
            "session_bars": [288] * count,
            "slot": [288 * (step // 12) + step % 12 for step in range(count)],
            "segment": [1] * count,
        },
        schema={
            **BAR_SCHEMA,
            **dict.fromkeys(VALUES, pl.Float64()),
            CALENDAR: pl.Categorical(),
            "session": pl.Date(),
            "bar": pl.Int32(),
            "session_bars": pl.Int32(),
            "slot": pl.Int64(),
            "segment": pl.Int32(),
        },
    )


def _who(found: Plugin) -> str:
    return f"{found.name} of {found.distribution} {found.version}"


def _kind(thing: object) -> str:
    return type(thing).__name__


def _bad(found: Plugin, expected: str, got: str) -> FeatureError:
    return FeatureError(
        f"features.plugins: {_who(found)}",
        expected=expected,
        got=got,
        do=f"tell the authors of {found.distribution}, or leave it out of features.plugins",
    )


def _fails(found: Plugin, where: str, error: BaseException) -> FeatureError:
    return _bad(found, f"{where} to work", one_line(error))
