"""Random programs on the shipped runtime, under random failures, with the judge looking at every epoch.

- ``program``: what a program is; ``building``: random ones, each from one number.
- ``operators``: a stage as Tether runs it; ``meaning``: the same in plain Python.
- ``life``: one life of its driver; ``running``: all its lives; ``spoiling``: damage while it is down.
- ``judging``: what it told, before the judge; ``shrinking``: a smaller program with the same fault.

``make fuzz`` runs them: see ``docs/truth.md``.
"""

from tether.testing.fuzz.building import build
from tether.testing.fuzz.program import Program, decode, encode
from tether.testing.fuzz.running import Outcome, run
from tether.testing.fuzz.shrinking import shrunk

__all__ = ["Outcome", "Program", "build", "decode", "encode", "run", "shrunk"]
