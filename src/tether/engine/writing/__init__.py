"""How a slot's backups are written, in the epoch and in the background."""
