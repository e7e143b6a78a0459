"""In: settings of the tiny training as JSON. Out: its losses step by step and its weights, as JSON on stdout."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from klinepred.settings import ModelSettings, TrainSettings
from klinepred.training.loop import train
from klinepred.training.ranks import joined
from tests.training.tiny import MODEL, Memory, tiny_dataset


def main() -> None:
    """Train, and tell."""
    order = json.loads(sys.argv[1])
    settings = TrainSettings.model_validate(order["train"])
    model = ModelSettings.model_validate({**MODEL.model_dump(), **order["model"]})
    place = Path(order["checkpoint"]) if order.get("checkpoint") else None
    resume = Path(order["resume"]) if order.get("resume") else None
    data, tracker = tiny_dataset(seed=order.get("data", 0)), Memory()
    with joined():
        bundle = train(data, model, settings, tracker=tracker, checkpoint=place, resume=resume)
    found = {
        name: [metric.value for metric in tracker.metrics if metric.name == name]
        for name in ("step/loss", "gradient/norm", "amp/skipped_steps", "amp/loss_scale", "val_loss", "val_ic")
    }
    weights = {name: weight.flatten().tolist() for name, weight in bundle.network.state_dict().items()}
    print(json.dumps({**found, "weights": weights, "best": bundle.provenance["val_loss"]}))


if __name__ == "__main__":
    main()
