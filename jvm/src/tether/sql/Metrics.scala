package tether.sql

import org.apache.spark.sql.execution.streaming.state.{StateStoreCustomMetric, StateStoreCustomSumMetric, StateStoreCustomTimingMetric}

/** What one store reports of one batch. Spark adds the stores up and shows them in progress and UI. */
object Metrics {
  val Divergence = StateStoreCustomSumMetric("tetherDivergence", "tether: divergence from what is durable")
  val Threshold = StateStoreCustomSumMetric("tetherThreshold", "tether: divergence at which a backup is due")
  val Backups = StateStoreCustomSumMetric("tetherBackups", "tether: backups written")
  val Bytes = StateStoreCustomSumMetric("tetherBytes", "tether: bytes written")
  val Restores = StateStoreCustomSumMetric("tetherRestores", "tether: restores from backups")
  val VersionsLost = StateStoreCustomSumMetric("tetherVersionsLost", "tether: versions between backup and wanted")
  val Failures = StateStoreCustomSumMetric("tetherFailures", "tether: restores so far that lost something")
  val Bound = StateStoreCustomSumMetric("tetherBound", "tether: most that the state can be wrong by")
  val Extra = StateStoreCustomSumMetric("tetherExtra", "tether: part of the bound due to unreadable backups")
  val Wait = StateStoreCustomTimingMetric("tetherWaitMs", "tether: time to wait for backups")

  val all: Seq[StateStoreCustomMetric] =
    Seq(Divergence, Threshold, Backups, Bytes, Restores, VersionsLost, Failures, Bound, Extra, Wait)

  /** Metrics are whole numbers: an amount is rounded up, so that no bound is shown too small. */
  def whole(amount: Double): Long =
    if (amount >= Metrics.Most) Metrics.Most else math.ceil(amount).toLong

  /** Stands for infinity: the sum over thousands of stores must not overflow. */
  final val Most: Long = 1L << 48
}
