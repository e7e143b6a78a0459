"""In: `python -m klinepred` and its words. Out: the command line, run."""

import sys

from klinepred.cli import main

sys.exit(main())
