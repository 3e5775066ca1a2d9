"""Protocols between slots, senders and the driver, as pure state machines."""
