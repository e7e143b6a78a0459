"""In: nothing. Out: which commands of the pages are not carried out as they stand, and why; all others are.

A command that matches nothing here is run in the workspace of `tests/docs/space.py` and must succeed. What is not run
is parsed all the same: its command, options and values must be right. A line that no page needs fails a test.
"""

from __future__ import annotations

from typing import Final

PARSED: Final = {
    r"klinepred (ui|serve)\b": "a server that runs until it is stopped; tests/cli/test_ui.py and tests/serving run it",
    r"klinepred predict .*--follow(?!.*--until)": "goes on for ever; the replay beside it ends, and is run",
    r"klinepred ingest --exchange": "asks an exchange; tests/bars/test_exchange_ingest.py asks one on 127.0.0.1",
    r"klinepred audit\b": "takes half a minute; tests/cli/test_audit.py runs it",
    r"klinepred amp-check\b": "takes half a minute; tests/cli/test_amp_check.py runs it",
    r"klinepred ingest .*--engine ray": "starts a Ray cluster; tests of bars start one",
    r"klinepred init .*--store": "needs a bucket",
    r"klinepred tune\b": "trains many times; tests/test_tune.py runs it",
    r"klinepred run\b": "the steps are run one by one; tests/test_journey.py and tests/test_scheduled.py run it whole",
    r"klinepred train\b": "takes too long to be run on each page; it has made the models of the workspace",
    r"klinepred evaluate -p (mine|idea)": "its model is not trained here; tests/cli/test_own_features.py does it all",
}
"""Patterns of klinepred's commands that are parsed and not run."""

REHEARSED: Final = {
    r"klinepred bars (delete|restore|vacuum)\b": "--dry-run",  # the pages after it need the bars
}
"""Words that are added to a command."""

CODES: Final = {
    r"klinepred doctor": (0, 1),  # 1: something is missing on this machine
}
"""Exit codes of success, where 0 is not the only one."""

PROGRAMS: Final = {
    "git": "a repository of yours",
    "make": "its verbs are looked up in the Makefile; CI runs make test and make docs",
    "source": "the tests run in an environment already",
    "cd": "the prepared workspace stands for the one that is made",
    "eval": "start-up file of a shell; tests/cli/test_completion.py asks what the shell would ask",
    "_KLINEPRED_COMPLETE=fish_source": "likewise",
    "torchrun": "its klinepred command is parsed; tests/cli/test_torchrun.py starts processes",
    "sbatch": "tests/test_scaling_page.py runs its script",
    "bash": "likewise",
    ".venv/bin/pytest": "the tests it names must be there",
}
"""First words of other commands, none of which is run."""

KINDS: Final = {
    "sh": "run, or parsed",
    "cron": "the command is parsed",
    "python": "run",
    "toml": "read as a pipeline, or as part of pyproject.toml",
    "json": "read, and held against its schema where the page names one",
    "text": "output or formulas: may hold no command",
}
"""Languages a code block may name; it must name one."""

STAND_INS: Final = {
    "MODEL_A": "{model}",
    "MODEL_B": "{model}",
    "MODEL": "{model}",
    "NAME": "{model}",
    "FILES": "SPY.csv",
}
"""Words of the pages that stand for something of the reader's."""
