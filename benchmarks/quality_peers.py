"""In: handed-over rows, a budget. Out: the `Curve` of each configuration of a peer, scored by our scorer."""

# Shapes: K marks, C rows of the curve, V scored rows.

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.peers import python_of
from benchmarks.quality_ours import Mark
from benchmarks.quality_rows import WINDOW, Field, Grade, grade
from benchmarks.quality_scripts import SCRIPTS

T = TypeVar("T")


@dataclass(frozen=True)
class Curve:
    """A contestant's way.

    Attributes
    ----------
    marks, losses
        Where it stood, and its loss on the rows of the curve there.
    best, at
        Its lowest loss on all scored rows with the rank IC of the same predictions, and where that was.
    """

    name: str
    marks: tuple[Mark, ...]
    losses: tuple[float, ...]
    best: Grade
    at: Mark


def piloted(
    settings: Sequence[T],
    race_them: Callable[[Sequence[T], float], list[Curve]],
    *,
    pilot: float | None,
    budget: float,
) -> list[tuple[T, Curve]]:
    """Each setting with its curve over the budget; with a pilot only the best of a first heat of `pilot` seconds.

    Each heat trains afresh, since a schedule is planned for its budget. Empty where nothing ran.
    """
    if pilot is not None and len(settings) > 1:
        heat = list(zip(settings, race_them(settings, pilot), strict=False))
        settings = [min(heat, key=lambda one: one[1].best.loss)[0]] if heat else []
    return list(zip(settings, race_them(settings, budget) if settings else [], strict=False))


def settle(
    name: str, marks: Sequence[Mark], curve_KC: np.ndarray, ask: Callable[[list[int]], np.ndarray], *, field: Field
) -> Curve:
    """Score a contestant: all marks on the rows of the curve, the best of them and the last one on all scored rows."""
    losses = [grade(field, pred_C, field.curve_N).loss for pred_C in curve_KC]
    spots = sorted({int(np.argmin(losses)), len(losses) - 1})
    grades = [grade(field, pred_V, field.score_N) for pred_V in ask(spots)]
    first = min(range(len(spots)), key=lambda number: grades[number].loss)
    at = marks[spots[first]]
    curve = Curve(name, tuple(marks), tuple(losses), grades[first], at)
    last = marks[-1]
    print(
        f"{name}: {last.labels:,} labels in {last.steps:,} steps and {last.seconds:.0f} s"
        f" ({last.labels / last.seconds:,.0f}/s); best loss {curve.best.loss:.5f} with rank IC {curve.best.rank_ic:.4f}"
        f" after {at.seconds:.0f} s; on the curve's rows " + " ".join(f"{loss:.4f}" for loss in losses),
        flush=True,
    )
    return curve


def race(
    name: str, configurations: Sequence[dict[str, Any]], budget: float, *, field: Field, folder: Path, marks: int
) -> list[Curve]:
    """The curves of a peer's configurations; none, with a word, where it is absent or fails."""
    python = python_of(name)
    if python is None:
        print(f"{name}: skipped, no environment (python -m benchmarks.peers {name})")
        return []
    words = [str(folder), str(budget), str(marks), str(WINDOW), json.dumps(list(configurations))]
    curves: list[Curve] = []
    with (
        (folder / "talk.txt").open("w+", encoding="utf-8") as talk,
        subprocess.Popen(
            [str(python), "-c", SCRIPTS[name], *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=talk,
            text=True,
            cwd=folder,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        ) as peer,
    ):
        assert peer.stdin is not None  # noqa: S101
        assert peer.stdout is not None  # noqa: S101
        for given in configurations:
            line = peer.stdout.readline()
            if not line:
                peer.wait()
                talk.seek(0)
                print(f"{name}: stopped, it failed: {(talk.read().split(chr(10)) or ['?'])[-2:][0][:300]}")
                break
            found = json.loads(line)

            def ask(spots: list[int], *, pipe: Any = peer) -> np.ndarray:
                pipe.stdin.write(json.dumps(spots) + "\n")
                pipe.stdin.flush()
                answer = json.loads(pipe.stdout.readline())
                return np.asarray(np.load(answer["path"], allow_pickle=False))

            label = f"{name} " + (", ".join(f"{key} {value}" for key, value in given.items()) or "as it comes")
            seen = [Mark(*mark) for mark in found["marks"]]
            curves.append(settle(label, seen, np.load(found["path"], allow_pickle=False), ask, field=field))
    return curves
