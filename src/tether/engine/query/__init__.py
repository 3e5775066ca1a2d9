"""What the driver knows and decides: epochs, commits, snapshots, feedback, the ledger of losses."""
