"""In: a finished search. Out: the pipeline with the best settings as a TOML file, ready to be trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klinepred.errors import UsageError
from klinepred.paths import Workspace, write_atomic

if TYPE_CHECKING:
    from klinepred.pipeline.tune import Tuned


def tuned_place(space: Workspace, name: str, output: Path | None) -> Path:
    """Where the tuned form of pipeline `name` goes unless `output` says."""
    return output or space.pipelines / f"{name}-tuned.toml"


def refuse_taken(path: Path, *, force: bool) -> None:
    """Nothing where the file may be written; asked before anything is trained.

    Raises
    ------
    UsageError
        There is one already, or it cannot be one.
    """
    if path.is_dir() or (path.exists() and not force):
        raise UsageError(
            f"pipeline file {path}",
            expected="no such file yet",
            got="a folder" if path.is_dir() else "one that is there",
            do="name another with -o" if path.is_dir() else "name another with -o FILE, or overwrite it with --force",
        )


def write_tuned(tuned: Tuned, path: Path, *, force: bool) -> None:
    """The file, whole or not at all.

    Raises
    ------
    UsageError
        As `refuse_taken`; or it cannot be written.
    """
    from klinepred.training.resolved import toml_text
    from klinepred.tuning.space import given_settings

    refuse_taken(path, force=force)
    best = tuned.trials[0]
    head = (
        f"# {tuned.best.name} with the settings of trial {best.number} of {len(tuned.trials)} of {tuned.name}:",
        f"# validation loss {best.loss:.6f}. The name stays: its trials count as looks at the test part.",
        *(
            f"# {key} = {str(value).lower() if isinstance(value, bool) else value}"
            for key, value in best.values.items()
        ),
    )
    try:
        write_atomic(path, "\n".join(head) + "\n\n" + toml_text(given_settings(tuned.best)))
    except OSError as error:
        raise UsageError(
            f"pipeline file {path}",
            expected="a file that can be written",
            got=error.strerror or str(error),
            do=f"write it elsewhere: klinepred tune --resume {tuned.name} -o FILE",
        ) from error
