"""Ready operators, each written against the public API alone, as a user would."""
