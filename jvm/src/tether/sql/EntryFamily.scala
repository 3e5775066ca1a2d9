package tether.sql

import java.util.ArrayList

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.array.ByteArrayMethods

/** A family whose keys have an order, or many values: every row is an object of its own, see [[Entry]]. */
final class EntryFamily(spec: FamilySpec, table: Table, measure: Measure) extends Family(spec.name, spec.many) {
  private val keyFields = spec.keySchema.length
  private val valueFields = spec.valueSchema.length
  private val columns = measure.columns
  private val keyStart = Entry.keyStart(columns)

  private var live = 0L
  private var entryBytes = 0L
  private var dying = new ArrayList[AnyRef]()

  override def liveKeys: Long = live
  override def bytes: Long = entryBytes + table.bytes

  private def sorted: SortedTable = table match {
    case tree: SortedTable => tree
    case _ => throw unordered
  }

  // ---- reading ----------------------------------------------------------------------------------

  private def keyOf(entry: AnyRef): UnsafeRow = {
    val head = Entry.head(entry)
    Entry.row(head, keyStart, Entry.keyLength(head), keyFields)
  }

  /** The value, or the first of many. */
  private def valueOf(entry: AnyRef): UnsafeRow = entry match {
    case bytes: Array[Byte] =>
      val start = keyStart + Entry.keyLength(bytes)
      Entry.row(bytes, start, bytes.length - start, valueFields)
    case several: Many => valueRow(several.values.head)
  }

  private def valuesOf(entry: AnyRef): Iterator[UnsafeRow] = entry match {
    case several: Many => several.values.iterator.map(valueRow)
    case single => Iterator.single(valueOf(single))
  }

  private def valueRow(value: Array[Byte]): UnsafeRow = Entry.row(value, 0, value.length, valueFields)

  override def contains(key: UnsafeRow): Boolean = find(key) != null

  override def get(key: UnsafeRow): UnsafeRow = {
    val entry = find(key)
    if (entry == null) null else valueOf(entry)
  }

  override def values(key: UnsafeRow): Iterator[UnsafeRow] = {
    val entry = find(key)
    if (entry == null) Iterator.empty else valuesOf(entry)
  }

  override def pairs(every: Boolean): Iterator[UnsafeRowPair] = pairs(table.entries, every)
  override def prefix(key: UnsafeRow, every: Boolean): Iterator[UnsafeRowPair] = pairs(sorted.prefix(key), every)
  override def range(start: Option[UnsafeRow], end: Option[UnsafeRow], every: Boolean): Iterator[UnsafeRowPair] =
    pairs(sorted.range(start, end), every)

  private def pairs(entries: Iterator[AnyRef], every: Boolean): Iterator[UnsafeRowPair] = {
    val pair = new UnsafeRowPair()
    val alive = entries.filter(entry => !Entry.isDead(Entry.head(entry)))
    if (!every) alive.map(entry => pair.withRows(keyOf(entry), valueOf(entry)))
    else alive.flatMap { entry =>
      val key = keyOf(entry)
      valuesOf(entry).map(value => pair.withRows(key, value))
    }
  }

  /** The live entry of a key, or null. */
  private def find(key: UnsafeRow): AnyRef = {
    val entry = table.find(key, key.hashCode)
    if (entry == null || Entry.isDead(Entry.head(entry))) null else entry
  }

  /** What is now in the place of an entry that was there once; dead ones too. */
  private def current(entry: AnyRef): AnyRef = {
    val key = keyOf(entry)
    table.find(key, Entry.hash(Entry.head(entry)))
  }

  private def contribution(entry: AnyRef): Double = {
    val head = Entry.head(entry)
    if ((Entry.flags(head) & Entry.Closed) != 0) 0.0
    else if (columns == 0) { if (Entry.isDead(head) && !Entry.inBase(head)) 0.0 else 1.0 }
    else measure.contribution(head, Entry.ColumnsOffset, Entry.inBase(head), if (Entry.isDead(head)) null else valueOf(entry))
  }

  // ---- changing ---------------------------------------------------------------------------------

  /** Puts `after` where `before` is, and nothing else: no journal, no books. */
  def swap(before: AnyRef, after: AnyRef): Unit = {
    val any = Entry.head(if (after != null) after else before)
    table.set(Entry.row(any, keyStart, Entry.keyLength(any), keyFields), Entry.hash(any), after)
    if (before != null) {
      entryBytes -= Entry.bytes(before)
      if (!Entry.isDead(Entry.head(before))) live -= 1
    }
    if (after != null) {
      entryBytes += Entry.bytes(after)
      if (!Entry.isDead(Entry.head(after))) live += 1
    }
  }

