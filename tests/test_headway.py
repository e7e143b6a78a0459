"""In: work in steps. Out: whoever watches hears of every step and of the end; nobody is asked for where nobody does."""

from __future__ import annotations

import pytest

from klinepred import headway
from klinepred.headway import Work, stepwise
from tests.heard import Heard, Piece, listening


def test_each_step_is_heard_and_the_end() -> None:
    with listening() as heard:
        with Work("files", total=3, done=1) as work:
            work.step()
            assert heard.pieces == [Piece("files", 3, 2)]
            work.at(3, what="files of A", left_s=7.0)
        work.step()  # too late
    assert heard.pieces == [Piece("files of A", 3, 3, 7.0, ended=True)]
    assert heard.whole() == {"files of A"}


def test_a_thing_counts_when_the_next_one_is_asked_for() -> None:
    with listening() as heard:
        seen = [(thing, heard.pieces[0].done) for thing in stepwise("abc", "letters")]
        assert list(stepwise(iter("ab"), "no length")) == ["a", "b"]
    assert seen == [("a", 0), ("b", 1), ("c", 2)]
    assert [(piece.what, piece.total, piece.done) for piece in heard.pieces] == [("letters", 3, 3), ("no length", 0, 2)]


def test_work_that_fails_is_no_longer_under_way() -> None:
    with listening() as heard, pytest.raises(ZeroDivisionError), Work("a", total=2):
        raise ZeroDivisionError
    assert [(piece.done, piece.ended) for piece in heard.pieces] == [(0, True)]
    assert heard.whole() == set()


def test_no_screen_is_made_before_work_begins_and_none_without_a_watch() -> None:
    made: list[Heard] = []

    def make() -> Heard:
        made.append(heard)
        return heard

    with listening() as heard:
        headway.watch(make)
        assert not made
        with Work("a", total=1), Work("b", total=1):
            assert len(made) == 1
        headway.watch(None)
        assert list(stepwise("ab", "unheard")) == ["a", "b"]
    assert [piece.what for piece in heard.pieces] == ["a", "b"]
