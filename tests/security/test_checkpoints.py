"""In: files named as checkpoints that hold something else. Out: one refusal each, and no payload runs."""

from __future__ import annotations

import io
import random
import warnings
import zipfile
from pathlib import Path

import pytest
import torch

from klinepred.errors import TrainingError
from klinepred.training.checkpoint import load_checkpoint
from tests.security.poison import Bomb, marker_in, poison

OPCODES = {
    "an empty stack": b"0.",
    "nothing at all": b"",
    "lists in lists": b"]" * 100_000 + b".",
    "a text without its end": b"\x8c\xff",
    "a float without its end": b"\x80\x02G\x00\x01",
    "a set of marks": b"((((((((.",
    "a call of the system": b"cos\nsystem\n(S'true'\ntR.",
    "a call of eval": b"cbuiltins\neval\n(S'1'\ntR.",
    "an import of torch's": b"ctorch.hub\nload\n(S'x'\nS'y'\ntR.",
    "tensors from nothing": b"ctorch._utils\n_rebuild_tensor_v2\n)R.",
    "half a dictionary": b"}h\x05s.",
}


def repacked(path: Path, table: bytes, *, packing: int = zipfile.ZIP_STORED) -> Path:
    """A file of torch's whose table is another."""
    good = io.BytesIO()
    torch.save({"a": torch.zeros(3)}, good)
    with zipfile.ZipFile(good) as parts, zipfile.ZipFile(path, "w", packing) as out:
        for name in parts.namelist():
            out.writestr(name, table if name.endswith("data.pkl") else parts.read(name))
    return path


@pytest.mark.parametrize("kind", OPCODES)
def test_a_table_of_hostile_opcodes_is_one_refusal(tmp_path: Path, kind: str) -> None:
    with pytest.raises(TrainingError, match=r"weights_only|format None") as caught:
        load_checkpoint(repacked(tmp_path / "x.pt", OPCODES[kind]))
    assert caught.value.do


@pytest.mark.parametrize("protocol", range(6))
def test_a_payload_of_any_protocol_does_not_run(tmp_path: Path, protocol: int) -> None:
    with pytest.raises(TrainingError):
        load_checkpoint(repacked(tmp_path / "x.pt", poison(tmp_path, protocol=protocol)))
    (tmp_path / "plain.pt").write_bytes(poison(tmp_path, protocol=protocol))
    with pytest.raises(TrainingError):
        load_checkpoint(tmp_path / "plain.pt")
    assert not marker_in(tmp_path).exists()


def test_a_payload_between_good_tensors_does_not_run(tmp_path: Path) -> None:
    table = {"klinepred_checkpoint": 1, "network": {"w": torch.zeros(3)}, "rng": Bomb(marker_in(tmp_path))}
    torch.save(table, tmp_path / "x.pt")
    with pytest.raises(TrainingError, match="weights_only"):
        load_checkpoint(tmp_path / "x.pt")
    torch.save(table, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(TrainingError, match="another kind"):
        load_checkpoint(tmp_path / "old.pt")
    assert not marker_in(tmp_path).exists()


def test_a_torchscript_module_is_refused(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(tmp_path / "x.pt"))
    with pytest.raises(TrainingError):
        load_checkpoint(tmp_path / "x.pt")


def test_a_bomb_of_packed_zeros_is_refused_unread(tmp_path: Path) -> None:
    path = repacked(tmp_path / "x.pt", bytes(50_000_000), packing=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 100_000
    with pytest.raises(TrainingError, match="packed parts"):
        load_checkpoint(path)


def test_any_bytes_changed_in_its_table_end_in_a_refusal(tmp_path: Path) -> None:
    good = io.BytesIO()
    torch.save({"a": torch.zeros(3), "b": [1, 2.5, {"c": "x"}]}, good)
    with zipfile.ZipFile(good) as parts:
        table = next(parts.read(name) for name in parts.namelist() if name.endswith("data.pkl"))
    chance = random.Random(3)  # noqa: S311
    for _ in range(150):
        odd = bytearray(table)
        for _ in range(chance.randrange(1, 6)):
            odd[chance.randrange(len(odd))] = chance.randrange(256)
        with pytest.raises(TrainingError):
            load_checkpoint(repacked(tmp_path / "x.pt", bytes(odd)))
