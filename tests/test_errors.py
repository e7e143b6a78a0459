"""In: every error class. Out: each says expected, got and what to do, has an exit code, and can be pickled."""

from __future__ import annotations

import pickle
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest

import klinepred
from klinepred.errors import ConfigError, KlinepredError, UsageError
from klinepred.training.signals import TrainingStopped


def every_class() -> list[type[KlinepredError]]:
    for module in pkgutil.walk_packages(klinepred.__path__, "klinepred."):
        if not module.name.endswith(("__main__", ".next_bar")):  # two scripts: importing them runs them
            import_module(module.name)

    def below(kind: type[KlinepredError]) -> Iterator[type[KlinepredError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    return sorted(set(below(KlinepredError)), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", every_class(), ids=lambda kind: kind.__name__)
def test_every_error_tells_expected_got_and_what_to_do(kind: type[KlinepredError]) -> None:
    error = kind("the thing", expected="this", got="that", do="something")
    assert str(error) == "the thing\n  expected: this\n  got:      that\n  do this:  something"
    assert kind.__doc__


@pytest.mark.parametrize("kind", every_class(), ids=lambda kind: kind.__name__)
def test_exit_code_is_2_for_usage_1_for_failure_and_beyond_128_for_signals(kind: type[KlinepredError]) -> None:
    allowed = {2} if issubclass(kind, UsageError) else {130, 143} if issubclass(kind, TrainingStopped) else {1}
    assert kind.exit_code in allowed


@pytest.mark.parametrize("kind", every_class(), ids=lambda kind: kind.__name__)
def test_error_from_a_worker_process_keeps_its_parts(kind: type[KlinepredError]) -> None:
    error = kind("the thing", expected="this", got="that", do="something")
    back = pickle.loads(pickle.dumps(error))  # noqa: S301  # what multiprocessing does with an exception
    assert type(back) is kind
    assert str(back) == str(error)


def test_no_error_can_be_made_without_its_parts() -> None:
    with pytest.raises(TypeError):
        ConfigError("the thing")  # type: ignore[call-arg]
