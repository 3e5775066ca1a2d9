"""Which executor holds which slot."""
