"""What a query tells about itself: one feed, which the page, the metrics and the commands read.

=================  ===============================================================================
``story``          events, numbered: backups, losses, recoveries, with their causes
``facts``          the schema of the feed: one for the operators' door and for the SQL door
``figures``        from the reports of an operator query's slots to the figures of an epoch
``history``        figures of all epochs in bounded memory: older ones are joined
``slot_history``   the newest report of every slot, and how its divergence went
``feed``           the feed itself: what is noted, and how it is read
``failures``       events that belong to one failure, put together
``segments``       the feed as files: one checksummed line a fact, a torn tail is cut
``feed_log``       writes them beside the backups
``backstage``      does what epochs leave behind, on a thread that is there only while it is needed
``operator_feed``  the feed of a query of operators
``reading``        reads and follows them, of a query that runs elsewhere or is gone
``running``        the feeds of this process
``metrics``        as OpenMetrics
``spans``          backups, restores and twins as OpenTelemetry spans
=================  ===============================================================================
"""
