"""`python -m gputop`, equal to the command."""

import sys

from gputop.entry import main

sys.exit(main())
