"""Faults planted on purpose, to see whether a test notices: ``make mutants``.

A fault is a few lines of ``src/tether`` that say something else than they should: a sync left out, a
threshold that is not halved, a loss that is forgotten. Each is planted alone in a copy of the tree, and
the fast tests run until one of them fails. One that no test notices *survives*: a test is missing, or
the change makes no difference that anybody could see, and then the catalogue says why.
"""
