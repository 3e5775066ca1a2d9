"""Fault-tolerance policies: pure state machines, events in, instructions out."""
