package tether.sql

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.array.ByteArrayMethods

/** A family whose keys have one value and no order: most of all state. Its rows are packed, see [[PackedRows]]. */
final class PackedFamily(spec: FamilySpec, val measure: Measure) extends Family(spec.name, many = false) {
  import Entry.{Closed, Dead, InBase}
  import PackedRows.{offsetOf, stamp}

  private val keyFields = spec.keySchema.length
  private val valueFields = spec.valueSchema.length
  private val columns = measure.columns
  private val rows = new PackedRows(columns)
  private val keyStart = rows.keyStart
  private val view = new UnsafeRow(valueFields) // for looking at values in place, never given away
  private var live = 0L
  private var dying = new Addresses

  override def liveKeys: Long = live
  override def bytes: Long = rows.bytes

  // ---- reading ----------------------------------------------------------------------------------

  private def find(key: UnsafeRow): Int =
    rows.find(key.getBaseObject, key.getBaseOffset, key.getSizeInBytes, key.hashCode)

  private def isDead(address: Int): Boolean = (stamp(rows.page(address), offsetOf(address)) & Dead) != 0

  override def contains(key: UnsafeRow): Boolean = {
    val address = find(key)
    address >= 0 && !isDead(address)
  }

  /** A copy: the caller may keep it, and the row may change meanwhile. */
  override def get(key: UnsafeRow): UnsafeRow = {
    val address = find(key)
    if (address < 0 || isDead(address)) null else {
      val page = rows.page(address)
      val start = offsetOf(address)
      val length = Platform.getInt(page, start + 4)
      val copy = new Array[Byte](length)
      Platform.copyMemory(page, rows.valueStart(page, start), copy, Platform.BYTE_ARRAY_OFFSET, length)
      Entry.row(copy, 0, length, valueFields)
    }
  }

  override def values(key: UnsafeRow): Iterator[UnsafeRow] = Option(get(key)).iterator

  override def pairs(every: Boolean): Iterator[UnsafeRowPair] = {
    val cursor = rows.freeze().cursor
    val pair = new UnsafeRowPair()
    Iterator.continually(cursor.next()).takeWhile(identity).map { _ =>
      val (page, start) = (cursor.page, cursor.start)
      val key = new UnsafeRow(keyFields)
      key.pointTo(page, start + keyStart, Platform.getInt(page, start))
      val value = new UnsafeRow(valueFields)
      value.pointTo(page, rows.valueStart(page, start), Platform.getInt(page, start + 4))
      pair.withRows(key, value)
    }
  }

  // ---- changing ---------------------------------------------------------------------------------

  override def put(key: UnsafeRow, value: UnsafeRow, journal: Journal, books: Books): Unit = {
    val hash = key.hashCode
    val address = rows.find(key.getBaseObject, key.getBaseOffset, key.getSizeInBytes, hash)
    if (address < 0) {
      val made = rows.add(key.getBaseObject, key.getBaseOffset, key.getSizeInBytes, hash, value.getSizeInBytes)
      val page = rows.page(made)
      val start = offsetOf(made)
      writeValue(page, start, value)
      Platform.putInt(page, start + 12, books.generation << Family.FlagBits)
      journal.of(this).add(page, start, rows.size(page, start), wasThere = false)
      books.of(this).addresses.add(made)
      if (columns == 0) books.account(0.0, 1.0)
      else books.account(0.0, measure.contribution(page, start + PackedRows.HeaderBytes, inBase = false, value))
      live += 1
    } else {
      val page = rows.page(address)
      if (!sameValue(page, offsetOf(address), value)) change(address, value, journal, books)
    }
  }

  /** A value that is there already changes nothing, so it must not be counted as a change. */
  private def sameValue(page: Array[Byte], start: Long, value: UnsafeRow): Boolean =
    (stamp(page, start) & Dead) == 0 && Platform.getInt(page, start + 4) == value.getSizeInBytes &&
      ByteArrayMethods.arrayEquals(
        page, rows.valueStart(page, start), value.getBaseObject, value.getBaseOffset, value.getSizeInBytes)

