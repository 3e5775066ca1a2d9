package tether.sql

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/**
 * A state store that keeps a partition's state in memory and makes it durable when it matters.
 *
 * Guarantee: at every committed version, `divergence(resident, durable) <= θ`. A restore of version v
 * gives the newest readable backup at or below v; what that can have lost is in log and metrics.
 */
class BoundedStateStoreProvider extends StateStoreProvider with ChangeFeed with Logging {
  TetherAccess.checkSpark()

  private var storeId: StateStoreId = _
  private[sql] var confs: StateStoreConf = _
  private[sql] var hadoop: Configuration = _
  private[sql] var settings: Settings = _
  private[sql] var defaultSpec: FamilySpec = _
  private[sql] var usesFamilies = false

  private[sql] var directory: BackupDirectory = _
  private var backups: Backups = _
  private[sql] var resident: Resident = _
  private var group: Option[Group] = None
  private var eventTime: Option[EventTime] = None

  // What is in memory: rows of `version`, reached as `checkpointId`, and how they relate to backups.
  private var version = -1L
  private var checkpointId = ""
  private[sql] var books: Books = _
  private var ledger = Ledger("", None)
  private var attempt = 0L
  private var undo: Undo = _

  /** Whether this store has committed anything since it was opened or restored: else it has nothing to keep. */
  private var hasCommitted = false

  private var terms: Option[Terms] = None
  private var newLoss: Option[Loss] = None
  private var restores = 0L
  private var versionsLost = 0L
  private var waitedMs = 0L
  private var open: BoundedStore = _

  override def init(
      id: StateStoreId, keySchema: StructType, valueSchema: StructType, encoder: KeyStateEncoderSpec,
      useColumnFamilies: Boolean, storeConfs: StateStoreConf, hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean, schemas: Option[StateSchemaProvider]): Unit = {
    storeId = id
    confs = storeConfs
    hadoop = hadoopConf
    usesFamilies = useColumnFamilies
    settings = Settings.of(id, storeConfs, hadoopConf)
    defaultSpec = FamilySpec(
      StateStore.DEFAULT_COL_FAMILY_NAME, keySchema, valueSchema, encoder, useMultipleValuesPerKey)
    Resident.checkColumns(settings, id, useColumnFamilies, valueSchema)
    resident = new Resident(settings, evolving = storeConfs.stateStoreEncodingFormat == "avro")
    resident.register(defaultSpec)
    eventTime = if (useColumnFamilies) None else EventTime.in(defaultSpec)
    directory = new BackupDirectory(id.storeCheckpointLocation(), hadoopConf)
    backups = new Backups(directory, s"${id.operatorId}/${id.partitionId}/${id.storeName}", storeConfs.compressionCodec)
    if (id.storeName != StateStoreId.DEFAULT_STORE_NAME) {
      group = Some(Group.of(TetherAccess.runId(hadoopConf), id))
      group.foreach(_.join(this))
    }
  }

