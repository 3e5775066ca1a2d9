package tether.sql

import java.io.IOException

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

/** What a restore found. `steps` in the order in which they must be applied; `tag` empty: nothing. */
final case class Found(tag: String, version: Long, steps: Seq[Seq[RowBlock]], extra: Double, snapshotBytes: Long, deltaBytes: Long)

/** Finds the newest readable backup at or below a version. */
final class Restorer(directory: BackupDirectory, conf: Configuration, grouped: Boolean, report: String => Unit) {

  /**
   * @param wanted version that Spark asks for
   * @param known what the driver noted of that version, in checkpoint format 2: which backup it hangs on
   */
  def find(wanted: Long, known: Option[CheckpointId]): Found = {
    val files = directory.backups()
    val newestFirst = files.filter(_.version <= wanted).map(_.tag).distinct.sorted.reverse
    val candidates = known match {
      // What another attempt has left at a later version is not what this version came from.
      case Some(id) =>
        val named = Seq(id.pending, id.durable).filter(newestFirst.contains)
        named ++ newestFirst.filter(tag => tag < id.durable)
      case None => newestFirst
    }
    val expected = known.map(_.durable).orElse(newestFirst.headOption).filter(_.nonEmpty)
    // The stores of one join must come back at one version, or their rows would not fit together.
    val together = if (grouped) Some(commonVersions(wanted)) else None
    candidates.iterator
      .filter(tag => together.forall(_.contains(BackupFile.versionOf(tag))))
      .flatMap(tag => chain(directory, tag, files).map { case (steps, whole, parts) =>
        Found(tag, BackupFile.versionOf(tag), steps, between(files, tag, expected), whole, parts)
      })
      .nextOption()
      .getOrElse(Found("", 0L, Nil, between(files, "", expected), 0L, 0L))
  }

  /** Divergence that the passed-over backups from `found` up to `expected` had made durable. */
  private def between(files: Seq[BackupFile], found: String, expected: Option[String]): Double =
    expected.filter(_ > found).fold(0.0) { last =>
      val passed = files.filter(file => !file.isSnapshot && file.tag > found && file.tag <= last)
      // A backup that is not even there to tell what it covered may have covered anything.
      if (!passed.exists(_.tag == last)) Double.PositiveInfinity
      else passed.groupBy(_.version).values.map(_.maxBy(_.tag).covers).sum
    }

  /** The rows of a backup and of all that it builds on, eldest first; None where one is unreadable. */
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

  /** Versions at which every store of this partition has a readable backup. */
  private def commonVersions(wanted: Long): Set[Long] =
    directory.siblings().map { path =>
      val sibling = new BackupDirectory(path, conf)
      val files = sibling.backups().filter(_.version <= wanted)
      files.map(_.tag).distinct.filter(chain(sibling, _, files).isDefined).map(BackupFile.versionOf).toSet
    }.reduceOption(_ intersect _).getOrElse(Set.empty)
}
