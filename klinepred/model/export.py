"""In: a trained model. Out: a copy of its bundle elsewhere, or its network as ONNX; whole, or not at all."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from klinepred.errors import ModelError
from klinepred.headway import Work
from klinepred.model.bundle import TABLE, WEIGHTS, ModelBundle, load_bundle
from klinepred.model.golden import FILE as GOLDEN
from klinepred.model.golden_bars import FILE as GOLDEN_BARS
from klinepred.model.promotion import VERDICT
from klinepred.paths import new_folder

NETWORK: Final = "network.onnx"
OPSET: Final = 18
WORST: Final = 1e-5
"""Largest difference between ONNX and PyTorch that passes, in units of volatility."""


def export_bundle(folder: Path, to: Path) -> Path:
    """Copy a bundle byte for byte, with its verdict if it has one; `load_bundle` opens the copy on any machine.

    Parameters
    ----------
    to
        A folder that does not exist yet; in one that does, the copy gets the model's name.

    Returns
    -------
    pathlib.Path
        The new folder.

    Raises
    ------
    ModelError
        The model is damaged, or the folder is there already or cannot be written.
    """
    load_bundle(folder)

    def write(part: Path) -> None:
        for name in (TABLE, WEIGHTS, GOLDEN, GOLDEN_BARS, VERDICT):
            if (folder / name).is_file() or name in (TABLE, WEIGHTS):
                shutil.copyfile(folder / name, part / name)

    return _whole(folder, to, write)


def export_onnx(folder: Path, to: Path) -> Path:
    """Write the network as `network.onnx`, beside a copy of `bundle.json` with features, scaler and calibration.

    Input `features` [batch, time, F], scaled, Float32; output `outputs` [batch, time, 1 + quantiles] in units of
    volatility, NaN before the last step for a network that reads a whole window. An ensemble is one graph that answers
    with the mean. Both ends of the file are tried: it is kept only if ONNX Runtime answers as PyTorch within 1e-5.

    The exporter is TorchScript's: that of `torch.export` fixes the number of steps an LSTM reads.

    Parameters, errors and the returned folder as for `export_bundle`; also ModelError where onnx or onnxruntime is not
    installed, or the answers differ.
    """
    bundle = load_bundle(folder)
    runtime = _runtime()

    def write(part: Path) -> None:
        with Work("export as ONNX", total=2) as work:
            _export(bundle, part / NETWORK)
            work.step()
            _compare(bundle, runtime.InferenceSession(str(part / NETWORK), providers=["CPUExecutionProvider"]))
            work.step()
        shutil.copyfile(folder / TABLE, part / TABLE)

    return _whole(folder, to, write)


def _runtime() -> Any:
    try:
        import onnx  # noqa: F401  # the exporter needs it
        import onnxruntime
    except ImportError as error:
        raise ModelError(
            "export as ONNX",
            expected="the packages onnx and onnxruntime",
            got=str(error),
            do='pip install "klinepred[onnx]", or export with --format bundle',
        ) from error
    return onnxruntime


def _example(bundle: ModelBundle, *, batch: int, steps: int) -> torch.Tensor:
    drawn = np.random.default_rng(batch).standard_normal((batch, steps, len(bundle.feature_names)))
    return torch.from_numpy(drawn.astype(np.float32))


def _export(bundle: ModelBundle, path: Path) -> None:
    whole = bundle.model.flatten
    axes = {"features": {0: "batch", **({} if whole else {1: "time"})}, "outputs": {0: "batch", 1: "time"}}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # that the exporter is the older one, and of shapes that are constant indeed
        torch.onnx.export(
            bundle.network,
            (_example(bundle, batch=1, steps=whole or 3),),
            str(path),
            input_names=["features"],
            output_names=["outputs"],
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )


def _compare(bundle: ModelBundle, session: Any) -> None:
    for batch, steps in ((1, 1), (3, 78)):
        x_BTF = _example(bundle, batch=batch, steps=bundle.model.flatten or steps)
        with torch.no_grad():
            want = bundle.network(x_BTF).numpy()
        (got,) = session.run(None, {"features": x_BTF.numpy()})
        same = np.isnan(got) == np.isnan(want)
        worst = float(np.nanmax(np.abs(got - want)))
        if not same.all() or not worst <= WORST:
            raise ModelError(
                f"ONNX of model {bundle.name}",
                expected=f"answers within {WORST:g} of PyTorch's",
                got=f"a difference of {worst:.2g}",
                do="export with --format bundle, and report this with the versions of torch, onnx and onnxruntime",
            )


def _whole(folder: Path, to: Path, write: Callable[[Path], None]) -> Path:
    """Let `write` fill a folder beside the target, which then gets its name."""
    target = to / folder.name if to.is_dir() and not (to / TABLE).is_file() else to
    if target.exists():
        raise ModelError(
            f"export to {target}", expected="a folder that does not exist yet", got="one that does", do="name another"
        )
    try:
        with new_folder(target) as part:
            write(part)
    except OSError as error:
        raise ModelError(
            f"export to {target}",
            expected="room and permission to write it",
            got=str(error),
            do="free space, or name another folder",
        ) from error
    return target
