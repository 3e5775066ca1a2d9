"""Results of two kinds, stable and tentative, as rows that say what they are.

columns      the columns of Spark's change feeds, and ours
outlet       the one way by which every epoch's rows reach a sink
early        the same where stable rows come in other epochs than the tentative ones before them
spool        tentative rows, kept until they are corrected
correction   what a tentative answer and the stable one after it make together
feed         a directory that holds the changes: ``to_changes``
feed_log     which of its files count, and in which order
reader       ``read_changes``: three views of it, in a batch or as a stream
memory       changes in the driver's memory, for tests and notebooks
"""
