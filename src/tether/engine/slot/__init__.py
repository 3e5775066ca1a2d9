"""What one slot does in one epoch: attach, process, back up, commit, report."""
