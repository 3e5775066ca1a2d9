package tether.files

import java.util.UUID
import java.util.concurrent.{CompletableFuture, ConcurrentHashMap}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, FileAlreadyExistsException, FileStatus, Path, PathFilter}

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager

/**
 * Checkpoint files whose round trips overlap, for checkpoints on a store across a network.
 *
 * Spark writes three small entries an epoch (what a source has found, the epoch's offsets, its commit), and looks twice
 * whether an entry is there before it appears: nine round trips, one after the other. Here Spark waits for one.
 *
 *  - Entries appear in the order in which Spark wrote them, each only after the one before it: whatever a crash
 *    leaves behind, it could have left behind with Spark's own files. What overlaps is the sending of their bytes.
 *  - Spark waits for an epoch's offsets, and so for the commit of the epoch before: no epoch begins that a restart
 *    could cut differently. A commit whose sending a crash cuts short means that its epoch is run again, as after
 *    a crash right before the commit.
 *  - Whether somebody else has written an entry is looked up while it is on its way, before it appears. Only the
 *    first of Spark's two looks is answered from memory, for numbers above those that this writer has used.
 *  - A log's newest entries are read from memory: sources read again what they have just written. Whoever reads
 *    another one, lists or deletes waits until nothing is on its way.
 *
 * Files other than these logs (state, metadata) are written as by the class below.
 */
class OverlappedCheckpointFiles(path: Path, conf: Configuration)
    extends FileSystemBasedCheckpointFileManager(path, conf) {
  import OverlappedCheckpointFiles._

  private val known: Option[Log] = Log.of(fs.makeQualified(path))
  private val born = known.fold(0)(_.order.failed)
  private val own = new OwnEntries

  override def createAtomic(target: Path, overwriteIfPossible: Boolean): CancellableFSDataOutputStream = known match {
    case Some(log) if !overwriteIfPossible => new EntryStream(bytes => send(log, target, bytes))
    case _ => super.createAtomic(target, overwriteIfPossible)
  }

  override def exists(target: Path): Boolean =
    if (own.isNew(target)) false
    else own.get(target).isDefined || settled(super.exists(target))

  override def open(target: Path): FSDataInputStream =
    own.get(target).fold(settled(super.open(target)))(bytes => new EntryBytes(bytes).stream)

  override def list(folder: Path, filter: PathFilter): Array[FileStatus] = settled(super.list(folder, filter))

  override def delete(target: Path): Unit = {
    own.remove(target)
    settled(super.delete(target))
  }

  override def close(): Unit = settled(super.close())

  private def settled[A](work: => A): A = {
    known.foreach(_.order.settle())
    work
  }

  private def send(log: Log, target: Path, bytes: Array[Byte]): Unit = {
    // The name says whose it is, as Spark's own do: those who list a log pass over it.
    val sent = new Path(target.getParent, s".${target.getName}.${UUID.randomUUID}.tmp")
    val written = Background.run { () =>
      val stream = createTempFile(sent)
      try stream.write(bytes)
      finally stream.close()
    }
    val taken = Background.call(() => fs.exists(target))
    val appeared = log.order.follow(born, CompletableFuture.allOf(written, taken)) { () =>
      if (taken.join()) throw new FileAlreadyExistsException(s"$target has been written by another query")
      if (!fs.rename(sent, target)) throw new FileAlreadyExistsException(s"$sent could not become $target")
    }
    appeared.whenComplete((_, error) => if (error != null) Background.run(() => fs.delete(sent, false)))
    if (log.awaited) log.order.await(appeared)
    own.add(target, bytes)
  }
}

object OverlappedCheckpointFiles {
  private val orders = new ConcurrentHashMap[Path, EntryOrder]()

  /** Waits until nothing of any checkpoint is on its way: for those who read or change one past Spark. */
  def settle(): Unit = orders.values.forEach(_.settle())

  /** One of Spark's logs in a checkpoint; `awaited`: Spark goes on only when its entries have appeared. */
  private final case class Log(order: EntryOrder, awaited: Boolean)

  private object Log {
    def of(folder: Path): Option[Log] = {
      val above = Option(folder.getParent)
      (folder.getName, above.map(_.getName)) match {
        case ("offsets", _) => above.map(root => Log(orderOf(root), awaited = true))
        case ("commits", _) => above.map(root => Log(orderOf(root), awaited = false))
        case (_, Some("sources")) => above.map(sources => Log(orderOf(sources.getParent), awaited = false))
        case _ => None
      }
    }
  }

  private def orderOf(root: Path): EntryOrder = orders.computeIfAbsent(root, _ => new EntryOrder)

  Background.beforeExit(() => settle())
}
