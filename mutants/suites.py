"""Which tests could notice a fault in which package, those first that are quick to."""

from __future__ import annotations

CORE = (
    "tests/core/test_thresholds.py",
    "tests/core/test_bound.py",
    "tests/core/test_budget.py",
    "tests/core/test_windows.py",
    "tests/core/test_graph.py",
    "tests/core/test_amplification.py",
    "tests/core/test_policies.py",
    "tests/core/test_losses.py",
    "tests/core/test_theorems.py",
    "tests/core/test_accuracy.py",
    "tests/core/test_explain.py",
    "tests/testing/test_disjoint.py",
    "tests/testing/test_check_pipeline.py",
)
POLICIES = (
    "tests/core/test_policies.py",
    "tests/core/test_windows.py",
    "tests/core/test_losses.py",
    "tests/core/test_theorems.py",
    "tests/core/test_parse.py",
    "tests/core/test_accuracy.py",
    "tests/core/test_explain.py",
    "tests/core/test_snapshot_retention.py",
    "tests/core/test_epoch_schedules.py",
    "tests/core/test_upstream_schedules.py",
    "tests/spark/test_losses.py",
    "tests/spark/test_other_terms.py",
)
PROTOCOLS = (
    "tests/protocols/test_copies.py",
    "tests/core/test_alignment.py",
    "tests/core/test_coordinator.py",
    "tests/core/test_upstream_items.py",
    "tests/core/test_item_sender.py",
    "tests/core/test_items.py",
    "tests/core/test_snapshot_retention.py",
    "tests/core/test_snapshot_schedules.py",
    "tests/core/test_upstream_schedules.py",
    "tests/core/test_epoch_schedules.py",
    "tests/core/test_graph.py",
)
STATE = (
    "tests/state/test_table.py",
    "tests/state/test_table_exports.py",
    "tests/state/test_settling.py",
    "tests/state/test_divergence.py",
    "tests/state/test_starts.py",
    "tests/state/test_slot.py",
    "tests/state/test_vector.py",
    "tests/state/test_number.py",
    "tests/state/test_matrix.py",
    "tests/state/test_sets.py",
    "tests/state/test_objects.py",
    "tests/state/test_adapters.py",
    "tests/state/test_arena.py",
    "tests/state/test_segment.py",
    "tests/state/test_index.py",
    "tests/state/test_keys.py",
    "tests/state/test_hashing.py",
    "tests/state/test_private.py",
    "tests/state/test_table_model.py",
    "tests/state/test_kill.py",
    "tests/state/test_histories.py",
)
BACKUP = (
    "tests/backup/test_history.py",
    "tests/backup/test_commitcodec.py",
    "tests/backup/test_framecodec.py",
    "tests/backup/test_recovery.py",
    "tests/backup/test_commitlog.py",
    "tests/backup/test_files.py",
    "tests/backup/test_retention.py",
    "tests/backup/test_audit.py",
    "tests/backup/test_manifest.py",
    "tests/backup/test_local.py",
    "tests/backup/test_local_commits.py",
    "tests/backup/test_hostile.py",
    "tests/backup/test_opening.py",
    "tests/backup/test_parts.py",
    "tests/backup/test_sweeping.py",
    "tests/backup/test_inspect.py",
    "tests/backup/test_locks.py",
    "tests/backup/test_power_cuts.py",
    "tests/backup/test_objects.py",
    "tests/backup/test_stores.py",
    "tests/backup/test_fuzz.py",
    "tests/backup/test_damage.py",
    "tests/backup/test_bad_disks.py",
)
ENGINE = (
    "tests/spark/test_ledger.py",
    "tests/spark/test_slot_steps.py",
    "tests/spark/test_losses.py",
    "tests/spark/test_other_terms.py",
    "tests/spark/test_slot_protocol.py",
    "tests/testing/test_kills.py",
    "tests/spark/test_feedback_box.py",
    "tests/spark/test_exact_slots.py",
    "tests/spark/test_event_time.py",
    "tests/spark/test_early_clears.py",
    "tests/spark/test_catching_up.py",
    "tests/spark/test_story.py",
    "tests/spark/test_cut_log.py",
    "tests/testing/test_inprocess.py",
    "tests/testing/test_fuzz.py",
    "tests/testing/test_twin_healing.py",
    "tests/testing/test_twin.py",
    "tests/testing/test_rescaling.py",
    "tests/testing/test_rescaling_live.py",
    "tests/testing/test_rescaling_offline.py",
    "tests/backup/test_damage.py",
)
DECLARED = (
    "tests/core/test_declared.py",
    "tests/core/test_amplification.py",
    "tests/testing/test_disjoint.py",
    "tests/testing/test_check_pipeline.py",
)
SUITES = {
    "core/": CORE,
    "declared.py": DECLARED,
    "policies/": POLICIES,
    "protocols/": PROTOCOLS,
    "state/": STATE,
    "backup/": BACKUP,
    "engine/": ENGINE,
    "spark/": ENGINE,
}


def suite_of(file: str) -> tuple[str, ...]:
    """Tests for a file below ``src/tether``, the one of its own name first.

    Example:
        >>> suite_of("state/table.py")[0], suite_of("engine/slot/epoch.py")[0]
        ('tests/state/test_table.py', 'tests/spark/test_slot_steps.py')
    """
    package = next(package for package in SUITES if file.startswith(package))
    name = f"test_{file.rsplit('/', 1)[-1]}"
    return tuple(sorted(SUITES[package], key=lambda test: not test.endswith(f"/{name}")))
