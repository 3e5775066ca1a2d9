package tether.sql

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.TaskCompletionListener

/** One version of a store, as one task reads and changes it. */
final class BoundedStore(
    provider: BoundedStateStoreProvider,
    override val version: Long,
    private var readOnly: Boolean,
    var forceSnapshot: Boolean) extends StateStore {
  import BoundedStore._

  private val resident = provider.resident
  private val books = provider.books
  private val mark = books.mark
  private val journal = new Journal
  private val task = Option(TaskContext.get()).map(_.taskAttemptId())
  @volatile private var state: State = Updating
  private var validated = false

  private[sql] var metricsAtCommit: StateStoreMetrics = _
  private[sql] var checkpointInfo: StateStoreCheckpointInfo = _

  Option(TaskContext.get()).foreach { context =>
    context.addTaskCompletionListener(new TaskCompletionListener {
      override def onTaskCompletion(context: TaskContext): Unit = if (state == Updating) {
        if (readOnly) release() else abort()
      }
    })
  }

  override def id: StateStoreId = provider.stateStoreId
  override def toString: String = s"BoundedStore[$id, version $version]"

  private[sql] def isWriting: Boolean = state == Updating && !readOnly
  private[sql] def isMine: Boolean = task == Option(TaskContext.get()).map(_.taskAttemptId())

  private[sql] def upgrade(force: Boolean): BoundedStore = {
    readOnly = false
    forceSnapshot = force
    this
  }

  // ---- column families --------------------------------------------------------------------------

  override def createColFamilyIfAbsent(
      name: String, keySchema: StructType, valueSchema: StructType, encoder: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean, isInternal: Boolean): Unit = {
    if (state != Updating) throw TetherAccess.outOfOrder(s"Cannot create a column family: the store is $state")
    resident.register(FamilySpec(name, keySchema, valueSchema, encoder, useMultipleValuesPerKey))
  }

  override def registerColFamily(
      name: String, keySchema: StructType, valueSchema: StructType, encoder: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean, isInternal: Boolean): Unit =
    resident.register(FamilySpec(name, keySchema, valueSchema, encoder, useMultipleValuesPerKey))

  override def removeColFamilyIfExists(name: String): Boolean = {
    verifyUpdating("remove a column family")
    val there = resident.isRegistered(name)
    if (there) {
      val family = resident.get(name)
      family.pairs(every = false).foreach(pair => family.remove(pair.key, journal, books))
    }
    there
  }

  override def allColumnFamilyNames: Set[String] = resident.names

  // Most operators use one family for millions of calls, and always by the same name object.
  private var lastName: String = _
  private var lastFamily: Family = _

  private def family(operation: String, name: String): Family = {
    if (name ne lastName) {
      val found = resident.get(name)
      if (found == null || !resident.isRegistered(name)) throw TetherAccess.missingFamily(operation, name)
      lastFamily = found
      lastName = name
    }
    lastFamily
  }

  // ---- reading ----------------------------------------------------------------------------------

  override def get(key: UnsafeRow, name: String): UnsafeRow = {
    val value = family("get", name).get(key)
    if (!validated && value != null && !provider.usesFamilies) validate(key, value)
    value
  }

  override def keyExists(key: UnsafeRow, name: String): Boolean = family("keyExists", name).contains(key)

  override def multiGet(keys: Array[UnsafeRow], name: String): Iterator[UnsafeRow] = keys.iterator.map(get(_, name))

  override def valuesIterator(key: UnsafeRow, name: String): Iterator[UnsafeRow] =
    several("valuesIterator", name).values(key)

  override def iterator(name: String): StateStoreIterator[UnsafeRowPair] =
    reading(family("iterator", name).pairs(every = false))

  override def iteratorWithMultiValues(name: String): StateStoreIterator[UnsafeRowPair] =
    reading(several("iteratorWithMultiValues", name).pairs(every = true))

  override def prefixScan(prefix: UnsafeRow, name: String): StateStoreIterator[UnsafeRowPair] =
    reading(family("prefixScan", name).prefix(prefix, every = false))

  override def prefixScanWithMultiValues(prefix: UnsafeRow, name: String): StateStoreIterator[UnsafeRowPair] =
    reading(several("prefixScanWithMultiValues", name).prefix(prefix, every = true))

  override def rangeScan(
      start: Option[UnsafeRow], end: Option[UnsafeRow], name: String): StateStoreIterator[UnsafeRowPair] =
    reading(family("rangeScan", name).range(start, end, every = false))

  override def rangeScanWithMultiValues(
      start: Option[UnsafeRow], end: Option[UnsafeRow], name: String): StateStoreIterator[UnsafeRowPair] =
    reading(several("rangeScanWithMultiValues", name).range(start, end, every = true))

  private def reading(rows: Iterator[UnsafeRowPair]): StateStoreIterator[UnsafeRowPair] =
    new StateStoreIterator(rows, () => ())

  private def several(operation: String, name: String): Family = {
    val rows = family(operation, name)
    if (!rows.many) throw new IllegalArgumentException(
      s"$operation needs a column family with many values for a key, and $name has one.")
    rows
  }

  private def validate(key: UnsafeRow, value: UnsafeRow): Unit = {
    val spec = provider.defaultSpec
    StateStoreProvider.validateStateRowFormat(key, spec.keySchema, value, spec.valueSchema, id, provider.confs)
    validated = true
  }

  // ---- changing ---------------------------------------------------------------------------------

  override def put(key: UnsafeRow, value: UnsafeRow, name: String): Unit = {
    verifyUpdating("put")
    require(value != null, "Cannot put a null value")
    family("put", name).put(key, value, journal, books)
  }

  override def putList(key: UnsafeRow, values: Array[UnsafeRow], name: String): Unit = {
    verifyUpdating("put")
    several("putList", name).putMany(key, values, append = false, journal, books)
  }

  override def merge(key: UnsafeRow, value: UnsafeRow, name: String): Unit = {
    verifyUpdating("merge")
    require(value != null, "Cannot merge a null value")
    several("merge", name).putMany(key, Array(value), append = true, journal, books)
  }

  override def mergeList(key: UnsafeRow, values: Array[UnsafeRow], name: String): Unit = {
    verifyUpdating("merge")
    several("mergeList", name).putMany(key, values, append = true, journal, books)
  }

  override def remove(key: UnsafeRow, name: String): Unit = {
    verifyUpdating("remove")
    family("remove", name).remove(key, journal, books)
  }

  override def deleteRange(begin: UnsafeRow, end: UnsafeRow, name: String): Unit = {
    verifyUpdating("delete a range")
    val rows = family("deleteRange", name)
    rows.range(Some(begin), Some(end), every = false).foreach(pair => rows.remove(pair.key, journal, books))
  }

  private def verifyUpdating(operation: String): Unit =
    if (state != Updating || readOnly) {
      throw TetherAccess.outOfOrder(s"Cannot $operation: the store is ${if (readOnly) "read-only" else state.toString}")
    }

  // ---- the end of a batch -----------------------------------------------------------------------

  override def commit(): Long = {
    verifyUpdating("commit")
    val next = provider.commit(this, journal, mark)
    state = Committed
    provider.released(this)
    next
  }

  override def abort(): Unit = {
    if (state == Updating) {
      if (!readOnly) provider.aborted(journal, mark)
      state = Aborted
    }
    provider.released(this)
  }

  override def release(): Unit = if (state == Updating) {
    if (!readOnly) provider.aborted(journal, mark)
    state = Released
    provider.released(this)
  }

  override def hasCommitted: Boolean = state == Committed

  override def metrics: StateStoreMetrics =
    if (metricsAtCommit != null) metricsAtCommit
    else StateStoreMetrics(resident.liveKeys, resident.bytes, Map.empty, Map.empty)

  override def getStateStoreCheckpointInfo(): StateStoreCheckpointInfo = checkpointInfo
}

object BoundedStore {
  private sealed trait State
  private case object Updating extends State
  private case object Committed extends State
  private case object Aborted extends State
  private case object Released extends State
}
