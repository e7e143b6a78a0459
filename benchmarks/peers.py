"""In: names of peers. Out: a virtual environment for each under benchmarks/.peers, where benchmarks look for them."""

from __future__ import annotations

import argparse
import subprocess
import venv
from pathlib import Path

ROOM = Path(__file__).parent / ".peers"
PEERS = {
    "pandas-ta-classic": (),
    "ml4t-engineer": (),
    "pyqlib": ("torch",),
    "neuralforecast": ("torch",),
}
"""What each needs beside itself; its LSTM comes with the torch that klinepred was tried with."""
VERSIONS = Path(__file__).parent.parent / "constraints.txt"


def python_of(name: str) -> Path | None:
    """The interpreter of a peer's environment; None where it was not made."""
    path = ROOM / name / "bin" / "python"
    return path if path.exists() else None


def main() -> None:
    """Make what is asked for; a peer that cannot be installed is named and left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(PEERS), metavar="NAME", help=f"default: {' '.join(PEERS)}")
    for name in parser.parse_args().names:
        venv.create(ROOM / name, with_pip=True)
        needs = PEERS.get(name, ())
        same = ["-c", str(VERSIONS)] if needs else []
        line = [str(ROOM / name / "bin" / "pip"), "install", "--quiet", *same, name, *needs]
        done = subprocess.run(line, check=False)
        print(f"{name}: {'ready' if done.returncode == 0 else 'could not be installed'}")


if __name__ == "__main__":
    main()
