"""In: lines of a search space. Out: axes of the right kind; what cannot be searched refused with the reason."""

from __future__ import annotations

import pytest

from klinepred.config import load_pipeline, parse_pipeline
from klinepred.errors import ConfigError, UsageError
from klinepred.settings.search import Axis, Plain, parse_axis
from klinepred.tuning.space import axis_line, given_settings, own_values, searched, usual_space, with_values


@pytest.mark.parametrize(
    ("line", "axis"),
    [
        ("train.lr=1e-4..1e-2|log", Axis("train.lr", 1e-4, 1e-2, log=True)),
        ("model.dropout = 0 .. 0.5", Axis("model.dropout", 0.0, 0.5)),
        ("model.hidden=32..256|log", Axis("model.hidden", 32, 256, log=True)),
        ("train.batch=16, 32", Axis("train.batch", choices=(16, 32))),
        ("model.skip=true,false", Axis("model.skip", choices=(True, False))),
        ('train.schedule="cosine",constant', Axis("train.schedule", choices=("cosine", "constant"))),
    ],
)
def test_a_line_is_an_axis_and_the_axis_that_line(line: str, axis: Axis) -> None:
    assert parse_axis(line) == axis
    assert parse_axis(axis_line(axis)) == axis
    assert all(type(one) is type(two) for one, two in zip(parse_axis(line).ends, axis.ends, strict=True))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("train.seed=1,2", "luck"),
        ("train.loss=mse,huber", "cannot be compared"),
        ("dataset.horizon=1..3", "other rows or labels"),
        ("features.set=f50,f51", "shared by all trials"),
        ("train.learning_rate=1..2", "one of model.hidden"),
        ("train.batch=1.5..2", "whole number"),
        ("train.batch=16", "two values or more"),
        ("train.batch=16,16", "two values or more"),
        ("train.lr=2..1", "LOW below HIGH"),
        ("train.lr=0..1|log", "above 0"),
        ("train.lr=1..2|cubic", "log scale"),
        ("model.skip=0..1", "as a list"),
        ("train.lr", "a line like"),
        ("", "a line like"),
    ],
)
def test_what_is_no_axis_is_refused_with_the_reason(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_axis(line)
    with pytest.raises(UsageError) as said:
        searched(load_pipeline("demo"), [line])
    assert why in said.value.expected


def test_an_end_that_is_no_valid_setting_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(ConfigError, match=r"model\.dropout"):
        searched(load_pipeline("demo"), ["model.dropout=0..1.5"])
    with pytest.raises(ConfigError, match=r"train\.lr"):
        searched(load_pipeline("demo"), ["train.lr=1..inf"])


def test_lines_of_the_command_line_replace_those_of_the_same_setting() -> None:
    run = load_pipeline("demo", overrides=['tune.space=["train.lr=1e-4..1e-2", "train.batch=8,16"]'])
    assert searched(run) == (parse_axis("train.lr=1e-4..1e-2"), parse_axis("train.batch=8,16"))
    found = searched(run, ["train.batch=4,8", "train.ema=0..0.9"])
    assert [axis_line(axis) for axis in found] == ["train.lr=0.0001..0.01", "train.batch=4,8", "train.ema=0.0..0.9"]


def test_a_setting_twice_in_the_file_is_refused() -> None:
    with pytest.raises(ConfigError) as said:
        load_pipeline("demo", overrides=['tune.space=["train.lr=1..2", "train.lr=3..4"]'])
    assert "train.lr twice" in said.value.expected


def test_the_usual_space_lies_around_the_pipelines_own_settings() -> None:
    run = load_pipeline("demo")
    assert searched(run) == usual_space(run)
    lr, decay, batch, dropout = usual_space(run)
    assert lr.log
    assert lr.ends == pytest.approx((1e-4, 1e-2))
    assert (decay.key, batch.choices, dropout.high) == ("train.weight_decay", (32, 64, 128), 0.4)
    own = own_values(run, usual_space(run))
    assert own == {"train.lr": 1e-3, "train.weight_decay": 1e-2, "train.batch": 64, "model.dropout": 0.1}
    assert own_values(run, [parse_axis("train.lr=1e-2..1e-1")]) is None


def test_values_take_the_place_of_settings_and_the_rest_stays() -> None:
    run = load_pipeline("demo")
    values: dict[str, Plain] = {"train.lr": 2e-3, "model.hidden": 32}
    changed = with_values(run, values)
    assert (changed.train.lr, changed.model.hidden) == (2e-3, 32)
    assert with_values(changed, {"train.lr": run.train.lr, "model.hidden": run.model.hidden}) == run
    assert parse_pipeline(given_settings(changed), where="here") == changed
    assert changed.ignored() == run.ignored() == []


def test_a_grace_without_a_pruner_is_said_to_be_ignored() -> None:
    run = load_pipeline("demo", overrides=["tune.pruner=none", "tune.grace=3"])
    assert [line for line in run.ignored() if line.startswith("tune.grace is ignored")]
