package tether.sql

import java.util.ArrayList
import java.util.concurrent.{Callable, ExecutionException, Executors, Future, ThreadFactory}

import scala.jdk.CollectionConverters._

import org.apache.spark.internal.Logging

/** A backup that is being written. */
final class Pending(val tag: String, val books: Seq[Books], val divergence: Double, val job: Future[java.lang.Long])

/**
 * What is durable, and what is on its way.
 *
 * @param durable tag of the newest backup that can be relied on; empty: none
 * @param carried books of backups that failed: their rows go into the next one
 * @param chainBytes written in deltas since the last snapshot
 */
final case class Ledger(
    durable: String, pending: Option[Pending], carried: Vector[Books], chainBytes: Long) {
  /** Divergence between the last backup that was started and what is durable. */
  def behind: Double = pending.map(_.divergence).getOrElse(0.0) + carried.map(_.value).sum
}

/** Writes the backups of one store. */
final class Backups(directory: BackupDirectory, store: String, codec: String) extends Logging {
  /** Bytes and files written and failures met since last asked; for the metrics of a batch. */
  @volatile private var written = 0L
  @volatile private var finished = 0L
  /** Of the last snapshot: what the deltas since then are weighed against. */
  @volatile var snapshotBytes = 0L

  def takeCounts(): (Long, Long) = synchronized {
    val counts = (finished, written)
    finished = 0L
    written = 0L
    counts
  }

  private def count(bytes: Long, backups: Int): Unit = synchronized {
    written += bytes
    finished += backups
  }

  /** Starts to write the rows that differ from `ledger.durable`. */
  def startDelta(
      ledger: Ledger, version: Long, attempt: Long, books: Seq[Books], divergence: Double, names: Seq[String]): Ledger = {
    val rows: ArrayList[(Family, AnyRef, Boolean)] = Capture(books)
    val tag = BackupFile.tag(version, attempt, BackupFile.newId())
    val parent = ledger.durable
    val job = Backups.pool.submit(new Callable[java.lang.Long] {
      override def call(): java.lang.Long = {
        val bytes = directory.make(BackupFile.deltaName(tag, divergence)) { out =>
          BackupCodec.write(out, Header(store, version, tag, parent, codec, names), rows.iterator().asScala)
        }
        count(bytes, 1)
        bytes
      }
    })
    ledger.copy(pending = Some(new Pending(tag, books, divergence, job)), carried = Vector.empty)
  }

  /** Looks whether a started backup is done; `wait` for it where it is not. */
  def settle(ledger: Ledger, wait: Boolean): Ledger = ledger.pending match {
    case Some(pending) if wait || pending.job.isDone =>
      try {
        val bytes = pending.job.get().longValue
        val first = ledger.durable.isEmpty // it began from nothing, so it is as good as a snapshot
        if (first) snapshotBytes = bytes
        ledger.copy(durable = pending.tag, pending = None, chainBytes = if (first) 0L else ledger.chainBytes + bytes)
      } catch {
        case failed: ExecutionException =>
          logWarning(s"Tether: backup ${pending.tag} of $store failed and is tried again with the next one", failed.getCause)
          ledger.copy(pending = None, carried = pending.books.toVector)
      }
    case _ => ledger
  }

  /** Writes all rows beside the delta of the same tag, in the background; a failure costs only time later. */
  def startSnapshot(version: Long, tag: String, names: Seq[String], rows: Iterator[(Family, AnyRef, Boolean)]): Unit =
    Backups.pool.submit(new Runnable {
      override def run(): Unit = try {
        val bytes = directory.make(BackupFile.snapshotName(tag)) { out =>
          BackupCodec.write(out, Header(store, version, tag, "", codec, names), rows)
        }
        snapshotBytes = bytes
        count(bytes, 0)
      } catch {
        case error: Exception => logWarning(s"Tether: snapshot $tag of $store failed; its deltas still serve", error)
      }
    })
}

object Backups {
  private val pool = Executors.newFixedThreadPool(
    math.max(2, Runtime.getRuntime.availableProcessors()),
    new ThreadFactory {
      override def newThread(work: Runnable): Thread = {
        val thread = new Thread(work, "tether-state-backup")
        thread.setDaemon(true)
        thread
      }
    })
}
