package tether.sql

import java.util.Arrays

import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.array.ByteArrayMethods

/**
 * Rows in flat pages with a flat index: no object a row, so nothing for the garbage collector to walk.
 *
 * A record, at an address counted in units of 8 bytes:
 *
 * {{{ key bytes, value bytes, room for the value, stamp (4 each) | base columns (8 each) | key | value }}}
 *
 * The stamp is `generation << 4 | flags`, see [[Entry]]. The index holds `hash << 32 | address + 1` with open
 * addressing: a look-up touches one line of the index and one of the record.
 *
 * Records are changed in place. Whoever reads while they change (an iterator, a snapshot that is being written)
 * has called `freeze`, and a frozen page is copied before its first change.
 */
final class PackedRows(columns: Int) {
  import PackedRows._

  val keyStart: Int = HeaderBytes + 8 * columns
  private var pages = new Array[Array[Byte]](4)
  private var used = new Array[Int](4) // bytes of each page
  private var frozen = new Array[Boolean](4)
  private var pageCount = 0
  private var index = new Array[Long](64)
  private var taken = 0 // places of the index that are not empty, those of taken-out records among them
  private var held = 0
  private var allBytes = 0L
  private var wasted = 0L

  def bytes: Long = allBytes + 8L * index.length

  // ---- finding ----------------------------------------------------------------------------------

  /** The address of a key, or -1. */
  def find(base: AnyRef, offset: Long, length: Int, hash: Int): Int = {
    val at = locate(base, offset, length, hash)
    if (at < 0) -1 else index(at).toInt - 1
  }

  private def locate(base: AnyRef, offset: Long, length: Int, hash: Int): Int = {
    val places = index
    val mask = places.length - 1
    var at = spread(hash) & mask
    var place = places(at)
    while (place != 0L) {
      if ((place >>> 32).toInt == hash && place.toInt > 0) {
        val address = place.toInt - 1
        val page = pages(address >>> PageShift)
        val start = offsetOf(address)
        if (Platform.getInt(page, start) == length
            && ByteArrayMethods.arrayEquals(page, start + keyStart, base, offset, length)) return at
      }
      at = (at + 1) & mask
      place = places(at)
    }
    ~at
  }

  def page(address: Int): Array[Byte] = pages(address >>> PageShift)

  /** The page of a record that is about to be changed. */
  def own(address: Int): Array[Byte] = {
    val number = address >>> PageShift
    if (frozen(number)) {
      pages(number) = pages(number).clone()
      frozen(number) = false
    }
    pages(number)
  }

  // ---- adding and taking out --------------------------------------------------------------------

  /** A new record with its key in place; the value is the caller's to write. */
  def add(base: AnyRef, offset: Long, length: Int, hash: Int, room: Int): Int = {
    if ((taken + 1) * 3L > index.length * 2L) rebuild()
    val address = allocate(keyStart + roundUp(length) + roundUp(room))
    val page = own(address)
    val start = offsetOf(address)
    Platform.putInt(page, start, length)
    Platform.putInt(page, start + 8, roundUp(room))
    Platform.copyMemory(base, offset, page, start + keyStart, length)
    val at = ~locate(base, offset, length, hash)
    index(at) = hash.toLong << 32 | (address + 1).toLong
    taken += 1
    held += 1
    address
  }

  /** Gives up a record: its place is used again when the pages are packed anew. */
  def drop(address: Int): Unit = {
    val page = own(address)
    val start = offsetOf(address)
    val length = Platform.getInt(page, start)
    val at = locate(page, start + keyStart, length, hashOf(page, start + keyStart, length))
    index(at) = Gone
    held -= 1
    wasted += size(page, start)
    Platform.putInt(page, start + 12, Free)
  }

  private def allocate(bytes: Int): Int = {
    val last = pageCount - 1
    if (last >= 0 && used(last) + bytes <= PageBytes) {
      if (used(last) + bytes > pages(last).length) {
        allBytes -= pages(last).length
        pages(last) = Arrays.copyOf(pages(last), math.min(PageBytes, math.max(2 * pages(last).length, used(last) + bytes)))
        frozen(last) = false
        allBytes += pages(last).length
      }
      val address = last << PageShift | used(last) >>> 3
      used(last) += bytes
      address
    } else {
      if (pageCount == pages.length) {
        pages = Arrays.copyOf(pages, 2 * pageCount)
        used = Arrays.copyOf(used, 2 * pageCount)
        frozen = Arrays.copyOf(frozen, 2 * pageCount)
      }
      // The first page begins small: many stores hold a handful of rows.
      pages(pageCount) = new Array[Byte](math.max(bytes, if (pageCount == 0) FirstPageBytes else PageBytes))
      used(pageCount) = bytes
      frozen(pageCount) = false
      allBytes += pages(pageCount).length
      pageCount += 1
      (pageCount - 1) << PageShift
    }
  }

