"""In: the commands that listen. Out: their address unless told otherwise: this machine alone."""

from __future__ import annotations

import ast
from pathlib import Path

import click
import pytest

from klinepred.cli import root, ui
from klinepred.cli.serve import _is_loopback
from klinepred.cli.serve import command as serve
from klinepred.engine import on_ray

SOURCE = Path(__file__).parents[2] / "klinepred"


def test_serve_and_ui_listen_on_the_loopback_unless_told_otherwise() -> None:
    (host,) = [param for param in serve.params if param.name == "host"]
    assert host.default == "127.0.0.1"
    assert ui.HOST == "127.0.0.1"
    assert not [param for param in ui.command.params if param.name == "host"]


def test_no_other_command_takes_an_address_to_listen_on() -> None:
    context = click.Context(root)
    commands = {name: root.get_command(context, name) for name in root.list_commands(context)}
    listening = {name for name, one in commands.items() if one and {"host", "port"} & {p.name for p in one.params}}
    assert listening == {"serve", "ui"}


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        *(("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)),  # noqa: S104
        *(("::", False), ("192.168.1.2", False), ("desk.example.org", False), ("localhost.example.org", False)),
    ],
)
def test_which_addresses_are_this_machine_alone(host: str, alone: bool) -> None:
    assert _is_loopback(host) is alone


def test_ray_is_told_to_listen_on_the_loopback() -> None:
    text = Path(on_ray.__file__).read_text(encoding="utf-8")
    assert '"_node_ip_address": "127.0.0.1"' in text
    assert '"include_dashboard": False' in text


def test_no_source_names_the_address_of_all_networks() -> None:
    """Nor binds a socket to the empty address, which is the same."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Constant) and node.value in ("0.0.0.0", "::", "[::]")), path  # noqa: S104
            if isinstance(node, ast.Tuple) and node.elts and isinstance(node.elts[0], ast.Constant):
                assert not (node.elts[0].value == "" and len(node.elts) == 2 and "socket" in path.read_text()), path
