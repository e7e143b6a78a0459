"""In: a target, how many inputs. Out: that many tried by atheris, which follows the lines that an input reaches.

`python -m tests.fuzz.guided TARGET --inputs N [--seed S] [--found FOLDER]`; exit 0 where all were taken or refused in
words, another where one was a fault: it lies in FOLDER then, as `crash-…`, to be put into `tests/fuzz/corpus/TARGET`.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

import atheris

from tests.fuzz.chance import damaged
from tests.fuzz.targets import TARGETS, right_inputs

CORPUS = Path(__file__).parent / "corpus"


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """Half of the time words and numbers are exchanged, else libFuzzer's own bytes are."""
    changed = damaged(data, seed) if seed % 2 else atheris.Mutate(data, most)
    return bytes(changed[:most])


def main() -> None:
    """Run it; libFuzzer ends the process itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--found", type=Path, default=Path("fuzz-found"))
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    options.found.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="klinepred-fuzz-"))
    (folder / "seeds").mkdir()
    with atheris.instrument_imports(include=["klinepred"]):  # whatever is imported from here on, also later
        rights = right_inputs(options.target, folder)
        run = TARGETS[options.target](folder)
        for number, data in enumerate(rights):
            (folder / "seeds" / f"{number:03d}").write_bytes(data)
            run(data)
    kept = CORPUS / options.target
    words = [
        *(sys.argv[0], str(folder / "seeds"), *([str(kept)] if kept.is_dir() else [])),
        *(f"-runs={options.inputs}", f"-seed={options.seed}", "-max_len=20000", "-timeout=60", "-rss_limit_mb=6000"),
        *(f"-artifact_prefix={options.found}/", "-print_final_stats=1", "-verbosity=1"),
    ]
    atheris.Setup(words, run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
