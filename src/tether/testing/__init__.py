"""Helpers for tests of queries, and checks that users run on their own states and operators."""

from tether.testing.laws import LawBrokenError
from tether.testing.operators import check_operator
from tether.testing.pipelines import check_pipeline
from tether.testing.policies import check_policy
from tether.testing.states import check_state

__all__ = ["LawBrokenError", "check_operator", "check_pipeline", "check_policy", "check_state"]
