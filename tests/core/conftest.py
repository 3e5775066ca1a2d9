"""Settings of the property tests here."""

from __future__ import annotations

from hypothesis import settings

# A busy machine makes single examples slow; that is no fault of the code.
settings.register_profile("core", deadline=None)
settings.load_profile("core")
