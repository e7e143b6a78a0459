"""In: commands that take long on large stores. Out: each tells how far it is, to the last step."""

from __future__ import annotations

import shlex

import pytest

from tests.conftest import Typed
from tests.docs.space import HEARD, NOW, Prepared
from tests.heard import listening

pytestmark = pytest.mark.timeout(900)  # two models are trained first

TOLD = {
    "ingest bars.parquet": {"files taken in"},
    "features build": {"features of symbols", "features, groups of symbols"},
    "features show --symbols SPY": {"features of symbols"},
    "dataset describe": {"symbols compared"},
    "bars check": {"groups of symbols looked over"},
    "bars export -o out.csv": {"symbols written"},
    "bars compact": {"months compacted"},
    "compare {model} {model}": {"models graded"},
    "predict --start 2026-06-25 --end 2026-06-30": {"hours of the range predicted"},
    "drift": {"symbols compared"},
    "models export --format onnx --to onnx": {"export as ONNX"},
}
PREPARED = {
    "ingest": {"months simulated", "files taken in"},
    "train": {"symbols compared", "steps of the audit", "moments after which the future is changed"},
    "evaluate": {"steps of the evaluation"},
}
"""What was heard while the workspace was made, by the first word of the commands."""


@pytest.mark.parametrize("line", TOLD)
def test_a_command_tells_how_far_it_is(line: str, prepared: Prepared, typed: Typed) -> None:
    words = shlex.split(line.format(model=prepared.models["us-equities-5m"]))
    clock = ("--now", NOW) if words[0] in ("ingest", "predict") or words[:2] == ["bars", "check"] else ()
    with listening() as heard:
        code, _, err = typed(*words, *clock)
    assert code == 0, err
    assert TOLD[line] <= heard.whole()
    assert all(piece.ended for piece in heard.pieces)


@pytest.mark.parametrize("word", PREPARED)
def test_so_do_those_that_made_the_workspace(word: str, prepared: Prepared) -> None:
    heard = HEARD[word]
    assert PREPARED[word] <= heard.whole()
    if word == "train":
        assert any(what.startswith("epoch 1/1  loss ") for what in heard.whole())