  /** @param value null: the key is removed, and its record stands for that until the removal is durable */
  private def change(address: Int, value: UnsafeRow, journal: Journal, books: Books, closed: Int = 0): Unit = {
    val page = rows.own(address)
    val start = offsetOf(address)
    journal.of(this).add(page, start, rows.size(page, start), wasThere = true)
    val before = stamp(page, start)
    val wasDead = (before & Dead) != 0
    val again = before >>> Family.FlagBits == books.generation
    val inBase = if (again) before & InBase else if (wasDead) 0 else InBase
    val contributed = if (again) contribution(page, start) else 0.0
    if (columns > 0 && !again) rememberColumns(page, start, wasDead)
    val after = books.generation << Family.FlagBits | inBase | (if (value == null) Dead | closed else 0)
    var place = address
    if (value == null || value.getSizeInBytes <= Platform.getInt(page, start + 8)) {
      Platform.putInt(page, start + 12, after)
      if (value != null) writeValue(page, start, value)
    } else {
      place = move(address, value, after)
    }
    if (!again || place != address) books.of(this).addresses.add(place)
    books.account(contributed, contribution(rows.page(place), offsetOf(place)))
    live += (if (value == null) 0 else 1) - (if (wasDead) 0 else 1)
  }

  /** To a record with room for a longer value, and some more where values grow. */
  private def move(address: Int, value: UnsafeRow, after: Int): Int = {
    val page = rows.page(address)
    val start = offsetOf(address)
    val length = Platform.getInt(page, start)
    val hash = PackedRows.hashOf(page, start + keyStart, length)
    rows.drop(address)
    val made = rows.add(page, start + keyStart, length, hash, value.getSizeInBytes * 5 / 4)
    val (target, to) = (rows.page(made), offsetOf(made))
    Platform.copyMemory(page, start + 16, target, to + 16, 8L * columns)
    Platform.putInt(target, to + 12, after)
    writeValue(target, to, value)
    made
  }

  private def writeValue(page: Array[Byte], start: Long, value: UnsafeRow): Unit = {
    Platform.putInt(page, start + 4, value.getSizeInBytes)
    Platform.copyMemory(
      value.getBaseObject, value.getBaseOffset, page, rows.valueStart(page, start), value.getSizeInBytes)
  }

  override def remove(key: UnsafeRow, journal: Journal, books: Books): Unit = {
    val address = find(key)
    if (address >= 0 && !isDead(address)) {
      val page = rows.page(address)
      val start = offsetOf(address)
      val before = stamp(page, start)
      val again = before >>> Family.FlagBits == books.generation
      if (!again || (before & InBase) != 0) {
        change(address, null, journal, books, if (isClosed(key)) Closed else 0)
      } else {
        // Born and gone between two backups: no backup needs to know.
        journal.of(this).add(page, start, rows.size(page, start), wasThere = true)
        books.account(contribution(page, start), 0.0)
        rows.drop(address)
        live -= 1
      }
    }
  }

  // ---- divergence -------------------------------------------------------------------------------

  /** What a record of the current generation adds to the divergence. */
  private def contribution(page: Array[Byte], start: Long): Double = {
    val flags = stamp(page, start)
    if ((flags & Closed) != 0) 0.0
    else if (columns == 0) { if ((flags & Dead) != 0 && (flags & InBase) == 0) 0.0 else 1.0 }
    else measure.contribution(
      page, start + PackedRows.HeaderBytes, (flags & InBase) != 0, if ((flags & Dead) != 0) null else look(page, start))
  }

  private def look(page: Array[Byte], start: Long): UnsafeRow = {
    view.pointTo(page, rows.valueStart(page, start), Platform.getInt(page, start + 4))
    view
  }

  /** Notes what the measured columns are in the last backup, at the first change after it. */
  private def rememberColumns(page: Array[Byte], start: Long, wasDead: Boolean): Unit = {
    val row = if (wasDead) null else look(page, start)
    var index = 0
    while (index < columns) {
      val value = if (row == null) 0.0 else measure.read(row, index)
      Platform.putDouble(page, start + PackedRows.HeaderBytes + 8L * index, value)
      index += 1
    }
  }

  /** Calls `visit` once for each record that differs from the last backup, in the order of memory. */
  private def eachDirty(books: Books)(visit: PackedFamily.Visit): Unit = {
    val touched = books.of(this).addresses.sorted
    var at = 0
    while (at < touched.length) {
      val address = touched(at)
      // A record is there twice after it was put back; -1 stands for one that is no more.
      if (address >= 0 && (at == 0 || address != touched(at - 1))) {
        val page = rows.page(address)
        val flags = stamp(page, offsetOf(address))
        if ((flags & PackedRows.Free) == 0 && flags >>> Family.FlagBits == books.generation) {
          visit(address, page, offsetOf(address))
        }
      }
      at += 1
    }
  }

  override def recount(books: Books, total: Double): Double = {
    var exact = total
    eachDirty(books)((_, page, start) => exact = measure.divergence.combine(exact, contribution(page, start)))
    exact
  }

  // ---- backing up, taking back ------------------------------------------------------------------

