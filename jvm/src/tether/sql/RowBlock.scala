package tether.sql

import java.util.Arrays

import org.apache.spark.unsafe.Platform

/**
 * Rows of one family and one kind, one after the other in a flat array, as a backup holds them.
 *
 * The bytes of row i are `data` from `ends(i - 1)` to `ends(i)`: its key (`keys(i)` bytes), then its values,
 * each with its length before it where a row has several.
 *
 * @param schema of the values, as JSON, where a family may change it; else empty
 */
final class RowBlock(
    val family: String, val schema: String, val kind: Byte, val count: Int, val keys: Array[Int], val ends: Array[Int],
    val data: Array[Byte]) {

  def start(row: Int): Int = if (row == 0) 0 else ends(row - 1)

  /** Whether all rows are of the same lengths: so are those of most queries, and they pack best. */
  def isUniform: Boolean = kind != RowBlock.Several && {
    var row = 1
    while (row < count && keys(row) == keys(0) && ends(row) - ends(row - 1) == ends(0)) row += 1
    row >= count
  }

  /** The one value of a row. */
  def value(row: Int): Array[Byte] = Arrays.copyOfRange(data, start(row) + keys(row), ends(row))

  def key(row: Int): Array[Byte] = Arrays.copyOfRange(data, start(row), start(row) + keys(row))

  /** The values of a row that has several. */
  def values(row: Int): Vector[Array[Byte]] = {
    val made = Vector.newBuilder[Array[Byte]]
    var at = start(row) + keys(row)
    while (at < ends(row)) {
      val length = Platform.getInt(data, Platform.BYTE_ARRAY_OFFSET + at)
      made += Arrays.copyOfRange(data, at + 4, at + 4 + length)
      at += 4 + length
    }
    made.result()
  }
}

object RowBlock {
  /** The row is gone. */
  final val Removed: Byte = 1
  final val One: Byte = 2
  /** Rows with any number of values. */
  final val Several: Byte = 3
}

/** Collects copies of rows; a block is complete at about 128 KB, so that nothing grows without limit. */
final class BlockBuilder(family: String, schema: String, kind: Byte) {
  private var keys = new Array[Int](256)
  private var ends = new Array[Int](256)
  private var data = new Array[Byte](1 << 12)
  private var count = 0
  private var used = 0

  def isEmpty: Boolean = count == 0
  def isFull: Boolean = used >= BlockBuilder.BlockBytes

  /** Begins a row with its key; what follows belongs to it until the next one begins. */
  def begin(base: AnyRef, offset: Long, length: Int): Unit = {
    if (count == keys.length) {
      keys = Arrays.copyOf(keys, 2 * count + 16)
      ends = Arrays.copyOf(ends, 2 * count + 16)
    }
    keys(count) = length
    count += 1
    append(base, offset, length)
  }

  def append(base: AnyRef, offset: Long, length: Int): Unit = {
    room(length)
    Platform.copyMemory(base, offset, data, Platform.BYTE_ARRAY_OFFSET + used, length)
    used += length
    ends(count - 1) = used
  }

  def appendWithLength(value: Array[Byte]): Unit = {
    room(4)
    Platform.putInt(data, Platform.BYTE_ARRAY_OFFSET + used, value.length)
    used += 4
    append(value, Platform.BYTE_ARRAY_OFFSET, value.length)
  }

  private def room(length: Int): Unit =
    if (used + length > data.length) data = Arrays.copyOf(data, math.max(2 * data.length, used + length))

  /** The rows so far; the builder begins anew. */
  def take(): RowBlock = {
    val made = new RowBlock(family, schema, kind, count, keys, ends, data)
    keys = new Array[Int](count)
    ends = new Array[Int](count)
    data = new Array[Byte](data.length)
    count = 0
    used = 0
    made
  }
}

object BlockBuilder {
  final val BlockBytes = 1 << 17
}

/** Sorts rows into blocks of their kinds. */
final class BlockSink(family: String, schema: String, out: RowBlock => Unit) {
  private val builders = new Array[BlockBuilder](4)

  private def of(kind: Byte): BlockBuilder = {
    val builder = builders(kind)
    if (builder == null) {
      builders(kind) = new BlockBuilder(family, schema, kind)
    } else if (builder.isFull) {
      out(builder.take())
    }
    builders(kind)
  }

  def removed(base: AnyRef, offset: Long, length: Int): Unit = of(RowBlock.Removed).begin(base, offset, length)

  def one(base: AnyRef, keyOffset: Long, keyBytes: Int, valueOffset: Long, valueBytes: Int): Unit = {
    val builder = of(RowBlock.One)
    builder.begin(base, keyOffset, keyBytes)
    builder.append(base, valueOffset, valueBytes)
  }

  def several(base: AnyRef, keyOffset: Long, keyBytes: Int, values: Iterable[Array[Byte]]): Unit = {
    val builder = of(RowBlock.Several)
    builder.begin(base, keyOffset, keyBytes)
    values.foreach(builder.appendWithLength)
  }

  def finish(): Unit = builders.foreach(builder => if (builder != null && !builder.isEmpty) out(builder.take()))
}
