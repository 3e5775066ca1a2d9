package tether.sql

import java.util.{ArrayList, Arrays, IdentityHashMap}

import scala.jdk.CollectionConverters._

import org.apache.spark.unsafe.Platform

/** A growing list of addresses of records. */
final class Addresses {
  private var items = new Array[Int](16)
  private var count = 0

  def size: Int = count
  def apply(at: Int): Int = items(at)

  def add(address: Int): Unit = {
    if (count == items.length) items = Arrays.copyOf(items, 2 * count)
    items(count) = address
    count += 1
  }

  def sorted: Array[Int] = {
    val copy = Arrays.copyOf(items, count)
    Arrays.sort(copy)
    copy
  }

  def replace(moved: Int => Int): Unit = (0 until count).foreach(at => items(at) = moved(items(at)))
}

/** What the batch in progress has replaced, in order, so that it can be taken back. */
final class Journal {
  private val steps = new ArrayList[AnyRef]()
  private val logs = new IdentityHashMap[PackedFamily, UndoLog]()
  private var lastFamily: PackedFamily = _
  private var lastLog: UndoLog = _

  def add(family: EntryFamily, before: AnyRef, after: AnyRef): Unit = {
    steps.add(family)
    steps.add(before)
    steps.add(after)
  }

  def of(family: PackedFamily): UndoLog = {
    if (family ne lastFamily) {
      lastLog = logs.computeIfAbsent(family, _ => new UndoLog)
      lastFamily = family
    }
    lastLog
  }

  /** @param books of the version that is gone back to */
  def undo(books: Books): Unit = {
    var at = steps.size - 3
    while (at >= 0) {
      steps.get(at).asInstanceOf[EntryFamily].swap(steps.get(at + 2), steps.get(at + 1))
      at -= 3
    }
    logs.forEach((family, log) => log.undo(family, books))
  }
}

/** Copies of packed records as they were before each change. */
final class UndoLog {
  private val chunks = new ArrayList[Array[Byte]]()
  private var used = 0
  private var places = new Array[Long](64) // number of the chunk, where in it, and whether the record was there
  private var count = 0

  def add(page: Array[Byte], start: Long, bytes: Int, wasThere: Boolean): Unit = {
    if (chunks.isEmpty || used + bytes > chunks.get(chunks.size - 1).length) {
      // The first is small, for batches that change a handful of rows.
      chunks.add(new Array[Byte](math.max(bytes, if (chunks.isEmpty) 1 << 12 else 1 << 18)))
      used = 0
    }
    Platform.copyMemory(page, start, chunks.get(chunks.size - 1), Platform.BYTE_ARRAY_OFFSET + used, bytes)
    if (count == places.length) places = Arrays.copyOf(places, 2 * count)
    places(count) = (chunks.size - 1L) << 33 | used.toLong << 1 | (if (wasThere) 1L else 0L)
    count += 1
    used += bytes
  }

  def undo(family: PackedFamily, books: Books): Unit = {
    var at = count - 1
    while (at >= 0) {
      val place = places(at)
      family.putBack(chunks.get((place >>> 33).toInt),
        Platform.BYTE_ARRAY_OFFSET + ((place >>> 1) & 0xFFFFFFFFL), (place & 1L) != 0L, books)
      at -= 1
    }
  }
}

/** Rows of one family at their first change after a backup; some may have been changed back or away since. */
final class Touched {
  val entries = new ArrayList[AnyRef]()
  val addresses = new Addresses
  def isEmpty: Boolean = entries.isEmpty && addresses.size == 0
}

/**
 * Which rows differ from the last backup, and by how much in total.
 *
 * @param generation number that rows written from now on carry; each started backup begins a new one
 */
final class Books(val divergence: Divergence, val generation: Int) {
  private val parts = new IdentityHashMap[Family, Touched]()
  private var lastFamily: Family = _
  private var lastPart: Touched = _
  /** Running total of [[Divergence]], incremental. */
  var total = 0.0
  /** First version whose changes are in these books; 0: there are none. */
  var since = 0L

  def of(family: Family): Touched = {
    if (family ne lastFamily) {
      lastPart = parts.computeIfAbsent(family, _ => new Touched)
      lastFamily = family
    }
    lastPart
  }

  def isEmpty: Boolean = parts.values.asScala.forall(_.isEmpty)

  /** A row's part in the total went from `before` to `after`. */
  def account(before: Double, after: Double): Unit =
    total =
      if (divergence == Divergence.Max || after.isInfinite) divergence.combine(total, after)
      else total + (after - before)

  /** Sum up anew from the rows: what was added and taken away a million times has drifted. */
  def recount(): Double = {
    total = parts.keySet.asScala.foldLeft(0.0)((sum, family) => family.recount(this, sum))
    value
  }

  def value: Double = divergence.value(total)

  def mark: Books.Mark =
    new Books.Mark(this, total, since, parts.asScala.map { case (family, part) => (family, part.entries.size) }.toMap)
}

object Books {
  /** A place in the books to come back to. */
  final class Mark(val books: Books, total: Double, since: Long, sizes: Map[Family, Int]) {
    def value: Double = books.divergence.value(total)

    def restore(): Books = {
      books.parts.forEach { (family, part) =>
        val size = sizes.getOrElse(family, 0)
        part.entries.subList(math.min(size, part.entries.size), part.entries.size).clear()
      }
      books.total = total
      books.since = since
      books
    }
  }
}
