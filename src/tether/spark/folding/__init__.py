"""Where rows are folded before they would become Spark's rows: in the tasks that read them.

- ``folding``: what an operator's plan needs to know of it.
- ``aggregates``: an operator's aggregates, as far as they can be folded in Arrow.
- ``files``: which queries read plain files that Arrow reads as Spark does.
- ``epoch_files``: which files an epoch has, and how tasks share them.
- ``reading``: what such a task does.
"""
