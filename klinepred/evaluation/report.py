"""In: an `Evaluation`, what is known of its model. Out: one HTML file that works offline, the verdict first."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from klinepred.errors import UsageError
from klinepred.evaluation.background import TAGS, Background, time_line, versions
from klinepred.evaluation.charts import charts
from klinepred.evaluation.importance import Importance
from klinepred.evaluation.result import Evaluation
from klinepred.page import house
from klinepred.paths import write_atomic

NOTHING: Final = Background()
ERRORS: Final = (
    ("IC", "ic", 4),
    ("rank IC", "rank_ic", 4),
    ("cross-sectional IC", "cs_ic", 4),
    ("cross-sectional rank IC", "cs_rank_ic", 4),
    ("R²", "r2", 5),
    ("MSE", "mse", 4),
    ("hit rate", "hit_rate", 4),
)
"""Scores with both kinds of error: how they are called, their name in `Score`, digits."""


def write_report(
    evaluation: Evaluation,
    path: Path,
    *,
    background: Background = NOTHING,
    weights: Sequence[Importance] = (),
) -> Path:
    """Write the report. It loads nothing from elsewhere, and every text in it is escaped.

    Parameters
    ----------
    background
        Where the model and its bars come from.
    weights
        Importance of the features (`klinepred.evaluation.importance`).

    Returns
    -------
    pathlib.Path
        `path`.

    Raises
    ------
    UsageError
        The file cannot be written.
    """
    text = render_report(evaluation, background=background, weights=weights)
    try:
        write_atomic(path, text)
    except OSError as error:
        raise UsageError(
            f"report {path}", expected="a file that can be written", got=str(error), do="free space or name another"
        ) from error
    return path


def render_report(
    evaluation: Evaluation, *, background: Background = NOTHING, weights: Sequence[Importance] = ()
) -> str:
    """The report as text; the same evaluation gives the same text. Parameters as `write_report`."""
    from plotly.offline import get_plotlyjs

    figures = charts(evaluation, background.history)
    pipeline = str(background.config.get("name", ""))
    sentence = evaluation.sentence.removeprefix(f"{evaluation.verdict}: ")
    graded = [evaluation.model, *evaluation.baselines.values()]
    config = background.config
    text: str = (
        house(num=_number, percent=_percent)
        .get_template("evaluation/report.html.j2")
        .render(
            e=evaluation,
            title=" · ".join(part for part in ("klinepred", pipeline, evaluation.model_name) if part),
            sentence=sentence[:1].upper() + sentence[1:],
            rows=[one for one in graded if one.head is not None],
            errors=ERRORS,
            figures=figures,
            plotly=get_plotlyjs() if figures else "",
            line=time_line(background.parts),
            quality=[] if background.quality is None else background.quality.to_dicts(),
            remarks=[line for line in background.remarks if line not in evaluation.warnings],
            tags={name: background.tags.get(name, "") for name in TAGS},
            skipped=max((value for _, value in background.history.get("amp/skipped_steps", ())), default=None),
            weights=weights,
            heaviest=max((abs(one.error_rise) for one in weights), default=0.0) or 1.0,
            parts=[
                ("By symbol", "symbol", evaluation.symbols.to_dicts()),
                ("By month", "month", evaluation.months.to_dicts()),
                ("By time since the open", "since_open", evaluation.times.to_dicts()),
            ],
            made=[
                ("model", evaluation.model_name or "–"),
                *(
                    (name, _words(value))
                    for name, value in background.provenance.items()
                    if value not in (None, "", {}, [])
                ),
            ],
            versions=versions(),
            chosen=[(one.name, _words(one.settings)) for one in evaluation.baselines.values() if one.settings],
            config=json.dumps(config, ensure_ascii=False, indent=2, default=str) if config else "",
        )
    )
    return text


def _number(value: float | None, digits: int) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.{digits}f}".replace("-", "−")


def _percent(value: float | None) -> str:
    return _number(None if value is None else 100.0 * value, 2)


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_words(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
