package tether.sql

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{KeyStateEncoderSpec, UnsafeRowPair}
import org.apache.spark.sql.types.StructType

/** What Spark said of a column family when it created it. */
final case class FamilySpec(
    name: String, keySchema: StructType, valueSchema: StructType, encoder: KeyStateEncoderSpec, many: Boolean)

/** One column family: its rows, and what changing them means for journal, books and sizes. */
abstract class Family(val name: String, val many: Boolean) {
  /** Whether a row's time has passed; see [[EventTime]]. */
  var isClosed: UnsafeRow => Boolean = _ => false

  def liveKeys: Long
  /** Heap bytes. */
  def bytes: Long

  def contains(key: UnsafeRow): Boolean
  /** The value, or the first of many; null where there is none. */
  def get(key: UnsafeRow): UnsafeRow
  def values(key: UnsafeRow): Iterator[UnsafeRow]
  /**
   * All rows as they are now, whatever is changed while they are read.
   *
   * @param every of a key with many values, each one; otherwise the first
   */
  def pairs(every: Boolean): Iterator[UnsafeRowPair]
  def prefix(key: UnsafeRow, every: Boolean): Iterator[UnsafeRowPair] = throw unordered
  /** From `start` (included) to `end` (not included). */
  def range(start: Option[UnsafeRow], end: Option[UnsafeRow], every: Boolean): Iterator[UnsafeRowPair] = throw unordered

  def put(key: UnsafeRow, value: UnsafeRow, journal: Journal, books: Books): Unit
  /** Puts a list of values, or appends it to the one that is there. */
  def putMany(key: UnsafeRow, values: Array[UnsafeRow], append: Boolean, journal: Journal, books: Books): Unit =
    throw new IllegalArgumentException(s"Column family $name has one value for a key.")
  def remove(key: UnsafeRow, journal: Journal, books: Books): Unit

  /** `total` and, on top of it, what the rows that differ from the last backup add to the divergence. */
  def recount(books: Books, total: Double): Double
  /** Gives the rows that differ from the last backup to `sink`, as they are now. */
  def capture(books: Books, sink: BlockSink): Unit
  /** All rows as they are now, to be given to a sink later, by another thread. */
  def everything(): BlockSink => Unit
  /** Takes out removed rows whose removal was captured; they can no longer be asked for. */
  def purge(): Unit
  /** Forgets what is to be purged: the capture was undone. */
  def keepDying(): Unit
  /** Makes room where rows have come and gone. */
  def tidy(books: Books): Unit = ()

  /** Rows as read from a backup. */
  def load(block: RowBlock): Unit
  /** Takes rows out without a trace, after a restore. */
  def discard(isUnwanted: UnsafeRow => Boolean): Unit

  protected def unordered: Throwable = new IllegalArgumentException(
    s"Column family $name has no order. Why: its key encoder supports neither prefix nor range scans.")
}

object Family {
  /** Bits of a packed record's stamp below its generation: those of [[Entry]], and one of its own. */
  final val FlagBits = 4
}
