package tether.sql

import java.util.concurrent.{Callable, ExecutionException, Executors, Future, ThreadFactory}

import org.apache.spark.internal.Logging

/** A backup that is being written: its rows are copies, so it can be written again where that failed. */
final class Pending(
    val tag: String, val since: Long, val rows: Seq[RowBlock], val divergence: Double, val job: Future[java.lang.Long])

/**
 * What is durable, and what is on its way.
 *
 * @param durable tag of the newest backup that can be relied on; empty: none
 * @param chainBytes written in deltas since the last snapshot
 * @param chainFiles number of these deltas
 */
final case class Ledger(durable: String, pending: Option[Pending], chainBytes: Long = 0L, chainFiles: Int = 0) {
  /** Divergence between the last backup that was started and what is durable. */
  def behind: Double = pending.fold(0.0)(_.divergence)
}

/** Writes the backups of one store. */
final class Backups(directory: BackupDirectory, store: String, codec: String) extends Logging {
  /** Bytes and files written since last asked; for the metrics of a batch. */
  private var written = 0L
  private var finished = 0L
  private var bytesOfRow = 0.0
  /** Of the last snapshot: what the deltas since then are weighed against. */
  @volatile var snapshotBytes = 0L

  def takeCounts(): (Long, Long) = synchronized {
    val counts = (finished, written)
    finished = 0L
    written = 0L
    counts
  }

  private def count(bytes: Long, backups: Int, rows: Long): Unit = synchronized {
    written += bytes
    finished += backups
    // A file of few rows is mostly its header.
    if (rows >= 1000) bytesOfRow = bytes.toDouble / rows
  }

  /** What a snapshot of so many rows would weigh: more than the last one, where the state has grown since. */
  def expectedSnapshotBytes(rows: Long): Double = synchronized(math.max(snapshotBytes.toDouble, bytesOfRow * rows))

  /** Starts to write the rows that differ from `ledger.durable`, the first of them since the version `since`. */
  def startDelta(ledger: Ledger, tag: String, since: Long, rows: Seq[RowBlock], divergence: Double): Ledger = {
    val parent = ledger.durable
    val version = BackupFile.versionOf(tag)
    val job = Backups.pool.submit(new Callable[java.lang.Long] {
      override def call(): java.lang.Long = {
        val bytes = directory.make(BackupFile.deltaName(tag, divergence)) { out =>
          BackupCodec.write(out, Header(store, version, since, tag, parent, codec), rows.foreach(_))
        }
        count(bytes, 1, rows.iterator.map(_.count.toLong).sum)
        bytes
      }
    })
    ledger.copy(pending = Some(new Pending(tag, since, rows, divergence, job)))
  }

  /** Looks whether a started backup is done; `wait` for it where it is not. One that failed is started again. */
  def settle(ledger: Ledger, wait: Boolean): Ledger = ledger.pending match {
    case Some(pending) if wait || pending.job.isDone =>
      try finish(ledger, pending) catch {
        case failed: ExecutionException =>
          logWarning(s"Tether: backup ${pending.tag} of $store failed and is tried again", failed.getCause)
          val again = startDelta(ledger, pending.tag, pending.since, pending.rows, pending.divergence)
          if (wait) {
            try finish(again, again.pending.get) catch {
              case failed: ExecutionException => throw new IllegalStateException(
                s"$store could not be made durable as ${pending.tag}. Why: its backup could not be " +
                  s"written to ${directory.path}: ${failed.getCause.getMessage}. What to do: see to it that the " +
                  "checkpoint can be written; the batch is run again.", failed.getCause)
            }
          } else again
      }
    case _ => ledger
  }

  private def finish(ledger: Ledger, pending: Pending): Ledger = {
    val bytes = pending.job.get().longValue
    val first = ledger.durable.isEmpty // it began from nothing, so it is as good as a snapshot
    if (first) snapshotBytes = bytes
    if (first) Ledger(pending.tag, None)
    else Ledger(pending.tag, None, ledger.chainBytes + bytes, ledger.chainFiles + 1)
  }

  /** Writes all rows beside the delta of the same tag, in the background; a failure costs only time later. */
  def startSnapshot(version: Long, tag: String, rows: (RowBlock => Unit) => Unit): Unit =
    Backups.pool.submit(new Runnable {
      override def run(): Unit = try {
        val bytes = directory.make(BackupFile.snapshotName(tag)) { out =>
          BackupCodec.write(out, Header(store, version, version, tag, "", codec), rows)
        }
        snapshotBytes = bytes
        count(bytes, 0, 0L)
      } catch {
        case error: Exception => logWarning(s"Tether: snapshot $tag of $store failed; its deltas still serve", error)
      }
    })
}

object Backups {
  // More than there are cores: with a checkpoint far away they mostly wait for it.
  private val pool = Executors.newFixedThreadPool(
    math.max(8, 4 * Runtime.getRuntime.availableProcessors()),
    new ThreadFactory {
      override def newThread(work: Runnable): Thread = {
        val thread = new Thread(work, "tether-state-backup")
        thread.setDaemon(true)
        thread
      }
    })
}