  override def capture(books: Books, sink: BlockSink): Unit = eachDirty(books) { (address, page, start) =>
    val length = Platform.getInt(page, start)
    if ((stamp(page, start) & Dead) != 0) {
      sink.removed(page, start + keyStart, length)
      dying.add(address)
    } else {
      sink.one(page, start + keyStart, length, rows.valueStart(page, start), Platform.getInt(page, start + 4))
    }
  }

  override def everything(): BlockSink => Unit = {
    val cursor = rows.freeze().cursor
    sink => while (cursor.next()) {
      val (page, start) = (cursor.page, cursor.start)
      sink.one(page, start + keyStart, Platform.getInt(page, start), rows.valueStart(page, start),
        Platform.getInt(page, start + 4))
    }
  }

  override def purge(): Unit = {
    var at = 0
    while (at < dying.size) {
      val address = dying(at)
      if ((stamp(rows.page(address), offsetOf(address)) & (Dead | PackedRows.Free)) == Dead) rows.drop(address)
      at += 1
    }
    dying = new Addresses
  }

  override def keepDying(): Unit = dying = new Addresses

  override def tidy(books: Books): Unit = if (rows.isWasteful) books.of(this).addresses.replace(rows.pack())

  /** Puts back what a record was before a batch that is undone; latest change first. */
  def putBack(page: Array[Byte], start: Long, wasThere: Boolean, books: Books): Unit = {
    val length = Platform.getInt(page, start)
    val hash = PackedRows.hashOf(page, start + keyStart, length)
    var address = rows.find(page, start + keyStart, length, hash)
    if (address >= 0 && !isDead(address)) live -= 1
    val valueBytes = Platform.getInt(page, start + 4)
    if (address >= 0 && !(wasThere && Platform.getInt(rows.page(address), offsetOf(address) + 8) >= valueBytes)) {
      rows.drop(address)
      address = -1
    }
    if (wasThere) {
      if (address < 0) address = rows.add(page, start + keyStart, length, hash, Platform.getInt(page, start + 8))
      val target = rows.own(address)
      val to = offsetOf(address)
      val before = stamp(page, start)
      Platform.putInt(target, to + 4, valueBytes)
      Platform.putInt(target, to + 12, before)
      Platform.copyMemory(page, start + 16, target, to + 16, 8L * columns)
      Platform.copyMemory(page, rows.valueStart(page, start), target, rows.valueStart(target, to), valueBytes)
      if ((before & Dead) == 0) live += 1
      if (before >>> Family.FlagBits == books.generation) books.of(this).addresses.add(address)
    }
  }

  override def load(block: RowBlock): Unit = {
    require(block.kind != RowBlock.Several, s"Rows of $name have several values in the backup, and one in the query.")
    val base = Platform.BYTE_ARRAY_OFFSET.toLong
    var row = 0
    while (row < block.count) {
      val start = base + block.start(row)
      val keyBytes = block.keys(row)
      val valueBytes = block.ends(row) - block.start(row) - keyBytes
      val hash = PackedRows.hashOf(block.data, start, keyBytes)
      var address = rows.find(block.data, start, keyBytes, hash)
      if (block.kind == RowBlock.Removed) {
        if (address >= 0) {
          rows.drop(address)
          live -= 1
        }
      } else {
        if (address >= 0 && Platform.getInt(rows.page(address), offsetOf(address) + 8) < valueBytes) {
          rows.drop(address)
          live -= 1
          address = -1
        }
        if (address < 0) {
          address = rows.add(block.data, start, keyBytes, hash, valueBytes)
          live += 1
        }
        val page = rows.own(address)
        Platform.putInt(page, offsetOf(address) + 4, valueBytes)
        Platform.putInt(page, offsetOf(address) + 12, 0)
        Platform.copyMemory(
          block.data, start + keyBytes, page, rows.valueStart(page, offsetOf(address)), valueBytes)
      }
      row += 1
    }
  }

  override def discard(isUnwanted: UnsafeRow => Boolean): Unit = {
    val cursor = rows.freeze().cursor
    val key = new UnsafeRow(keyFields)
    while (cursor.next()) {
      val length = Platform.getInt(cursor.page, cursor.start)
      key.pointTo(cursor.page, cursor.start + keyStart, length)
      if (isUnwanted(key)) {
        rows.drop(find(key))
        live -= 1
      }
    }
  }
}

object PackedFamily {
  /** Not a Scala function: those would wrap every number that they are given. */
  private trait Visit {
    def apply(address: Int, page: Array[Byte], start: Long): Unit
  }
}
