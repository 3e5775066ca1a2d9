package tether.sql

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec
import org.apache.spark.sql.types._

/**
 * When a row of state is closed: its window has ended, or its time has passed, by the watermark.
 *
 * Dropping a closed row is no change of the answer, so it does not count as divergence; and a restore
 * drops rows that were closed when the lost version was made, or they would be given out twice.
 */
final class EventTime(ordinal: Int, isWindow: Boolean) {
  /** Microseconds; the end of a window. */
  def of(key: UnsafeRow): Long =
    if (key.isNullAt(ordinal)) Long.MaxValue
    else if (!isWindow) key.getLong(ordinal)
    else {
      val window = key.getStruct(ordinal, 2)
      if (window.isNullAt(1)) Long.MaxValue else window.getLong(1)
    }
}

object EventTime {
  private final val Delay = "spark.watermarkDelayMs" // how Spark marks a column that has a watermark

  /** The event time in the keys of a store, where its rows are dropped by the query's own watermark. */
  def in(spec: FamilySpec): Option[EventTime] = spec.encoder match {
    case _: NoPrefixKeyStateEncoderSpec =>
      spec.keySchema.fields.zipWithIndex.collectFirst {
        case (StructField(_, window: StructType, _, meta), at)
            if meta.contains(Delay) && window.fieldNames.sameElements(Array("start", "end")) =>
          new EventTime(at, isWindow = true)
        case (StructField(_, TimestampType | TimestampNTZType, _, meta), at) if meta.contains(Delay) =>
          new EventTime(at, isWindow = false)
      }
    case _ => None
  }
}
