package tether.sql

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.array.ByteArrayMethods

/** One column family: its rows, and what changing them means for journal, books and sizes. */
final class Family(
    val name: String,
    keySchema: StructType,
    valueSchema: StructType,
    val table: Table,
    val measure: Measure,
    val many: Boolean) {

  private val keyFields = keySchema.length
  private val valueFields = valueSchema.length
  private val columns = measure.columns
  private val keyStart = Entry.keyStart(columns)

  /** Whether a row's time has passed; see [[EventTime]]. */
  var isClosed: UnsafeRow => Boolean = _ => false
  var liveKeys = 0L
  var entryBytes = 0L

  def sorted: SortedTable = table match {
    case tree: SortedTable => tree
    case _ => throw new IllegalArgumentException(
      s"Column family $name has no order. Why: its key encoder supports neither prefix nor range scans.")
  }

  // ---- reading ----------------------------------------------------------------------------------

  def keyOf(entry: AnyRef): UnsafeRow = {
    val head = Entry.head(entry)
    Entry.row(head, keyStart, Entry.keyLength(head), keyFields)
  }

  /** The value, or the first of many. */
  def valueOf(entry: AnyRef): UnsafeRow = entry match {
    case bytes: Array[Byte] =>
      val start = keyStart + Entry.keyLength(bytes)
      Entry.row(bytes, start, bytes.length - start, valueFields)
    case several: Many => valueRow(several.values.head)
  }

  def valuesOf(entry: AnyRef): Iterator[UnsafeRow] = entry match {
    case several: Many => several.values.iterator.map(valueRow)
    case single => Iterator.single(valueOf(single))
  }

  private def valueRow(value: Array[Byte]): UnsafeRow = Entry.row(value, 0, value.length, valueFields)

  /** The live entry of a key, or null. */
  def find(key: UnsafeRow): AnyRef = {
    val entry = table.find(key, key.hashCode)
    if (entry == null || Entry.isDead(Entry.head(entry))) null else entry
  }

  def live: Iterator[AnyRef] = Family.alive(table.entries)

  /** What is now in the place of an entry that was there once; dead ones too. */
  def current(entry: AnyRef): AnyRef = {
    val key = keyOf(entry)
    table.find(key, Entry.hash(Entry.head(entry)))
  }

  def contribution(entry: AnyRef): Double = {
    val head = Entry.head(entry)
    if ((Entry.flags(head) & Entry.Closed) != 0) 0.0
    else if (Entry.isDead(head)) measure.contribution(head, null)
    else if (columns == 0) 1.0
    else measure.contribution(head, valueOf(entry))
  }

  // ---- changing ---------------------------------------------------------------------------------

  /** Puts `after` where `before` is, and nothing else: no journal, no books. */
  def swap(before: AnyRef, after: AnyRef): Unit = {
    val any = Entry.head(if (after != null) after else before)
    table.set(Entry.row(any, keyStart, Entry.keyLength(any), keyFields), Entry.hash(any), after)
    if (before != null) {
      entryBytes -= Entry.bytes(before)
      if (!Entry.isDead(Entry.head(before))) liveKeys -= 1
    }
    if (after != null) {
      entryBytes += Entry.bytes(after)
      if (!Entry.isDead(Entry.head(after))) liveKeys += 1
    }
  }

  def put(key: UnsafeRow, value: UnsafeRow, journal: Journal, books: Books): Unit = {
    val hash = key.hashCode
    val before = table.find(key, hash)
    if (many) {
      val bytes = Family.copied(value)
      write(before, Many(head(key, hash, before, books), Vector(bytes), Many.valueBytes(bytes)), journal, books)
    } else if (!same(before, value)) {
      val entry = Entry.make(columns, hash, books.generation, flags(before, books),
        key.getBaseObject, key.getBaseOffset, key.getSizeInBytes,
        value.getBaseObject, value.getBaseOffset, value.getSizeInBytes)
      rememberColumns(before, entry, books)
      write(before, entry, journal, books)
    }
  }

  /** A value that is there already changes nothing, so it must not be counted as a change. */
  private def same(before: AnyRef, value: UnsafeRow): Boolean = before match {
    case bytes: Array[Byte] if !Entry.isDead(bytes) =>
      val start = keyStart + Entry.keyLength(bytes)
      bytes.length - start == value.getSizeInBytes && ByteArrayMethods.arrayEquals(
        bytes, Platform.BYTE_ARRAY_OFFSET + start, value.getBaseObject, value.getBaseOffset, value.getSizeInBytes)
    case _ => false
  }

  /** Puts a list of values, or appends it to the one that is there. */
  def putMany(
      key: UnsafeRow, values: Array[UnsafeRow], append: Boolean, journal: Journal, books: Books): Unit = {
    val hash = key.hashCode
    val before = table.find(key, hash)
    val added = values.iterator.map(Family.copied).toVector
    val addedBytes = added.iterator.map(Many.valueBytes).sum
    val newHead = head(key, hash, before, books)
    val after = before match {
      case several: Many if append => new Many(newHead, several.values ++ added, several.bytes + addedBytes)
      case _ => Many(newHead, added, addedBytes)
    }
    if (after.values.nonEmpty) write(before, after, journal, books)
    else if (before != null) remove(key, journal, books)
  }

  def remove(key: UnsafeRow, journal: Journal, books: Books): Unit = {
    val hash = key.hashCode
    val before = table.find(key, hash)
    if (before != null && !Entry.isDead(Entry.head(before))) {
      val wanted = flags(before, books)
      if ((wanted & Entry.InBase) != 0) {
        val closed = if (isClosed(key)) Entry.Closed else 0
        val dead = Entry.make(columns, hash, books.generation, wanted | Entry.Dead | closed,
          key.getBaseObject, key.getBaseOffset, key.getSizeInBytes, null, 0L, 0)
        rememberColumns(before, dead, books)
        write(before, dead, journal, books)
      } else {
        // Born and gone between two backups: no backup needs to know.
        journal.add(this, before, null)
        books.account(contribution(before), 0.0)
        swap(before, null)
      }
    }
  }

  private def write(before: AnyRef, after: AnyRef, journal: Journal, books: Books): Unit = {
    val again = before != null && Entry.generation(Entry.head(before)) == books.generation
    books.account(if (again) contribution(before) else 0.0, contribution(after))
    if (!again) books.touch(this, after)
    journal.add(this, before, after)
    swap(before, after)
  }

  private def head(key: UnsafeRow, hash: Int, before: AnyRef, books: Books): Array[Byte] = {
    val made = Entry.make(columns, hash, books.generation, flags(before, books),
      key.getBaseObject, key.getBaseOffset, key.getSizeInBytes, null, 0L, 0)
    rememberColumns(before, made, books)
    made
  }

  private def flags(before: AnyRef, books: Books): Int =
    if (before == null) 0 else {
      val head = Entry.head(before)
      if (Entry.generation(head) == books.generation) Entry.flags(head) & Entry.InBase
      else if (Entry.isDead(head)) 0 else Entry.InBase
    }

  private def rememberColumns(before: AnyRef, made: Array[Byte], books: Books): Unit =
    if (columns > 0 && before != null) {
      val head = Entry.head(before)
      val again = Entry.generation(head) == books.generation
      if (again || !Entry.isDead(head)) {
        val row = if (again) null else valueOf(before)
        var index = 0
        while (index < columns) {
          Entry.setBaseColumn(
            made, index, if (again) Entry.baseColumn(head, index) else measure.read(row, index))
          index += 1
        }
      }
    }

  /** All rows, as a backup would give them back. */
  def records: Iterator[Record] = live.map { entry =>
    val values = entry match {
      case several: Many => several.values
      case single => Vector(valueOf(single).getBytes)
    }
    new Record(name, keyOf(entry).getBytes, values, entry.isInstanceOf[Many])
  }

  // ---- restoring --------------------------------------------------------------------------------

  /** A row as read from a backup; `values` null: the backup says that it is gone. */
  def load(record: Record): Unit = {
    val key = Entry.row(record.key, 0, record.key.length, keyFields)
    val hash = key.hashCode
    val before = table.find(key, hash)
    val after: AnyRef = record.values match {
      case null => null
      case values if record.many =>
        val head = Entry.make(columns, hash, 0, 0,
          record.key, Platform.BYTE_ARRAY_OFFSET, record.key.length, null, 0L, 0)
        Many(head, values, values.iterator.map(Many.valueBytes).sum)
      case values =>
        val value = values.head
        Entry.make(columns, hash, 0, 0, record.key, Platform.BYTE_ARRAY_OFFSET, record.key.length,
          value, Platform.BYTE_ARRAY_OFFSET, value.length)
    }
    if (before != null || after != null) swap(before, after)
  }
}

object Family {
  /** The bytes of a row that its owner may use again; `getBytes` may give the owner's own array. */
  private def copied(row: UnsafeRow): Array[Byte] = {
    val bytes = new Array[Byte](row.getSizeInBytes)
    row.writeToMemory(bytes, Platform.BYTE_ARRAY_OFFSET)
    bytes
  }

  def alive(entries: Iterator[AnyRef]): Iterator[AnyRef] =
    entries.filter(entry => !Entry.isDead(Entry.head(entry)))
}

/** One row of a backup file: of which family, its key, its values (null: removed). */
final class Record(val family: String, val key: Array[Byte], val values: Vector[Array[Byte]], val many: Boolean)
