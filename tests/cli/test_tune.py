"""In: command lines of `klinepred tune` that cannot work. Out: exit code 2, three parts, nothing begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Typed


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--space", "train.seed=1,2"], ["--space train.seed=1,2", "luck"]),
        (["--space", "model.dropout=0..2"], ["model.dropout", "less than 1"]),
        (["--set", "dataset.split.folds=3"], ["a walk-forward", "--set dataset.split.folds=1"]),
        (["--resume"], ["--resume last", "studies of demo: none", "begin one"]),
        (["--resume", "demo-tune-1", "--space", "train.lr=1..2"], ["--resume with other settings"]),
        (["--set", "tune.trials=0"], ["tune.trials", "greater than or equal to 1"]),
        (["--set", 'tune.pruner="asha"'], ["tune.pruner", "'median' or 'none'"]),
        (["-o", "there.toml"], ["there.toml", "one that is there", "--force"]),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    words: list[str], names: list[str], typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.toml").write_text("mine", encoding="utf-8")
    code, out, err = typed("tune", "-p", "demo", *words)
    assert (code, out) == (2, "")
    assert all(part in err for part in ("expected:", "got:", "do this:", *names)), err
    assert not Path("mlruns").exists()
    assert Path("there.toml").read_text(encoding="utf-8") == "mine"


def test_help_ends_with_an_example(typed: Typed) -> None:
    code, out, _ = typed("tune", "--help")
    assert code == 0
    assert "klinepred tune -p demo --trials 10" in out.splitlines()[-2] + out.splitlines()[-1]
