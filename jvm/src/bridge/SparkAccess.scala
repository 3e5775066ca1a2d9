package org.apache.spark.sql.execution.streaming.state

import java.io.{InputStream, OutputStream}

import org.apache.hadoop.conf.Configuration

import org.apache.spark.{SPARK_VERSION, SparkConf}
import org.apache.spark.io.CompressionCodec

/** The few things of Spark that only its own packages may call. */
object TetherAccess {
  /** Spark's state-store traits are internal and change between releases: this was written for one. */
  final val SupportedSpark = "4.3"

  def checkSpark(): Unit = if (SPARK_VERSION != SupportedSpark && !SPARK_VERSION.startsWith(s"$SupportedSpark.")) {
    throw new UnsupportedOperationException(
      s"Tether's state store does not run on Spark $SPARK_VERSION. Why: it is built against the state-store " +
        s"interfaces of Spark $SupportedSpark, which are internal to Spark and change between releases. " +
        s"What to do: use Spark $SupportedSpark, or take spark.sql.streaming.stateStore.providerClass out.")
  }

  /** Tells the driver that a store has committed: foreachBatch checks that all of them have. */
  def reportCommit(version: Long, id: StateStoreId, conf: Configuration): Unit =
    StateStore.reportCommitToCoordinator(version, id, conf)

  def runId(conf: Configuration): String = Option(conf.get("sql.streaming.runId")).getOrElse("")

  def missingFamily(operation: String, name: String): Throwable =
    StateStoreErrors.unsupportedOperationOnMissingColumnFamily(operation, name)

  def outOfOrder(message: String): Throwable = StateStoreErrors.stateStoreOperationOutOfOrder(message)

  def compressed(codec: String, out: OutputStream): OutputStream =
    CompressionCodec.createCodec(new SparkConf(false), codec).compressedOutputStream(out)

  def decompressed(codec: String, in: InputStream): InputStream =
    CompressionCodec.createCodec(new SparkConf(false), codec).compressedInputStream(in)
}
