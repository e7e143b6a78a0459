"""In: every error class. Out: each says expected, got and what to do, has an exit code, and can be pickled."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from klinepred import errors
from klinepred.errors import ConfigError, KlinepredError, UsageError


def every_class() -> list[type[KlinepredError]]:
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
def test_exit_code_is_2_for_usage_and_1_for_the_rest(kind: type[KlinepredError]) -> None:
    assert kind.exit_code == (2 if issubclass(kind, UsageError) else 1)


@pytest.mark.parametrize("kind", every_class(), ids=lambda kind: kind.__name__)
def test_error_from_a_worker_process_keeps_its_parts(kind: type[KlinepredError]) -> None:
    error = kind("the thing", expected="this", got="that", do="something")
    back = pickle.loads(pickle.dumps(error))  # noqa: S301  # what multiprocessing does with an exception
    assert type(back) is kind
    assert str(back) == str(error)


def test_no_error_can_be_made_without_its_parts() -> None:
    with pytest.raises(TypeError):
        ConfigError("the thing")  # type: ignore[call-arg]


def test_all_errors_live_in_one_module() -> None:
    assert {kind.__module__ for kind in every_class()} == {errors.__name__}
