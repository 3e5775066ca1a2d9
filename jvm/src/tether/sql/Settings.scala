package tether.sql

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.{StateStoreConf, StateStoreId}

/**
 * What the user asked for, as it applies to one store.
 *
 * @param maxStateError Θ, for all partitions of the operator together, in units of the divergence
 * @param copies number of stores that share Θ; their errors add up (for `max`: do not)
 * @param alignedEvery all stores back up at versions that this divides, for a rewind; 0: at none
 * @param snapshotRatio a snapshot is due when the deltas since the last weigh this many times as much
 * @param lastBackup whether a query that ends in good order makes all durable; false: it ends like a killed one
 */
final case class Settings(
    maxStateError: Double, divergence: Divergence, columns: Seq[String], copies: Long,
    alignedEvery: Long, snapshotRatio: Double, lastBackup: Boolean) {
  def theta(failures: Int): Double = Thresholds.theta(maxStateError, copies, failures)
}

object Settings {
  private final val Prefix = "spark.sql.streaming.stateStore.tether."
  final val MaxStateError = Prefix + "maxStateError"
  final val Divergence = Prefix + "divergence"
  final val Columns = Prefix + "columns"
  final val AlignedEvery = Prefix + "alignedEvery"
  final val SnapshotRatio = Prefix + "snapshotRatio"
  final val LastBackup = Prefix + "lastBackup"

  /** A stream-stream join of the older state formats keeps four stores in each partition. */
  private final val StoresOfJoin = 4

  def of(id: StateStoreId, stores: StateStoreConf, hadoop: Configuration): Settings = {
    def get(key: String): Option[String] =
      stores.sqlConfs.get(key).orElse(Option(hadoop.get(key))).map(_.trim).filter(_.nonEmpty)
    // A setting of one operator, "…tether.operator.<id>.<name>", goes before that of the query.
    def setting(key: String): Option[String] =
      get(s"${Prefix}operator.${id.operatorId}.${key.stripPrefix(Prefix)}").orElse(get(key))
    def number(key: String, otherwise: Double): Double = setting(key).fold(otherwise) { text =>
      val value = if (text.toLowerCase == "inf") Some(Double.PositiveInfinity) else text.toDoubleOption
      value.filter(_ >= 0).getOrElse(throw new IllegalArgumentException(
        s"$key=$text is not usable. Why: it must be a number of at least 0, or inf. What to do: correct it."))
    }
    val divergence = setting(Divergence).fold[tether.sql.Divergence](tether.sql.Divergence.Count)(
      tether.sql.Divergence.named)
    val partitions = get("spark.sql.streaming.internal.stateStore.partitions")
      .orElse(get("spark.sql.shuffle.partitions")).flatMap(_.toLongOption).getOrElse(200L)
    val perPartition = if (id.storeName == StateStoreId.DEFAULT_STORE_NAME) 1 else StoresOfJoin
    Settings(
      number(MaxStateError, 0.0),
      divergence,
      setting(Columns).toSeq.flatMap(_.split(",")).map(_.trim).filter(_.nonEmpty),
      if (divergence == tether.sql.Divergence.Max) 1L else partitions * perPartition,
      number(AlignedEvery, 0.0).toLong,
      number(SnapshotRatio, 3.0),
      !setting(LastBackup).exists(_.equalsIgnoreCase("false")))
  }
}
