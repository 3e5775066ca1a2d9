"""The running query: the loop over epochs, its driver side, supervision."""
