"""In: bundles of random weights. Out: copies that load elsewhere, ONNX that answers as PyTorch, or why not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from klinepred.errors import ModelError
from klinepred.model.bundle import load_bundle, save_bundle
from klinepred.model.ensemble import unite
from klinepred.model.export import NETWORK, export_bundle, export_onnx
from klinepred.model.lstm import build_network
from klinepred.settings import ModelSettings
from tests.conftest import Typed
from tests.model.bundles import small_bundle

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "quantiles": {"layer_norm": True, "skip": True, "quantiles": (0.1, 0.5, 0.9)},
    "window": {"flatten": 7},
}


def saved(folder: Path, *, members: int = 1, kind: str = "plain") -> Path:
    settings = ModelSettings(preset="lstm-small", hidden=8, layers=2, head=4, dropout=0.1, **KINDS[kind])
    torch.manual_seed(1)
    network = unite([build_network(settings, inputs=3) for _ in range(members)])
    return save_bundle(replace(small_bundle(), model=settings, network=network), folder)


def test_an_exported_bundle_is_the_same_bytes_and_loads_elsewhere(tmp_path: Path, typed: Typed) -> None:
    folder = saved(tmp_path / "models" / "trained" / "mine")
    (folder / "verdict.json").write_text('{"verdict": "NO EDGE"}')
    (folder / "report.html").write_text("<p>")
    words = ("models", "export", "mine", "-w", str(tmp_path), "--to")
    assert typed(*words, str(tmp_path / "away"))[:2] == (0, f"{tmp_path / 'away'}\n")
    (tmp_path / "shelf").mkdir()
    assert typed(*words, str(tmp_path / "shelf"))[:2] == (0, f"{tmp_path / 'shelf' / 'mine'}\n")
    for copy in (tmp_path / "away", tmp_path / "shelf" / "mine"):
        assert sorted(path.name for path in copy.iterdir()) == ["bundle.json", "verdict.json", "weights.safetensors"]
        for name in ("bundle.json", "weights.safetensors"):
            assert (copy / name).read_bytes() == (folder / name).read_bytes()
        assert load_bundle(copy).run_id == "abc"
    for place in ("shelf", "away"):  # the second time nothing is put inside the model that lies there
        code, out, err = typed(*words, str(tmp_path / place))
        assert (code, out) == (1, "")
        assert "does not exist yet" in err
    assert not list(tmp_path.glob("**/*.part"))


def test_a_damaged_model_is_not_exported(tmp_path: Path) -> None:
    folder = saved(tmp_path / "mine")
    (folder / "weights.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(ModelError, match="mine"):
        export_bundle(folder, tmp_path / "away")
    assert not (tmp_path / "away").exists()


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_onnx_answers_as_pytorch_for_any_batch_and_length(tmp_path: Path, kind: str, members: int) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="klinepred[onnx] is not installed")
    folder = saved(tmp_path / "mine", members=members, kind=kind)
    place = export_onnx(folder, tmp_path / "away")
    assert sorted(path.name for path in place.iterdir()) == ["bundle.json", NETWORK]
    session = runtime.InferenceSession(str(place / NETWORK), providers=["CPUExecutionProvider"])
    network = load_bundle(folder).network
    for batch, steps in ((1, 5), (4, 31)):
        x_BTF = torch.randn(batch, 7 if kind == "window" else steps, 3)
        with torch.no_grad():
            want = network(x_BTF).numpy()
        (got,) = session.run(None, {"features": x_BTF.numpy()})
        assert got.shape == want.shape
        assert np.allclose(got, want, rtol=0.0, atol=1e-5, equal_nan=True)


def test_without_onnx_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved(tmp_path / "mine")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelError) as raised:
        export_onnx(folder, tmp_path / "away")
    assert "klinepred[onnx]" in raised.value.do
    assert not (tmp_path / "away").exists()
