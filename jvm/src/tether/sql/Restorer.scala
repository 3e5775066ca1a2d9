package tether.sql

import java.io.IOException

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

/** What a restore found. `steps` in the order in which they must be applied; `tag` empty: nothing. */
final case class Found(tag: String, version: Long, steps: Seq[Seq[Record]], extra: Double, snapshotBytes: Long, deltaBytes: Long)

/** Finds the newest readable backup at or below a version. */
final class Restorer(directory: BackupDirectory, conf: Configuration, grouped: Boolean, report: String => Unit) {

  /**
   * @param wanted version that Spark asks for
   * @param lineage tags that the wanted version is known to descend from, best first; None: not known
   */
  def find(wanted: Long, lineage: Option[Seq[String]]): Found = {
    val files = directory.backups()
    val usable = files.filter(_.version <= wanted)
    val newestFirst = usable.map(_.tag).distinct.sorted.reverse
    val candidates = lineage match {
      // What another attempt has left at a later version is not what this version came from.
      case Some(tags) =>
        val known = tags.filter(newestFirst.contains)
        val newest = known.headOption.getOrElse("")
        known ++ newestFirst.filter(tag => tag < newest && !known.contains(tag))
      case None => newestFirst
    }
    // The stores of one join must come back at one version, or their rows would not fit together.
    val together = if (grouped) commonVersions(wanted) else None
    val first = candidates.headOption
    candidates.iterator
      .filter(tag => together.forall(_.contains(BackupFile.versionOf(tag))))
      .flatMap(tag => chain(directory, tag, files).map { case (steps, whole, parts) =>
        Found(tag, BackupFile.versionOf(tag), steps, between(files, tag, first), whole, parts)
      })
      .nextOption()
      .getOrElse(Found("", 0L, Nil, between(files, "", first), 0L, 0L))
  }

  /** Divergence that the passed-over backups from `found` up to `newest` had made durable. */
  private def between(files: Seq[BackupFile], found: String, newest: Option[String]): Double =
    newest.filter(_ != found).fold(0.0) { last =>
      files.filter(file => !file.isSnapshot && file.tag > found && file.tag <= last)
        .groupBy(_.version).values.map(_.maxBy(_.tag).covers).sum
    }

  /** The rows of a backup and of all that it builds on, eldest first; None where one is unreadable. */
  private def chain(from: BackupDirectory, tag: String, files: Seq[BackupFile]): Option[(Seq[Seq[Record]], Long, Long)] = {
    val byTag = files.groupBy(_.tag)
    var steps = List.empty[Seq[Record]]
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

  private def read(from: BackupDirectory, file: BackupFile): Option[(Header, Seq[Record])] =
    try {
      val in = from.open(file.name)
      val (header, records) = try BackupCodec.read(in, file.bytes) finally in.close()
      if (header.tag != file.tag) throw new IOException(s"it says that it is ${header.tag}")
      Some((header, records.toSeq))
    } catch {
      case NonFatal(error) =>
        report(s"${from.path}/${file.name} cannot be read: ${error.getMessage}")
        None
    }

  /** Versions at which every store of this partition has a readable backup. */
  private def commonVersions(wanted: Long): Option[Set[Long]] = Some(
    directory.siblings().map { path =>
      val sibling = new BackupDirectory(path, conf)
      val files = sibling.backups().filter(_.version <= wanted)
      files.map(_.tag).distinct.filter(chain(sibling, _, files).isDefined).map(BackupFile.versionOf).toSet
    }.reduceOption(_ intersect _).getOrElse(Set.empty))
}
