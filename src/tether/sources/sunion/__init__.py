"""Several exchanges as one stream, cut into epochs by tuple time (DPC 2005, §3.2: SUnion).

- ``offsets``: the decision, as it stands in Spark's offset log
- ``columns``: columns that are added to the rows
- ``looking``: inputs as they are now, for the consistency manager
- ``reading``: the rows of an epoch, in the one order there is
- ``source``: the data source that Spark calls
- ``subscribe``: the door
"""