  private def rebuild(): Unit = {
    val before = index
    index = new Array[Long](if (held * 3L > before.length) 2 * before.length else before.length)
    taken = held
    val mask = index.length - 1
    var from = 0
    while (from < before.length) {
      val place = before(from)
      if (place.toInt > 0) {
        var at = spread((place >>> 32).toInt) & mask
        while (index(at) != 0L) at = (at + 1) & mask
        index(at) = place
      }
      from += 1
    }
  }

  // ---- all of them ------------------------------------------------------------------------------

  /** All records as they are now, to be read by anyone while the rows go on changing. */
  def freeze(): Frozen = {
    Arrays.fill(frozen, 0, pageCount, true)
    new Frozen(Arrays.copyOf(pages, pageCount), Arrays.copyOf(used, pageCount), keyStart)
  }

  def isWasteful: Boolean = wasted > (1 << 20) && 2 * wasted > allBytes

  /** Packs the pages anew without the records that were given up; gives where each one went, -1: nowhere. */
  def pack(): Int => Int = {
    val (oldPages, oldUsed, oldCount) = (pages, used, pageCount)
    pages = new Array[Array[Byte]](math.max(4, oldCount))
    used = new Array[Int](pages.length)
    frozen = new Array[Boolean](pages.length)
    pageCount = 0
    allBytes = 0L
    wasted = 0L
    index = new Array[Long](index.length)
    taken = 0
    held = 0
    val moved = new Array[Array[Int]](oldCount)
    var number = 0
    while (number < oldCount) {
      val page = oldPages(number)
      val targets = new Array[Int]((oldUsed(number) + 7) >>> 3)
      var at = 0
      while (at < oldUsed(number)) {
        val start = Platform.BYTE_ARRAY_OFFSET.toLong + at
        val bytes = size(page, start)
        targets(at >>> 3) = -1
        if ((stamp(page, start) & Free) == 0) {
          val length = Platform.getInt(page, start)
          val room = Platform.getInt(page, start + 8)
          val address = add(page, start + keyStart, length, hashOf(page, start + keyStart, length), room)
          Platform.copyMemory(page, start, pages(address >>> PageShift), offsetOf(address), bytes)
          targets(at >>> 3) = address
        }
        at += bytes
      }
      moved(number) = targets
      number += 1
    }
    address => if (address < 0) -1 else moved(address >>> PageShift)(address & UnitMask)
  }

  def size(page: Array[Byte], start: Long): Int =
    keyStart + roundUp(Platform.getInt(page, start)) + Platform.getInt(page, start + 8)

  def valueStart(page: Array[Byte], start: Long): Long = start + keyStart + roundUp(Platform.getInt(page, start))
}

object PackedRows {
  final val HeaderBytes = 16
  final val Free = 8
  private final val PageShift = 13
  private final val UnitMask = (1 << PageShift) - 1
  private final val PageBytes = 8 << PageShift
  private final val FirstPageBytes = 1 << 10
  private final val Gone = Int.MinValue.toLong & 0xFFFFFFFFL

  def offsetOf(address: Int): Long = Platform.BYTE_ARRAY_OFFSET + ((address & UnitMask).toLong << 3)
  def stamp(page: Array[Byte], start: Long): Int = Platform.getInt(page, start + 12)
  def roundUp(bytes: Int): Int = (bytes + 7) & ~7
  private def spread(hash: Int): Int = { val h = hash * 0x9E3779B9; h ^ (h >>> 16) }

  /** As `UnsafeRow.hashCode` has it. */
  def hashOf(base: AnyRef, offset: Long, length: Int): Int =
    org.apache.spark.unsafe.hash.Murmur3_x86_32.hashUnsafeWords(base, offset, length, 42)
}

/** Pages that nobody changes any more. */
final class Frozen(pages: Array[Array[Byte]], used: Array[Int], keyStart: Int) {
  def cursor: Cursor = new Cursor

  final class Cursor {
    private var number = 0
    private var at = 0
    var page: Array[Byte] = _
    var start = 0L

    /** Moves to the next record that is neither given up nor dead. */
    def next(): Boolean = {
      var found = false
      while (!found && number < pages.length) {
        if (at >= used(number)) {
          number += 1
          at = 0
        } else {
          page = pages(number)
          start = Platform.BYTE_ARRAY_OFFSET.toLong + at
          at += keyStart + PackedRows.roundUp(Platform.getInt(page, start)) + Platform.getInt(page, start + 8)
          found = (PackedRows.stamp(page, start) & (PackedRows.Free | Entry.Dead)) == 0
        }
      }
      found
    }
  }
}