  override def put(key: UnsafeRow, value: UnsafeRow, journal: Journal, books: Books): Unit = {
    val hash = key.hashCode
    val before = table.find(key, hash)
    if (many) {
      val bytes = EntryFamily.copied(value)
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
  override def putMany(
      key: UnsafeRow, values: Array[UnsafeRow], append: Boolean, journal: Journal, books: Books): Unit = {
    val hash = key.hashCode
    val before = table.find(key, hash)
    val added = values.iterator.map(EntryFamily.copied).toVector
    val addedBytes = added.iterator.map(Many.valueBytes).sum
    val newHead = head(key, hash, before, books)
    val after = before match {
      case several: Many if append => new Many(newHead, several.values ++ added, several.bytes + addedBytes)
      case _ => Many(newHead, added, addedBytes)
    }
    if (after.values.nonEmpty) write(before, after, journal, books)
    else if (before != null) remove(key, journal, books)
  }

  override def remove(key: UnsafeRow, journal: Journal, books: Books): Unit = {
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
    if (!again) books.of(this).entries.add(after)
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

  // ---- backing up and restoring -----------------------------------------------------------------

  override def recount(books: Books, total: Double): Double = {
    var exact = total
    val seen = new java.util.IdentityHashMap[AnyRef, AnyRef]()
    books.of(this).entries.forEach { touched =>
      val entry = current(touched)
      if (entry != null && Entry.generation(Entry.head(entry)) == books.generation && seen.put(entry, entry) == null) {
        exact = measure.divergence.combine(exact, contribution(entry))
      }
    }
    exact
  }

  /** Each touched row as it is now. */
  override def capture(books: Books, sink: BlockSink): Unit = books.of(this).entries.forEach { touched =>
    val now = current(touched)
    if (now != null && !Entry.isDead(Entry.head(now))) {
      write(now, sink)
    } else {
      val head = Entry.head(touched)
      sink.removed(head, Platform.BYTE_ARRAY_OFFSET + keyStart, Entry.keyLength(head))
      if (now != null) dying.add(now)
    }
  }

  private def write(entry: AnyRef, sink: BlockSink): Unit = {
    val head = Entry.head(entry)
    val key = Platform.BYTE_ARRAY_OFFSET.toLong + keyStart
    val length = Entry.keyLength(head)
    entry match {
      case several: Many => sink.several(head, key, length, several.values)
      case bytes: Array[Byte] => sink.one(bytes, key, length, key + length, bytes.length - keyStart - length)
    }
  }

  override def everything(): BlockSink => Unit = {
    val entries = table.entries
    sink => entries.foreach(entry => if (!Entry.isDead(Entry.head(entry))) write(entry, sink))
  }

  override def purge(): Unit = {
    dying.forEach(dead => if (current(dead) eq dead) swap(dead, null))
    dying.clear()
  }

  override def keepDying(): Unit = dying.clear()

  override def load(block: RowBlock): Unit = (0 until block.count).foreach { row =>
    val bytes = block.key(row)
    val key = Entry.row(bytes, 0, bytes.length, keyFields)
    val hash = key.hashCode
    val before = table.find(key, hash)
    def made(value: Array[Byte], from: Int, length: Int): Array[Byte] = Entry.make(columns, hash, 0, 0,
      bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length, value, Platform.BYTE_ARRAY_OFFSET + from, length)
    val after: AnyRef = block.kind match {
      case RowBlock.Removed => null
      case RowBlock.Several =>
        val values = block.values(row)
        Many(made(null, 0, 0), values, values.iterator.map(Many.valueBytes).sum)
      case _ =>
        val from = block.start(row) + bytes.length
        made(block.data, from, block.ends(row) - from)
    }
    if (before != null || after != null) swap(before, after)
  }

  override def discard(isUnwanted: UnsafeRow => Boolean): Unit =
    table.entries.foreach(entry => if (!Entry.isDead(Entry.head(entry)) && isUnwanted(keyOf(entry))) swap(entry, null))
}

object EntryFamily {
  /** The bytes of a row that its owner may use again; `getBytes` may give the owner's own array. */
  private def copied(row: UnsafeRow): Array[Byte] = {
    val bytes = new Array[Byte](row.getSizeInBytes)
    row.writeToMemory(bytes, Platform.BYTE_ARRAY_OFFSET)
    bytes
  }
}
