package tether.sql

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/**
 * One row of state as it is kept in memory: never changed once made.
 *
 * An entry with one value is a bare byte array, because at a million keys every object around it
 * would cost more than the row itself:
 *
 * {{{ key length, hash, generation, flags (4 bytes each) | base columns (8 each) | key | value }}}
 *
 * - generation: the backup generation in which the row was last written. A row of the current
 *   generation is dirty; this replaces a set of dirty keys.
 * - base columns: what the measured columns were in the last backup (see [[Measure]]).
 *
 * An entry with many values is a [[Many]] whose head is such an array without a value. Since entries
 * never change, an undo journal, an iterator and a backup that is being written may all hold them.
 */
object Entry {
  /** The key is in the last backup. */
  final val InBase = 1
  /** The key was removed; the entry stands for it until the removal is durable. */
  final val Dead = 2
  /** It was removed because its time had passed, which changes no answer. */
  final val Closed = 4

  final val HeaderBytes = 16
  final val ColumnsOffset: Long = Platform.BYTE_ARRAY_OFFSET + HeaderBytes
  private final val Base = Platform.BYTE_ARRAY_OFFSET.toLong

  def head(entry: AnyRef): Array[Byte] = entry match {
    case bytes: Array[Byte] => bytes
    case many: Many => many.head
  }

  def keyLength(head: Array[Byte]): Int = Platform.getInt(head, Base)
  def hash(head: Array[Byte]): Int = Platform.getInt(head, Base + 4)
  def generation(head: Array[Byte]): Int = Platform.getInt(head, Base + 8)
  def flags(head: Array[Byte]): Int = Platform.getInt(head, Base + 12)

  def isDead(head: Array[Byte]): Boolean = (flags(head) & Dead) != 0
  def inBase(head: Array[Byte]): Boolean = (flags(head) & InBase) != 0
  def baseColumn(head: Array[Byte], index: Int): Double =
    Platform.getDouble(head, Base + HeaderBytes + 8L * index)
  def setBaseColumn(head: Array[Byte], index: Int, value: Double): Unit =
    Platform.putDouble(head, Base + HeaderBytes + 8L * index, value)

  /** Bytes before the key, for a family with this many measured columns. */
  def keyStart(columns: Int): Int = HeaderBytes + 8 * columns

  /** A new entry; `valueBase` null leaves the value out. */
  def make(
      columns: Int, hash: Int, generation: Int, flags: Int,
      keyBase: AnyRef, keyOffset: Long, keyBytes: Int,
      valueBase: AnyRef, valueOffset: Long, valueBytes: Int): Array[Byte] = {
    val start = keyStart(columns)
    val made = new Array[Byte](start + keyBytes + (if (valueBase == null) 0 else valueBytes))
    Platform.putInt(made, Base, keyBytes)
    Platform.putInt(made, Base + 4, hash)
    Platform.putInt(made, Base + 8, generation)
    Platform.putInt(made, Base + 12, flags)
    Platform.copyMemory(keyBase, keyOffset, made, Base + start, keyBytes)
    if (valueBase != null) {
      Platform.copyMemory(valueBase, valueOffset, made, Base + start + keyBytes, valueBytes)
    }
    made
  }

  /** Heap bytes that this entry holds on to, object headers included. */
  def bytes(entry: AnyRef): Long = entry match {
    case array: Array[Byte] => 16L + array.length
    case many: Many => many.bytes
  }

  def row(bytes: Array[Byte], start: Int, length: Int, fields: Int): UnsafeRow = {
    val row = new UnsafeRow(fields)
    row.pointTo(bytes, Base + start, length)
    row
  }
}

/** An entry with several values, appended to without copying what is there. */
final class Many(val head: Array[Byte], val values: Vector[Array[Byte]], val bytes: Long)

object Many {
  def apply(head: Array[Byte], values: Vector[Array[Byte]], valueBytes: Long): Many =
    new Many(head, values, 48L + head.length + valueBytes)

  /** Heap bytes of one value in the list. */
  def valueBytes(value: Array[Byte]): Long = 20L + value.length
}
