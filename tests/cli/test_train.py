"""In: command lines of `klinepred train` that cannot work. Out: exit code 2, three parts, nothing begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Typed


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (
            ["--init-from", "some-model", "--resume", "last"],
            ["--init-from some-model with --resume last", "leave one out"],
        ),
        (
            ["--set", "model.preset=lstm-50m"],
            ["reads 78 bars at once", "--set dataset.cut=window --set dataset.window=78"],
        ),
        (["--set", "train.loss=quantile"], ["model.quantiles = []", "model.quantiles="]),
        (["--set", "train.ensemble=0"], ["train.ensemble", "greater than or equal to 1"]),
    ],
)
def test_what_does_not_fit_together_is_refused_at_once(
    words: list[str], names: list[str], typed: Typed, tmp_path: Path
) -> None:
    code, out, err = typed("train", "-p", "demo", "-w", str(tmp_path), *words)
    assert code == 2
    assert out == ""
    assert all(part in err for part in ("expected:", "got:", "do this:", *names))
    assert not (tmp_path / "mlruns").exists()


def test_48_a_folder_as_run_store_is_refused_with_the_way_out_before_anything_is_done(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:./mlruns")
    for command in ("train", "run"):
        words = ["--skip", "ingest"] if command == "run" else []
        code, out, err = typed(command, "-p", "demo", "-w", str(tmp_path), *words)
        assert (code, out) == (2, "")
        assert "unset MLFLOW_TRACKING_URI" in err
    assert [*tmp_path.iterdir()] == []
