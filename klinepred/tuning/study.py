"""In: a search space, what trials have shown. Out: `Study`: what to try next, what to prune, all of it in one file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

from klinepred.errors import TrainingError, UsageError
from klinepred.paths import sqlite_uri
from klinepred.settings.search import Axis, Plain, parse_axis
from klinepred.tuning.space import axis_line

Outcome = Literal["complete", "pruned", "failed", "open"]

RANDOM: Final = 10
"""Trials that are drawn at random, by seed and number alone, before what they have shown guides the search."""
UNPRUNED: Final = 4
"""Trials that have to be complete before another is measured against their median."""
NAME: Final = "tune"


@dataclass(frozen=True)
class Candidate:
    """A configuration to be tried: its number (from 1) and its value on every axis."""

    number: int
    values: dict[str, Plain]


@dataclass(frozen=True)
class Tried:
    """What became of a trial.

    Attributes
    ----------
    loss
        Lowest validation loss of any epoch; None where there was no finite one.
    epochs
        Epochs whose validation loss was seen.
    run_id
        Its MLflow run.
    note
        Why it failed.
    """

    number: int
    values: dict[str, Plain]
    outcome: Outcome
    loss: float | None = None
    epochs: int = 0
    run_id: str = ""
    note: str = ""


class Study:
    """Optuna's study in an SQLite file. One process at a time opens it.

    What is tried next depends on the seed, the number of the trial and what is known of the others at that moment.

    Parameters
    ----------
    path
        The file; `begin` makes it.

    Raises
    ------
    UsageError
        Optuna is not installed.
    TrainingError
        There is no such study, or it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._optuna = load_optuna()
        self._handles: dict[int, Any] = {}
        try:
            if not path.is_file():
                raise OSError("no such file")  # noqa: TRY301  # as for a file that cannot be read
            self._study = self._optuna.load_study(study_name=NAME, storage=_storage(self._optuna, path))
            self.about: dict[str, Any] = json.loads(self._study.user_attrs["about"])
            self._axes = [parse_axis(line) for line in self.about["space"]]
        except Exception as error:  # Optuna, SQLAlchemy and SQLite each have their own
            raise TrainingError(
                f"study {path}",
                expected="a study of klinepred tune",
                got=" ".join(str(error).split())[:200] or type(error).__name__,
                do="begin a new one: klinepred tune without --resume",
            ) from error
        self._study.pruner = self._pruner()

    @classmethod
    def begin(
        cls, path: Path, *, axes: Sequence[Axis], about: Mapping[str, Any], first: Mapping[str, Plain] | None
    ) -> Study:
        """Make a study.

        Parameters
        ----------
        about
            trials, seed, pruner, grace, and what else belongs to it; plain values.
        first
            Values of the first trial; None = drawn as the others.
        """
        optuna = load_optuna()
        path.parent.mkdir(parents=True, exist_ok=True)
        made = optuna.create_study(storage=_storage(optuna, path), study_name=NAME, direction="minimize")
        made.set_user_attr("about", json.dumps({**about, "space": [axis_line(axis) for axis in axes]}))
        if first is not None:
            made.enqueue_trial(dict(first))
        return cls(path)

    def keep(self, **more: Any) -> None:
        """Change what is kept about the study."""
        self.about |= more
        self._study.set_user_attr("about", json.dumps(self.about))

    def left(self) -> int:
        """Trials still to be begun or to be gone on with."""
        rows = self.rows()
        return sum(row.outcome == "open" for row in rows) + max(0, int(self.about["trials"]) - len(rows))

    def next(self, *, busy: Sequence[int] = ()) -> Candidate | None:
        """What to try now: a trial that was interrupted (and is not among `busy`), else a new one; None: no more."""
        rows = self.rows()
        for row in rows:
            if row.outcome == "open" and row.number not in busy:
                return Candidate(row.number, row.values)
        if len(rows) >= int(self.about["trials"]):
            return None
        self._study.sampler = self._sampler(len(rows))
        trial = self._study.ask({axis.key: _distribution(self._optuna, axis) for axis in self._axes})
        self._handles[trial.number] = trial
        return Candidate(trial.number + 1, dict(trial.params))

    def heard(self, number: int, epoch: int, loss: float) -> bool:
        """Take down the validation loss of an epoch; whether the trial should end here."""
        trial = self._handle(number)
        if epoch not in self._frozen(number).intermediate_values:
            trial.report(loss, epoch)
        return bool(trial.should_prune())

    def close(self, tried: Tried) -> None:
        """Take down what became of a trial; one that is closed stays as it was."""
        if self._frozen(tried.number).state.is_finished():
            return
        trial, state = self._handle(tried.number), self._optuna.trial.TrialState
        trial.set_user_attr("run_id", tried.run_id)
        trial.set_user_attr("note", tried.note)
        if tried.outcome == "complete":
            self._study.tell(trial, tried.loss)
        else:
            self._study.tell(trial, state=state.PRUNED if tried.outcome == "pruned" else state.FAIL)

    def rows(self) -> list[Tried]:
        """All trials begun, by number."""
        state = self._optuna.trial.TrialState
        names: dict[Any, Outcome] = {state.COMPLETE: "complete", state.PRUNED: "pruned", state.FAIL: "failed"}
        out = []
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state == state.WAITING:
                continue
            seen = [loss for loss in trial.intermediate_values.values() if math.isfinite(loss)]
            out.append(
                Tried(
                    number=trial.number + 1,
                    values=dict(trial.params),
                    outcome=names.get(trial.state, "open"),
                    loss=trial.value if trial.state == state.COMPLETE else min(seen, default=None),
                    epochs=max(trial.intermediate_values, default=0),
                    run_id=str(trial.user_attrs.get("run_id", "")),
                    note=str(trial.user_attrs.get("note", "")),
                )
            )
        return out

    def _frozen(self, number: int) -> Any:
        return self._study.get_trials(deepcopy=False)[number - 1]

    def _handle(self, number: int) -> Any:
        if number - 1 not in self._handles:
            self._handles[number - 1] = self._optuna.trial.Trial(self._study, self._frozen(number)._trial_id)
        return self._handles[number - 1]

    def _sampler(self, number: int) -> Any:
        """Afresh for every trial, so that an interruption changes nothing of what is drawn."""
        samplers, seed = self._optuna.samplers, (int(self.about["seed"]) * 1_000_003 + number) % 2**32
        if number < RANDOM:
            return samplers.RandomSampler(seed=seed)
        return samplers.TPESampler(seed=seed, n_startup_trials=1)

    def _pruner(self) -> Any:
        if self.about["pruner"] == "none":
            return self._optuna.pruners.NopPruner()
        return self._optuna.pruners.MedianPruner(
            n_startup_trials=UNPRUNED, n_warmup_steps=int(self.about["grace"]), n_min_trials=UNPRUNED
        )


def load_optuna() -> ModuleType:
    """Optuna.

    Raises
    ------
    UsageError
        It is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise UsageError(
            "klinepred tune", expected="Optuna", got="no such package", do="pip install 'klinepred[ray]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def best_first(rows: Sequence[Tried]) -> list[Tried]:
    """Complete trials by loss, then pruned, open and failed ones, each by loss."""
    order = ("complete", "pruned", "open", "failed")
    return sorted(
        rows, key=lambda row: (order.index(row.outcome), math.inf if row.loss is None else row.loss, row.number)
    )


def _storage(optuna: ModuleType, path: Path) -> Any:
    url = sqlite_uri(path).replace("{", "{{").replace("}", "}}")  # Optuna fills templates in
    return optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 60}})


def _distribution(optuna: ModuleType, axis: Axis) -> Any:
    kinds = optuna.distributions
    if axis.choices:
        return kinds.CategoricalDistribution(axis.choices)
    kind = kinds.IntDistribution if axis.whole else kinds.FloatDistribution
    return kind(axis.low, axis.high, log=axis.log)
