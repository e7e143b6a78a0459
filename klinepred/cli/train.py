"""In: a pipeline and the store. Out: a trained model on the workspace's shelf, its run in MLflow."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from klinepred.cli.options import (
    allow_leaks_option,
    common,
    complete_models,
    engine_options,
    pipeline_option,
    read_pipeline,
    say,
    set_option,
    start,
)
from klinepred.engine.launched import rank
from klinepred.errors import UsageError

if TYPE_CHECKING:
    from klinepred.paths import Workspace
    from klinepred.settings import Pipeline


@click.command(epilog="\b\nExample: klinepred train --amp --epochs 5", short_help="Train the LSTM.")
@pipeline_option
@set_option
@click.option("--amp", is_flag=True, help="Mixed precision: fp16 with loss scaling on CUDA, bf16 on the CPU.")
@click.option("--precision", type=click.Choice(["auto", "fp32", "fp16", "bf16"]), help="Force one (implies --amp).")
@click.option("--epochs", type=click.IntRange(min=1), help="Epochs (default: the pipeline's).")
@click.option("--device", help="cpu, cuda, cuda:1 … (default: cuda where it works).")
@click.option(
    "--on-overflow",
    type=click.Choice(["stop", "fallback"]),
    help="When gradients stay infinite: end the run (default), or go on in bf16, then fp32.",
)
@click.option("--resume", metavar="RUN", help='Continue a run: its name or id, a checkpoint, or "last".')
@click.option(
    "--init-from",
    metavar="MODEL",
    help="Begin a new run from the weights of a saved model (warm start).",
    shell_complete=complete_models,
)
@engine_options
@click.option("--gpus-per-worker", "gpus", type=click.FloatRange(min=0), help="GPUs of each worker of --engine ray.")
@allow_leaks_option
@common
@click.pass_context
def command(
    ctx: click.Context,
    pipeline: str,
    overrides: tuple[str, ...],
    amp: bool,
    precision: str | None,
    epochs: int | None,
    device: str | None,
    on_overflow: str | None,
    resume: str | None,
    init_from: str | None,
    engine: str,
    workers: int | None,
    gpus: float | None,
    allow_leaks: bool,
    workspace: Path,
    quiet: bool,
    verbose: bool,
) -> int:
    """Train on the pipeline's symbols that are in the store and log the run to MLflow.

    A fast leak audit comes first (`klinepred audit` is the thorough one); if it fails, nothing is trained.
    The scaler is fitted on train rows only, the best epoch is chosen on validation, and the test part stays closed
    until `klinepred evaluate`. Ctrl-C saves a checkpoint; --resume goes on from it, with the bars the run saw and,
    unless -p names another, its own pipeline. --init-from is another thing: a new run with a fresh optimiser and
    schedule, which begins from a model's weights and keeps that model's scaler. Several processes train together
    under torchrun: torchrun --nproc-per-node 2 -m klinepred train.
    """
    silent = rank() != 0  # under torchrun the first one speaks
    space = start(workspace, quiet=quiet or silent, verbose=verbose)
    flags = overrides_of(amp=amp, precision=precision, epochs=epochs, device=device, on_overflow=on_overflow)
    if resume is not None and ctx.get_parameter_source("pipeline") is not ParameterSource.COMMANDLINE:
        from klinepred.pipeline import resumed_pipeline

        run = resumed_pipeline(space, resume, overrides=(*overrides, *flags))
    else:
        run = read_pipeline(pipeline, (*overrides, *flags), space)

    from klinepred.cli.progress import TrainingBar
    from klinepred.pipeline import train_model

    if run.dataset.split.folds > 1:
        by_ray = (workers or 1, gpus or 0.0) if engine == "ray" else None
        return _walk(run, space, by_ray, resume=resume, init_from=init_from, allow_leaks=allow_leaks, quiet=quiet)
    if engine == "ray":
        return _on_ray(
            run, space, workers or 1, gpus or 0.0, quiet, resume=resume, init_from=init_from, allow_leaks=allow_leaks
        )
    for option, value in (("--num-workers", workers), ("--gpus-per-worker", gpus)):
        if value is not None:
            logging.getLogger("klinepred").warning("%s is ignored without --engine ray", option)
    done = train_model(
        run,
        space,
        progress=TrainingBar(quiet=quiet or silent),
        resume=resume,
        init_from=init_from,
        allow_leaks=allow_leaks,
    )
    if silent:
        return 0
    return _tell(done.bundle.name, done.bundle.run_id, done.data.counts())


def _tell(name: str, run_id: str, counts: Mapping[str, int]) -> int:
    labels = ", ".join(f"{part} {count:,}" for part, count in counts.items())
    say(f"labels: {labels}")
    click.echo(f"model {name}")
    click.echo(f"run   {run_id}")
    say("next: klinepred evaluate, klinepred predict, klinepred ui")
    return 0


def _on_ray(run: Pipeline, space: Workspace, workers: int, gpus: float, quiet: bool, **options: Any) -> int:
    """Train on a Ray cluster."""
    from klinepred.cli.progress import TrainingBar
    from klinepred.pipeline.cluster import train_on_ray

    bar = TrainingBar(quiet=quiet)
    done = train_on_ray(run, space, workers=workers, gpus=gpus, progress=bar, **options)
    return _tell(done.name, done.run_id, done.counts)


def _walk(
    run: Pipeline,
    space: Workspace,
    by_ray: tuple[int, float] | None,
    *,
    resume: str | None,
    init_from: str | None,
    allow_leaks: bool,
    quiet: bool,
) -> int:
    """A model for each fold, trained here or by workers of Ray: their number and the GPUs of each."""
    from klinepred.cli.progress import TrainingBar
    from klinepred.pipeline import train_folds
    from klinepred.pipeline.cluster import train_folds_on_ray
    from klinepred.pipeline.folds import record_path

    if init_from is not None:
        raise UsageError(
            "--init-from with a walk-forward",
            expected="dataset.split.folds = 1",
            got=f"{run.dataset.split.folds} folds, whose test spans that model may have seen",
            do="leave --init-from out, or set dataset.split.folds=1",
        )
    bar = TrainingBar(quiet=quiet or rank() != 0)
    if by_ray is None:
        record = train_folds(run, space, progress=bar, resume=resume, allow_leaks=allow_leaks)
    else:
        count, gpus = by_ray
        record = train_folds_on_ray(
            run, space, workers=count, gpus=gpus, progress=bar, resume=resume, allow_leaks=allow_leaks
        )
    if rank() != 0:
        return 0
    for one in record.models:
        until = one.split["test_end"] or "the newest bar"
        click.echo(f"fold {one.fold}  model {one.model}  run {one.run_id}  test to {until}")
    click.echo(f"record {record_path(space, record.name)}")
    say("next: klinepred evaluate MODEL for each fold; klinepred predict takes the newest")
    return 0


def overrides_of(
    *,
    amp: bool,
    precision: str | None,
    epochs: int | None,
    device: str | None = None,
    on_overflow: str | None = None,
) -> tuple[str, ...]:
    """Flags as `--set` overrides, so that the resolved configuration tells the whole truth."""
    out = []
    if amp or precision in ("fp16", "bf16"):
        out.append("train.amp=true")
    if precision is not None:
        out.append(f'train.precision="{precision}"')
    if epochs is not None:
        out.append(f"train.epochs={epochs}")
    if device is not None:
        out.append(f'train.device="{device}"')
    if on_overflow is not None:
        out.append(f'train.on_overflow="{on_overflow}"')
    return tuple(out)