  override def stateStoreId: StateStoreId = storeId
  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] = Metrics.all

  // ---- opening a version ------------------------------------------------------------------------

  override def getStore(
      wanted: Long, id: Option[String], forceSnapshotOnCommit: Boolean, loadEmpty: Boolean): StateStore =
    openStore(wanted, id, readOnly = false, forceSnapshotOnCommit, loadEmpty)

  override def getReadStore(wanted: Long, id: Option[String]): ReadStateStore =
    openStore(wanted, id, readOnly = true, forceSnapshot = false, loadEmpty = false)

  /** The reader of a task becomes its writer: both see the same rows. */
  override def upgradeReadStoreToWriteStore(
      reader: ReadStateStore, wanted: Long, id: Option[String], forceSnapshotOnCommit: Boolean): StateStore =
    synchronized {
      reader match {
        case store: BoundedStore if store eq open => store.upgrade(forceSnapshotOnCommit)
        case _ => openStore(wanted, id, readOnly = false, forceSnapshotOnCommit, loadEmpty = false)
      }
    }

  private def openStore(
      wanted: Long, id: Option[String], readOnly: Boolean, forceSnapshot: Boolean, loadEmpty: Boolean): BoundedStore =
    synchronized {
      if (wanted < 0) throw new IllegalArgumentException(s"State version $wanted does not exist.")
      awaitTurn()
      if (loadEmpty) startEmpty(wanted) else seek(wanted, id.getOrElse(""))
      open = new BoundedStore(this, wanted, readOnly, forceSnapshot)
      eventTime.foreach { time =>
        lazy val watermark = CheckpointLogs.watermark(storeId, wanted, hadoop)
        resident.get(defaultSpec.name).isClosed = key => time.of(key) <= watermark
      }
      open
    }

  /** Spark may start a task's next attempt, or end a query, while a task is still being stopped. */
  private def awaitTurn(millis: Long = BoundedStateStoreProvider.LongestTurnMillis): Unit = {
    val until = System.nanoTime() + millis * 1000 * 1000
    while (open != null && open.isWriting && !open.isMine && System.nanoTime() < until) wait(100L)
    if (open != null && open.isWriting && open.isMine) {
      open.abort()
    } else if (open != null && open.isWriting) {
      throw new IllegalStateException(s"$storeId is still in use by another task. Why: Spark has not ended it yet.")
    }
  }

  private[sql] def released(store: BoundedStore): Unit = synchronized { notifyAll() }

  private def seek(wanted: Long, id: String): Unit = {
    def fits(inMemory: String): Boolean = id.isEmpty || inMemory.isEmpty || id == inMemory
    if (wanted == version && fits(checkpointId)) return
    if (undo != null && wanted == undo.version && fits(undo.checkpointId)) takeBack() else restore(wanted, id)
  }

  /** Back to the version before the last commit. */
  private def takeBack(): Unit = {
    undo.journal.undo(undo.mark.books)
    books = undo.mark.restore()
    ledger = undo.ledger
    version = undo.version
    checkpointId = undo.checkpointId
    undo = null
    resident.all.foreach(_.keepDying())
    attempt += 1
    logInfo(s"Tether: $storeId took version ${version + 1} back")
  }

  private def startEmpty(at: Long): Unit = {
    resident.clear()
    reset(at, "", "")
  }

  private def reset(at: Long, id: String, durable: String): Unit = {
    version = at
    checkpointId = id
    books = new Books(settings.divergence, 1)
    ledger = Ledger(durable, None)
    undo = null
    newLoss = None
    hasCommitted = false
  }

  private def restore(wanted: Long, id: String): Unit = {
    // What this store itself still writes may be what it is about to look for.
    try ledger = backups.settle(ledger, wait = true) catch {
      case NonFatal(error) => logWarning(s"Tether: $storeId: its last backup failed", error)
    }
    resident.clear()
    terms = Terms.newest(directory, report)
    attempt = math.max(attempt, directory.lastAttempt()) + 1
    if (wanted == 0L) {
      reset(0L, id, "")
      return
    }
    if (terms.isEmpty) throw new IllegalStateException(BoundedStateStoreProvider.foreignState(storeId, wanted))
    val began = System.nanoTime()
    val known = CheckpointId.parse(id)
    val found = restorer().find(wanted, known)
    found.steps.foreach(_.foreach(resident.load))
    if (found.version < wanted) dropClosed(wanted - 1)
    reset(wanted, id, found.tag)
    ledger = ledger.copy(chainBytes = found.deltaBytes, chainFiles = found.steps.size)
    backups.snapshotBytes = found.snapshotBytes
    restores += 1
    versionsLost += wanted - found.version
    val theta = terms.get.theta
    val atMost = known.map(_.divergence).fold(theta)(math.min(theta, _))
    val loss = Loss(wanted, found.version, if (found.version == wanted) 0.0 else atMost, found.extra)
    val ms = (System.nanoTime() - began) / 1000000
    if (loss.atMost + loss.extra > 0) {
      // The same loss seen again (the task was retried, say) is not another one.
      val again = terms.get.losses.lastOption.exists(l => l.wanted == wanted && l.got == found.version)
      newLoss = if (again) None else Some(loss)
      logWarning(s"Tether: $storeId wanted version $wanted and was restored from backup '${found.tag}' " +
        s"(version ${found.version}) in $ms ms: at most ${loss.atMost} lost" +
        (if (loss.extra > 0) s", and ${loss.extra} more because of unreadable backups" else "") +
        s"; ${terms.get.failures + newLoss.size} losses so far")
    } else {
      logInfo(s"Tether: $storeId was restored to version $wanted, exactly, from '${found.tag}' in $ms ms")
    }
  }

  private def report(text: String): Unit = logWarning(s"Tether: $storeId: $text")

  private def restorer(): Restorer = new Restorer(directory, hadoop, group.isDefined, report)

  /** Takes out what was closed, and given out, in batches that the backup does not know of. */
  private def dropClosed(batch: Long): Unit = eventTime.foreach { time =>
    val watermark = CheckpointLogs.watermark(storeId, batch, hadoop)
    resident.get(defaultSpec.name).discard(key => time.of(key) <= watermark)
  }

  // ---- reading version by version ---------------------------------------------------------------

  private def replay(): Replay = {
    terms = Terms.newest(directory, report)
    new Replay(restorer(), exact = terms.exists(_.theta == 0.0))
  }

  override def replayStateFromSnapshot(
      snapshotVersion: Long, endVersion: Long, readOnly: Boolean, snapshotId: Option[String],
      endId: Option[String]): StateStore = synchronized {
    awaitTurn()
    val steps = replay().state(
      snapshotVersion, snapshotId.flatMap(CheckpointId.parse), endVersion, endId.flatMap(CheckpointId.parse))
    resident.clear()
    steps.foreach(_.foreach(resident.load))
    reset(endVersion, endId.getOrElse(""), "")
    open = new BoundedStore(this, endVersion, readOnly = true, forceSnapshot = false)
    open
  }

  /** A list that has grown is given whole: its first value takes the place of what was there, the others are appended. */
  override protected def changes(
      first: Long, last: Long, family: String, id: Option[String]): Iterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] =
    resident.spec(family).iterator.flatMap { spec =>
      def row(bytes: Array[Byte], fields: Int): UnsafeRow = Entry.row(bytes, 0, bytes.length, fields)
      for {
        change <- replay().changes(first, last, id.flatMap(CheckpointId.parse)).iterator
        block <- change.blocks.iterator if block.family == family
        rows = resident.adapted(block)
        at <- (0 until rows.count).iterator
        key = row(rows.key(at), spec.keySchema.length)
        (kind, value) <- rows.kind match {
          case RowBlock.Removed => Iterator((RecordType.DELETE_RECORD, null))
          case RowBlock.One => Iterator((RecordType.PUT_RECORD, rows.value(at)))
          case _ => rows.values(at).iterator.zip(Iterator(RecordType.PUT_RECORD) ++ Iterator.continually(RecordType.MERGE_RECORD))
            .map(_.swap)
        }
      } yield (kind, key, if (value == null) null else row(value, spec.valueSchema.length), change.version - 1)
    }

  // ---- committing -------------------------------------------------------------------------------

  private[sql] def theta: Double = settings.theta(terms.map(_.failures).getOrElse(0))

  /** Divergence from what is durable, with all rows changed so far. */
  private[sql] def divergence: Double = books.value + ledger.behind

  /** The same, but exact where the running total says that θ might be passed. */
  private[sql] def checkedDivergence(limit: Double): Double = {
    val quick = divergence
    if (settings.divergence == Divergence.Count || quick * (1 + 1e-9) <= limit) quick
    else books.recount() + ledger.behind
  }

  private[sql] def commit(store: BoundedStore, journal: Journal, mark: Books.Mark): Long = synchronized {
    if (store ne open) throw new IllegalStateException(s"$store is no longer open. Why: the query has ended meanwhile.")
    val before = new Undo(version, checkpointId, journal, mark, ledger)
    val next = version + 1
    val unique = BackupFile.newId()
    val began = System.nanoTime()
    try {
      // What the batch before has replaced is not asked for any more.
      undo = null
      resident.all.foreach { family =>
        family.purge()
        family.tidy(books)
      }
      agreeOnTerms()
      ledger = backups.settle(ledger, wait = false)
      if (books.since == 0L && !books.isEmpty) books.since = next
      backUpIfDue(next, unique, books.value - mark.value, store.forceSnapshot)
      snapshotIfDue(next, store.forceSnapshot)
    } catch {
      case error: Throwable =>
        ledger = before.ledger
        books = mark.books
        resident.all.foreach(_.keepDying()) // what was captured is not on its way after all
        throw error
    }
    waitedMs = (System.nanoTime() - began) / 1000000
    version = next
    undo = before
    checkpointId = if (confs.enableStateStoreCheckpointIds) {
      CheckpointId(unique, ledger.durable, ledger.pending.fold("")(_.tag), divergence).text
    } else ""
    hasCommitted = true
    Stores.add(this)
    store.metricsAtCommit = metrics
    store.checkpointInfo = StateStoreCheckpointInfo(storeId.partitionId, next,
      Option(checkpointId).filter(_.nonEmpty), Option(before.checkpointId).filter(_.nonEmpty))
    restores = 0L
    versionsLost = 0L
    if (confs.commitValidationEnabled) TetherAccess.reportCommit(next, storeId, hadoop)
    next
  }

  /** @param step how much the divergence has grown in this batch; the next is expected to be like it */
  private def backUpIfDue(next: Long, unique: String, step: Double, force: Boolean): Unit = {
    val limit = theta
    // Stores of one join back up together; one that stands alone may write while the next batch runs.
    val aligned = settings.alignedEvery > 0 && next % settings.alignedEvery == 0
    if (force || aligned || group.fold(isDue(limit))(_.isDue(next))) {
      backUp(next, unique, evenIfEmpty = aligned || group.isDefined)
      ledger = backups.settle(ledger, wait = true)
    } else if (group.isEmpty && ledger.pending.isEmpty && divergence > 0 && divergence + growth(step) > limit) {
      backUp(next, unique, evenIfEmpty = false)
    }
  }

  /**
   * How much the next batch is expected to add. Rows that differ already count once: where rows are counted,
   * a batch like this one meets the more of them the more there are.
   */
  private def growth(step: Double): Double =
    if (settings.divergence != Divergence.Count) step
    else step * math.max(0.0, 1.0 - books.value / math.max(1L, resident.liveKeys))

  /** Whether θ would be passed: first by waiting for what is being written, then by counting exactly. */
  private[sql] def isDue(limit: Double): Boolean = {
    if (ledger.pending.nonEmpty && divergence > limit) ledger = backups.settle(ledger, wait = true)
    checkedDivergence(limit) > limit
  }

  /**
   * @param unique stands in the names of all backups of this version, and in its checkpoint id
   * @param evenIfEmpty where several stores must have their backups at the same versions
   */
  private def backUp(next: Long, unique: String, evenIfEmpty: Boolean): Unit = {
    ledger = backups.settle(ledger, wait = true)
    if (evenIfEmpty || !books.isEmpty) {
      val tag = BackupFile.tag(next, attempt, unique)
      val since = if (books.isEmpty) next else books.since
      ledger = backups.startDelta(ledger, tag, since, resident.changed(books), books.value)
      books = new Books(settings.divergence, books.generation + 1)
    }
  }

  /** A snapshot stands beside a delta of the same version: made where the chain of deltas has grown heavy. */
  private def snapshotIfDue(next: Long, force: Boolean): Unit = {
    val tag = ledger.pending.fold(ledger.durable)(_.tag)
    val heavy = ledger.chainBytes > settings.snapshotRatio * backups.expectedSnapshotBytes(resident.liveKeys)
    val long = ledger.chainFiles >= BoundedStateStoreProvider.LongestChain
    if (BackupFile.versionOf(tag) == next && (force || heavy || long)) {
      backups.startSnapshot(next, tag, resident.everything())
      ledger = ledger.copy(chainBytes = 0L, chainFiles = 0)
    }
  }

  /** Writes down θ and the losses where they have changed, before anything comes of it. */
  private def agreeOnTerms(): Unit = {
    val losses = terms.map(_.losses).getOrElse(Nil) ++ newLoss
    val now = Terms(terms.map(_.sequence).getOrElse(0L) + 1, settings.theta(losses.size),
      settings.maxStateError, settings.divergence.name, losses)
    if (!terms.exists(known => now.copy(sequence = known.sequence, file = known.file) == known)) {
      directory.create()
      terms = Some(Terms.write(directory, now))
    }
    newLoss = None
  }

  private[sql] def aborted(journal: Journal, mark: Books.Mark): Unit = synchronized {
    journal.undo(mark.books)
    books = mark.restore()
  }

  private[sql] def metrics: StateStoreMetrics = {
    val (written, bytes) = backups.takeCounts()
    StateStoreMetrics(
      resident.liveKeys,
      resident.bytes,
      Map[StateStoreCustomMetric, Long](
        Metrics.Divergence -> Metrics.whole(divergence),
        Metrics.Threshold -> Metrics.whole(theta),
        Metrics.Backups -> written,
        Metrics.Bytes -> bytes,
        Metrics.Restores -> restores,
        Metrics.VersionsLost -> versionsLost,
        Metrics.Failures -> terms.map(_.failures.toLong).getOrElse(0L),
        Metrics.Bound -> Metrics.whole(terms.map(_.spent).getOrElse(0.0)),
        Metrics.Extra -> Metrics.whole(terms.map(_.losses.map(_.extra).sum).getOrElse(0.0)),
        Metrics.Wait -> waitedMs))
  }

  // ---- housekeeping -----------------------------------------------------------------------------

  override def doMaintenance(): Unit = doCleanupMaintenance()

  override def doCleanupMaintenance(): Unit =
    try Cleaner.clean(directory, oldestNeeded) catch {
      case NonFatal(error) => logWarning(s"Tether: old backups of $storeId could not be removed", error)
    }

  /** Spark may ask again for any version that the user lets it keep; the driver has committed this one. */
  private def oldestNeeded: Long = synchronized {
    val committed = if (open == null) version else open.version
    committed - confs.minVersionsToRetain
  }

  // ---- the end ----------------------------------------------------------------------------------

  private[sql] def run: String = TetherAccess.runId(hadoop)

  /**
   * Makes durable what a restart of the query will ask for, and gives the memory back.
   *
   * @param millis how long to wait for a task that still uses the store
   * @return what went wrong; all is as it was then, and may be tried again
   */
  private[sql] def retire(millis: Long = BoundedStateStoreProvider.LongestTurnMillis): Option[String] = synchronized {
    try {
      awaitTurn(millis)
      // Stores of one join look at each other's books while one of them commits.
      val kept = group.fold(lastBackups())(_.synchronized(lastBackups()))
      forget()
      kept.map(why => s"$storeId: $why")
    } catch {
      case NonFatal(error) =>
        logWarning(s"Tether: last backup of $storeId failed", error)
        Some(s"$storeId: ${error.getMessage}")
    }
  }

  private def forget(): Unit = {
    open = null
    reset(-1L, "", "")
    resident.clear()
    Stores.remove(this)
  }

  /**
   * A version that the driver has not noted may be asked for, or the one before it: both are kept.
   *
   * @return why nothing was kept, where there was something to keep
   */
  private def lastBackups(): Option[String] =
    if (!hasCommitted) None
    else if (!settings.lastBackup) Some(s"${Settings.LastBackup} is false")
    else if (!terms.exists(known => directory.has(known.file))) Some("its folder is gone")
    else {
      ledger = backups.settle(ledger, wait = true)
      if (hasSuccessor) Some("another run has taken over, or the query was rewound")
      else {
        lastBackup()
        if (undo != null && !CheckpointLogs.isCommitted(storeId, version - 1, hadoop)) {
          takeBack()
          lastBackup()
        }
        None
      }
    }

  /** Whether somebody else has written here after this store, or has set it back. What it took back itself has a lower attempt. */
  private def hasSuccessor: Boolean =
    directory.lastAttempt() > attempt ||
      directory.backups().exists(file => file.tag > ledger.durable && file.attempt >= attempt)

  private def lastBackup(): Unit = {
    ledger = backups.settle(ledger, wait = true) // what was taken back may hang on one that was being written
    // Where nothing may be lost, a version without a backup of its own has changed nothing.
    if (BackupFile.versionOf(ledger.durable) != version && (theta > 0 || !books.isEmpty)) {
      val unique = CheckpointId.parse(checkpointId).fold(BackupFile.newId())(_.unique)
      backUp(version, unique, evenIfEmpty = true)
      ledger = backups.settle(ledger, wait = true)
    }
  }

  override def close(): Unit = synchronized {
    retire()
    forget()
    group.foreach(_.leave(this))
  }
}

object BoundedStateStoreProvider {
  /** Deltas that a restore may have to open: each costs a round trip to the file system. */
  private final val LongestChain = 100
  private final val LongestTurnMillis = 60L * 1000

  private def foreignState(id: StateStoreId, wanted: Long): String =
    s"$id has no backup of Tether's, yet Spark asks for its version $wanted. Why: the checkpoint " +
      s"${id.checkpointRootLocation} was written with another state store, or its files are gone. " +
      "What to do: start the query with a new checkpoint, seeded from the old state where needed " +
      "(see \"Moving to and from Spark's stores\" in docs/sql.md)."
}

/** How to go back to the version before the last commit. */
final class Undo(
    val version: Long, val checkpointId: String, val journal: Journal, val mark: Books.Mark, val ledger: Ledger)
