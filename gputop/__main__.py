"""`python -m gputop`, equal to the command."""

import sys

from gputop.cli import main

sys.exit(main())
