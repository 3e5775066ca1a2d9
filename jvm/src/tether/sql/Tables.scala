package tether.sql

import java.util.{Arrays, NoSuchElementException}

import scala.collection.immutable.TreeMap

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.RocksDBKeyStateEncoder
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.array.ByteArrayMethods

/** Where the entries of one column family are found. Dead entries are in it too. */
trait Table {
  def find(key: UnsafeRow, hash: Int): AnyRef
  /** Put `entry` in the place of `key`; null takes whatever is there away. */
  def set(key: UnsafeRow, hash: Int, entry: AnyRef): Unit
  /** All entries as they are now, whatever is changed while they are read. */
  def entries: Iterator[AnyRef]
  /** Heap bytes of the table without its entries. */
  def bytes: Long
}

/**
 * Open addressing over two flat arrays: 12 to 24 bytes a key besides the entry itself.
 *
 * An iterator keeps the arrays that it began with: the first change after that copies them.
 */
final class HashTable(keyStart: Int) extends Table {
  private var slots = new Array[AnyRef](64)
  private var tags = new Array[Int](64)
  private var used = 0 // slots that are not empty, marks of taken-away entries among them
  private var kept = 0
  private var shared = false

  private def position(base: AnyRef, offset: Long, length: Int, hash: Int): Int = {
    val mask = slots.length - 1
    var at = HashTable.spread(hash) & mask
    while (slots(at) ne null) {
      val entry = slots(at)
      if (tags(at) == hash && (entry ne HashTable.Gone)) {
        val head = Entry.head(entry)
        if (Entry.keyLength(head) == length && ByteArrayMethods.arrayEquals(
            head, Platform.BYTE_ARRAY_OFFSET + keyStart, base, offset, length)) {
          return at
        }
      }
      at = (at + 1) & mask
    }
    ~at
  }

  override def find(key: UnsafeRow, hash: Int): AnyRef = {
    val at = position(key.getBaseObject, key.getBaseOffset, key.getSizeInBytes, hash)
    if (at < 0) null else slots(at)
  }

  override def set(key: UnsafeRow, hash: Int, entry: AnyRef): Unit = {
    if (shared) {
      slots = slots.clone()
      tags = tags.clone()
      shared = false
    }
    var at = position(key.getBaseObject, key.getBaseOffset, key.getSizeInBytes, hash)
    if (at >= 0) {
      if (entry == null) {
        slots(at) = HashTable.Gone
        kept -= 1
      } else {
        slots(at) = entry
      }
    } else if (entry != null) {
      if ((used + 1) * 3 > slots.length * 2) {
        rebuild()
        at = position(key.getBaseObject, key.getBaseOffset, key.getSizeInBytes, hash)
      }
      slots(~at) = entry
      tags(~at) = hash
      used += 1
      kept += 1
    }
  }

  private def rebuild(): Unit = {
    val (oldSlots, oldTags) = (slots, tags)
    val size = if (kept * 3 > slots.length) slots.length * 2 else slots.length
    slots = new Array[AnyRef](size)
    tags = new Array[Int](size)
    used = kept
    val mask = size - 1
    var from = 0
    while (from < oldSlots.length) {
      val entry = oldSlots(from)
      if ((entry ne null) && (entry ne HashTable.Gone)) {
        var at = HashTable.spread(oldTags(from)) & mask
        while (slots(at) ne null) at = (at + 1) & mask
        slots(at) = entry
        tags(at) = oldTags(from)
      }
      from += 1
    }
  }

  override def entries: Iterator[AnyRef] = {
    shared = true
    val frozen = slots
    new Iterator[AnyRef] {
      private var at = -1
      advance()
      private def advance(): Unit = {
        at += 1
        while (at < frozen.length && ((frozen(at) eq null) || (frozen(at) eq HashTable.Gone))) at += 1
      }
      override def hasNext: Boolean = at < frozen.length
      override def next(): AnyRef = {
        if (!hasNext) throw new NoSuchElementException("no more state rows")
        val entry = frozen(at)
        advance()
        entry
      }
    }
  }

  override def bytes: Long = 8L * slots.length
}

object HashTable {
  private val Gone = new Object
  private def spread(hash: Int): Int = { val h = hash * 0x9E3779B9; h ^ (h >>> 16) }
}

/**
 * Entries in the order of Spark's own key encoding, so that scans give what RocksDB would give.
 *
 * The tree is immutable: a scan keeps its root, hence sees nothing of later changes (timers rely on it).
 */
final class SortedTable(encoder: RocksDBKeyStateEncoder) extends Table {
  private var tree = TreeMap.empty[Array[Byte], AnyRef](SortedTable.Lexicographic)

  override def find(key: UnsafeRow, hash: Int): AnyRef = tree.getOrElse(encoder.encodeKey(key), null)

  override def set(key: UnsafeRow, hash: Int, entry: AnyRef): Unit = {
    val encoded = encoder.encodeKey(key)
    tree = if (entry == null) tree.removed(encoded) else tree.updated(encoded, entry)
  }

  override def entries: Iterator[AnyRef] = tree.valuesIterator

  def prefix(prefixKey: UnsafeRow): Iterator[AnyRef] = {
    require(encoder.supportPrefixKeyScan, "Prefix scan requires setting prefix key!")
    val prefix = encoder.encodePrefixKey(prefixKey)
    tree.iteratorFrom(prefix).takeWhile { case (key, _) =>
      key.length >= prefix.length && Arrays.equals(key, 0, prefix.length, prefix, 0, prefix.length)
    }.map(_._2)
  }

  /** From `start` (included) to `end` (not included). */
  def range(start: Option[UnsafeRow], end: Option[UnsafeRow]): Iterator[AnyRef] = {
    require(encoder.supportsRangeScan, "Range scan requires an encoder that supports it!")
    val from = start.map(encoder.encodeKey)
    val until = end.map(encoder.encodeKey)
    val rows = from.fold(tree.iterator)(tree.iteratorFrom)
    until.fold(rows)(last => rows.takeWhile { case (key, _) => Arrays.compareUnsigned(key, last) < 0 })
      .map(_._2)
  }

  override def bytes: Long = tree.size * 96L
}

object SortedTable {
  private object Lexicographic extends Ordering[Array[Byte]] {
    override def compare(a: Array[Byte], b: Array[Byte]): Int = Arrays.compareUnsigned(a, b)
  }
}
