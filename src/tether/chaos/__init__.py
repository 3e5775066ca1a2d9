"""Failures on purpose: faults at named points of the protocols, and stores that misbehave."""
