"""In: `--set a.b=c`. Out: it reaches its setting and nothing else, or one message says what is wrong with it."""

from __future__ import annotations

import contextlib
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klinepred.config import load_pipeline
from klinepred.errors import ConfigError
from tests.test_config import fault


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("train.epochs=3", 3),
        ("train.epochs = 3 ", 3),
        ("train.lr=1", 1.0),
        ("train.amp=true", True),
        ("train.device=cuda:1", "cuda:1"),
        ("data.calendar=24/7", "24/7"),
        ('data.symbols=["A", "B"]', ("A", "B")),
        ("data.tz=America/New_York", "America/New_York"),
        ("description=a = b", "a = b"),
        ("data.simulate.start=2026-02-03", date(2026, 2, 3)),
    ],
)
def test_override_reaches_its_setting(override: str, value: object) -> None:
    run: Any = load_pipeline("demo", overrides=[override])
    for part in override.partition("=")[0].strip().split("."):
        run = getattr(run, part)
    assert run == value
    assert type(run) is type(value)


def test_later_override_wins_and_neighbours_stay() -> None:
    run = load_pipeline("demo", overrides=["train.epochs=3", "train.epochs=4"])
    assert run.train.epochs == 4
    assert run.train.lr == load_pipeline("demo").train.lr


@pytest.mark.parametrize(
    "override", ["train", "=3", "train..epochs=3", ".epochs=3", "train.=3", "", "train.epochs.x=3"]
)
def test_override_of_no_form_is_refused(override: str) -> None:
    assert fault(override).summary == f"--set {override}"


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_no_override_text_ends_in_anything_but_a_config_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        load_pipeline("demo", overrides=[text])


def test_override_cannot_smuggle_in_a_second_line() -> None:
    assert fault("train.epochs=3\nx = 4").summary.endswith("train.epochs")
