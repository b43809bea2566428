"""python -m tests.score [--tier synthetic|real] [--scenario NAME ...] [--land]: how often the diagnosis is right."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.score import real, runs
from tests.score.disturbed import PLAIN, RECORDED, VARIANTS
from tests.score.together import synthetic
from tests.score.told import Runs, land, page

_SYNTHETIC = """Simulated servers, each with a planted fault, at one sample per second. Made by `make score` from a
checkout; the runs are the same every time. The faults are ours and the rules look for them: this shows that rules do
what they say and do not disturb each other, not how they fare on an unknown machine. Of other tools only the published
predicates run, each hint counted as our rule of the same meaning; no hint counts as healthy.

Disturbed are the same runs. Faults 30 % weaker or stronger: the difference from healthy work is that much smaller or
larger. All thresholds x 0.7 or x 1.3: every threshold at once, except windows, ages and delays, whichever way it
points; a share above one half rises by 30 % of what is left to the whole. Samples lost, or clock jitter: samples are
missing, or come early or late by an inexact clock. The rest is unknown metrics: activity of the units (GPM), pressure
(PSI), and what /proc shows of a process to its owner only."""
_REAL = """Real processes, each with a planted fault, and their healthy twins, on two CPUs and a fake driver. Made by
`make score`, which needs an idle machine for two and a half hours; `python -m tests.score --tier real --kept FOLDER`
does it in parts. When rules change, the recordings are judged again in two minutes. One run follows gputop's advice;
it is not disturbed, and other tools give none.

Disturbed are the recordings, as above, but not the faults. A sample that comes early or late sees what was recorded by
then."""
HOW = {"synthetic": _SYNTHETIC, "real": _REAL}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tier", choices=tuple(HOW), default="synthetic")
    parser.add_argument("--scenario", nargs="*", default=[], metavar="NAME", help="parts of names; all without")
    parser.add_argument("--plain", action="store_true", help="not disturbed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="runs at a time")
    parser.add_argument("--kept", type=Path, metavar="FOLDER", help="real: goes on with what is there")
    parser.add_argument("--no-play", action="store_true", help="real: only what is in that folder")
    parser.add_argument("--land", action="store_true", help="write the tables into the manual if all was played")
    options = parser.parse_args()
    tier = real if options.tier == "real" else runs
    wanted = [name for name in tier.names() if not options.scenario or any(part in name for part in options.scenario)]
    if not wanted:
        parser.error("no scenario has such a name")
    how = HOW[options.tier]
    made: Runs
    if tier is real:
        made = real.all_played(wanted, _variants(options, RECORDED), options.kept, plays=not options.no_play)
        how = f"{how}\n\n{real.twins(made)}"
    else:
        made = dict(synthetic(wanted, _variants(options, VARIANTS), options.jobs))
    text = page(made, PLAIN.name, how)
    print(text)
    if options.land and (part := lacking(made, tier.names(), options.plain)):
        print(f"not landed, as only a part was played: it lacks {part}", file=sys.stderr)
    elif options.land:
        land(options.tier, text)
    return 0


def _variants(options: argparse.Namespace, all_of: Iterable[str]) -> list[str]:
    return [PLAIN.name] if options.plain else list(all_of)


def lacking(made: Runs, names: Iterable[str], plain: bool) -> str:
    """What of a tier was not played; a healthy twin may lack, as the page says how many were."""
    parts = ["the disturbances"] if plain else []
    return ", ".join((*parts, *(name for name in names if (name, PLAIN.name, "gputop") not in made)))


if __name__ == "__main__":
    sys.exit(main())
