"""In: a pipeline, lines of a search space. Out: the axes that are searched; the pipeline with values on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from klinepred.config import change_pipeline
from klinepred.errors import UsageError
from klinepred.settings import Pipeline
from klinepred.settings.search import Axis, Plain, parse_axis


def searched(run: Pipeline, lines: Sequence[str] = ()) -> tuple[Axis, ...]:
    """The axes of `[tune]`, with those of `lines` (of the command line) added, or in place of the same settings.

    Where neither names one, those of `usual_space`. The ends of every axis are tried on the pipeline's settings.

    Raises
    ------
    ConfigError, UsageError
        A line is no axis, or an end of one is no valid setting.
    """
    axes = {axis.key: axis for axis in map(parse_axis, run.tune.space)}
    for line in lines:
        try:
            axis = parse_axis(line)
        except ValueError as error:
            raise UsageError(
                f"--space {line}",
                expected=str(error),
                got=repr(line),
                do='write it like --space "train.lr=1e-4..1e-2|log" or --space train.batch=32,64',
            ) from error
        axes[axis.key] = axis
    found = tuple(axes.values()) or usual_space(run)
    for axis in found:
        for end in axis.ends:
            with_values(run, {axis.key: end})
    return found


def usual_space(run: Pipeline) -> tuple[Axis, ...]:
    """A factor of ten around the pipeline's learning rate, half and twice its batch, dropout, weight decay."""
    lr, batch = run.train.lr, run.train.batch
    return (
        Axis("train.lr", low=lr / 10.0, high=lr * 10.0, log=True),
        Axis("train.weight_decay", low=1e-4, high=1e-1, log=True),
        Axis("train.batch", choices=tuple(dict.fromkeys((max(1, batch // 2), batch, 2 * batch)))),
        Axis("model.dropout", low=0.0, high=0.4),
    )


def with_values(run: Pipeline, values: Mapping[str, Plain]) -> Pipeline:
    """The pipeline with `values` (by key, such as train.lr) in place of its own.

    Raises
    ------
    ConfigError
        One is no valid setting.
    """
    table = given_settings(run)
    for key, value in values.items():
        section, _, name = key.partition(".")
        table.setdefault(section, {})[name] = value
    return change_pipeline(table, overrides=(), where=run.name)


def own_values(run: Pipeline, axes: Sequence[Axis]) -> dict[str, Plain] | None:
    """What the pipeline itself has on the axes, to be tried first; None where it lies outside of one."""
    out: dict[str, Plain] = {}
    for axis in axes:
        section, _, name = axis.key.partition(".")
        value = getattr(getattr(run, section), name)
        if not axis.holds(value):
            return None
        out[axis.key] = value
    return out


def given_settings(run: Pipeline) -> dict[str, Any]:
    """What the pipeline's file and overrides gave, and the whole network; the rest is left to the defaults.

    `klinepred.config.parse_pipeline` reads it back equal, without the preset's file.
    """
    table = run.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    return {**table, "name": run.name, "model": run.model.model_dump(mode="json")}


def axis_line(axis: Axis) -> str:
    """The line that `parse_axis` reads as this axis."""
    if axis.choices:
        return f"{axis.key}={','.join(str(one).lower() if isinstance(one, bool) else str(one) for one in axis.choices)}"
    return f"{axis.key}={axis.low}..{axis.high}{'|log' if axis.log else ''}"
