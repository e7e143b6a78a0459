"""In: fp32's weights while they learn. Out: every precision's gradients at them; what pure fp16 would lose of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import torch

from klinepred.model.lstm import build_network
from klinepred.settings import ModelSettings
from klinepred.training.precision import Precision
from klinepred.trial.half import below_normal_share, lost_updates
from klinepred.trial.lane import Lane
from klinepred.trial.measured import Naive
from klinepred.trial.probe import Batch, Likeness, compare, gradients, probe

PROBE_SEQUENCES: Final = 16
"""Sequences of a probe on a CPU at most, where fp16 is slow; on CUDA it is the whole batch."""
NAN: Final = float("nan")


class Watch:
    """Looks on before the first, the middle and the last step; what pure fp16 would lose is taken down in the middle.

    Gradients are taken at fp32's weights of that moment, without dropout, whose draws would hide the rounding.

    Attributes
    ----------
    probes
        By precision, the number of the step (from 1) and how like fp32's the gradient was.
    naive
        See `klinepred.trial.measured.Naive`.
    """

    def __init__(
        self, base: Lane, *, kinds: Mapping[str, Precision], model: ModelSettings, inputs: int, steps: int
    ) -> None:
        self.probes: dict[str, list[tuple[int, Likeness]]] = {}
        self.naive = Naive(NAN, NAN, NAN, NAN, NAN)
        self._base = base
        self._kinds = kinds
        self._quiet = build_network(model.model_copy(update={"dropout": 0.0}), inputs=inputs).to(base.device)
        self._middle = steps // 2
        self._spots = {0, self._middle, steps - 1}
        self._kept: list[torch.Tensor] = []

    def before(self, number: int, batch: Batch) -> None:
        """Step `number` (from 0) is about to be taken on this batch."""
        if number not in self._spots:
            return
        self._quiet.load_state_dict(self._base.state.network.state_dict())
        self._quiet.train()
        train = self._base.train
        few = _head(batch) if self._base.device.type == "cpu" else batch
        exact, _ = gradients(self._quiet, few, precision=self._kinds["fp32"], train=train)
        if exact is not None:
            mixed = {name: kind for name, kind in self._kinds.items() if name != "fp32"}
            for name, likeness in probe(self._quiet, few, exact=exact, precisions=mixed, train=train).items():
                self.probes.setdefault(name, []).append((number + 1, likeness))
        if number == self._middle:
            self.naive = self._unscaled(batch)
            self._kept = [weight.detach().clone() for weight in self._base.state.network.parameters()]

    def after(self, number: int) -> None:
        """Step `number` was taken."""
        if number == self._middle:
            now = [weight.detach() for weight in self._base.state.network.parameters()]
            lr = float(self._base.state.optimiser.param_groups[0]["lr"])
            self.naive = replace(self.naive, lost_updates=lost_updates(self._kept, now), lr=lr)
            self._kept = []

    def _unscaled(self, batch: Batch) -> Naive:
        """fp16 without its scaler, on the whole batch: the mean over its rows is what makes gradients small."""
        train = self._base.train
        exact, _ = gradients(self._quiet, batch, precision=self._kinds["fp32"], train=train)
        if exact is None or "fp16" not in self._kinds:
            return self.naive
        bare = replace(self._kinds["fp16"], scaled=False)
        found, scale = gradients(self._quiet, batch, precision=bare, train=train)
        like = compare(found, exact=exact, scale=scale)
        return Naive(like.flushed, like.cosine, below_normal_share(exact), NAN, NAN)


def worst(seen: list[tuple[int, Likeness]]) -> Likeness:
    """The worst of a precision's probes in each respect; NaN without any, or where one was not finite."""
    likes = [like for _, like in seen]
    if not likes or any(math.isnan(like.cosine) for like in likes):
        return Likeness(NAN, NAN, NAN, NAN)
    return Likeness(
        cosine=min(like.cosine for like in likes),
        error=max(like.error for like in likes),
        flushed=max(like.flushed for like in likes),
        scale=min(like.scale for like in likes),
    )


def _head(batch: Batch) -> Batch:
    x_BTF, y_BT, labelled_BT = (tensor[:PROBE_SEQUENCES] for tensor in batch)
    return x_BTF, y_BT, labelled_BT
