package tether.sql

import java.io.IOException

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

/** What a restore found. `steps` in the order in which they must be applied; `tag` empty: nothing. */
final case class Found(tag: String, version: Long, steps: Seq[Seq[RowBlock]], extra: Double, snapshotBytes: Long, deltaBytes: Long)

/** Finds the newest readable backup at or below a version. */
final class Restorer(directory: BackupDirectory, conf: Configuration, grouped: Boolean, report: String => Unit) {
  private lazy val files = directory.backups()

  private def newestFirst(wanted: Long): Seq[String] =
    files.filter(_.version <= wanted).map(_.tag).distinct.sorted.reverse

  /** Backups that a version may be restored from, best first. */
  def candidates(wanted: Long, known: Option[CheckpointId]): Seq[String] = known match {
    // What another attempt has left at a later version is not what this version came from.
    case Some(id) =>
      val older = newestFirst(wanted)
      val own = files.filter(file => file.version == wanted && file.id == id.unique).map(_.tag)
      val named = Seq(id.pending, id.durable).filter(older.contains)
      (own ++ named).distinct ++ older.filter(_ < id.durable)
    case None => newestFirst(wanted)
  }

  /** A delta as it was written, without what it builds on. */
  def delta(tag: String): Option[(Header, Seq[RowBlock])] =
    files.iterator.filter(file => file.tag == tag && !file.isSnapshot).flatMap(read(directory, _)).nextOption()

  /** The first delta after a version. */
  def next(version: Long): Option[Header] =
    files.filter(file => file.version > version && !file.isSnapshot).map(_.tag).minOption.flatMap(delta).map(_._1)

  /**
   * @param wanted version that Spark asks for
   * @param known what the driver noted of that version, in checkpoint format 2: which backup it hangs on
   */
  def find(wanted: Long, known: Option[CheckpointId]): Found = {
    // The stores of one join must come back at one version, or their rows would not fit together. A version that not
    // all of them have was never complete (they were killed while they wrote it), so nobody relied on it.
    val together = if (grouped) Some(commonVersions(wanted)) else None
    val complete = if (grouped) Some(siblings.map(_.backups().map(_.version).toSet).reduce(_ intersect _)) else None
    val newest = newestFirst(wanted).find(tag => complete.forall(_.contains(BackupFile.versionOf(tag))))
    val expected = known.fold(newest)(id => Some(id.durable).filter(_.nonEmpty))
    candidates(wanted, known).iterator
      .filter(tag => together.forall(_.contains(BackupFile.versionOf(tag))))
      .flatMap(tag => chain(tag).map { case (steps, whole, parts) =>
        Found(tag, BackupFile.versionOf(tag), steps, between(tag, expected), whole, parts)
      })
      .nextOption()
      .getOrElse(Found("", 0L, Nil, between("", expected), 0L, 0L))
  }

  /** Divergence that the passed-over backups from `found` up to `expected` had made durable. */
  private def between(found: String, expected: Option[String]): Double =
    expected.filter(_ > found).fold(0.0) { last =>
      val passed = files.filter(file => !file.isSnapshot && file.tag > found && file.tag <= last)
      // A backup that is not even there to tell what it covered may have covered anything.
      if (!passed.exists(_.tag == last)) Double.PositiveInfinity
      else passed.groupBy(_.version).values.map(_.maxBy(_.tag).covers).sum
    }

  /** The rows of a backup and of all that it builds on, eldest first; None where one is unreadable. */
  def chain(tag: String): Option[(Seq[Seq[RowBlock]], Long, Long)] = chain(directory, tag, files)

  private def chain(from: BackupDirectory, tag: String, files: Seq[BackupFile]): Option[(Seq[Seq[RowBlock]], Long, Long)] = {
    val byTag = files.groupBy(_.tag)
    var steps = List.empty[Seq[RowBlock]]
    var (wholeBytes, partBytes) = (0L, 0L)
    var next = tag
    while (next.nonEmpty) {
      val (snapshots, deltas) = byTag.getOrElse(next, Nil).partition(_.isSnapshot)
      val whole = snapshots.iterator.flatMap(read(from, _)).nextOption()
      val part = if (whole.isDefined) None else deltas.iterator.flatMap(read(from, _)).nextOption()
      (whole, part) match {
        case (Some((_, records)), _) =>
          steps = records :: steps
          wholeBytes = snapshots.map(_.bytes).sum
          next = ""
        case (_, Some((header, records))) =>
          steps = records :: steps
          if (header.parent.isEmpty) wholeBytes = deltas.map(_.bytes).sum else partBytes += deltas.map(_.bytes).sum
          next = header.parent
        case _ =>
          if (deltas.isEmpty && snapshots.isEmpty) report(s"$next, which $tag builds on, is missing")
          return None
      }
    }
    Some((steps, wholeBytes, partBytes))
  }

  private def read(from: BackupDirectory, file: BackupFile): Option[(Header, Seq[RowBlock])] =
    try {
      val in = from.open(file.name)
      val (header, records) = try BackupCodec.read(in, file.bytes) finally in.close()
      if (header.tag != file.tag) throw new IOException(s"it says that it is ${header.tag}")
      Some((header, records))
    } catch {
      case NonFatal(error) =>
        report(s"${from.path}/${file.name} cannot be read: ${error.getMessage}")
        None
    }

  private lazy val siblings: Seq[BackupDirectory] = directory.siblings().map(new BackupDirectory(_, conf))

  /** Versions at which every store of this partition has a readable backup. */
  private def commonVersions(wanted: Long): Set[Long] =
    siblings.map { sibling =>
      val files = sibling.backups().filter(_.version <= wanted)
      files.map(_.tag).distinct.filter(chain(sibling, _, files).isDefined).map(BackupFile.versionOf).toSet
    }.reduceOption(_ intersect _).getOrElse(Set.empty)
}
