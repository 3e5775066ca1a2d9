"""How a slot gets its state back after a loss."""
