package tether.sql

/** The rows that a backup changed, at the version that it brings a store to. */
final case class Change(version: Long, blocks: Seq[RowBlock])

/**
 * What a store was at one version, and how it changed from one to another, as its backups tell it: for Spark's state reader.
 *
 * A bounded store has no backup for every version. Whatever cannot be told exactly is refused, with what can be.
 *
 * @param exact whether every change is durable at once, so that a version without a backup has changed nothing
 */
final class Replay(restorer: Restorer, exact: Boolean) {
  /** The newest backup at or below a version, if nothing has changed between the two. */
  private def tip(version: Long, known: Option[CheckpointId]): String = {
    val found = restorer.candidates(version, known).headOption.getOrElse("")
    val isExact = BackupFile.versionOf(found) == version || exact || known.exists(_.divergence == 0.0) ||
      restorer.next(version).exists(later => later.parent == found && later.since > version)
    if (isExact) found
    else refuse(s"The state after batch ${version - 1} cannot be told exactly.",
      s"It was in memory when the store last wrote a backup, after batch ${BackupFile.versionOf(found) - 1}.")
  }

  /** The rows at a version: each step is put upon those before it. */
  def state(version: Long, known: Option[CheckpointId]): Seq[Seq[RowBlock]] = steps(tip(version, known), version)

  private def steps(tag: String, version: Long): Seq[Seq[RowBlock]] =
    if (tag.isEmpty) Nil
    else restorer.chain(tag).map(_._1).getOrElse(
      refuse(s"The state after batch ${version - 1} cannot be read.", s"$tag, or what it builds on, is damaged or gone."))

  /** The rows at `last`, from those at `first` and the changes after it: no snapshot in between is looked at. */
  def state(first: Long, firstKnown: Option[CheckpointId], last: Long, lastKnown: Option[CheckpointId]): Seq[Seq[RowBlock]] = {
    val base = tip(first, firstKnown)
    val path = deltas(tip(last, lastKnown)).takeWhile(_._1.tag > base).toList
    if (path.lastOption.map(_._1.parent).getOrElse(base) != base) {
      refuse(s"The state after batch ${last - 1} cannot be made from that after batch ${first - 1}.",
        "It was not: a run in between went back to an earlier backup.")
    }
    steps(base, first) ++ path.reverseIterator.map(_._2)
  }

  /** What changed from `first` to `last`, both included, in order. */
  def changes(first: Long, last: Long, known: Option[CheckpointId]): Seq[Change] = {
    val found = deltas(tip(last, known)).takeWhile(_._1.version >= first).toList.reverse
    found.headOption.filter(_._1.since < first).foreach { case (header, _) =>
      refuse(s"The changes of batch ${first - 1} cannot be told apart from those before it.",
        s"Batches ${header.since - 1} to ${header.version - 1} became durable together. They can be read together.")
    }
    found.map { case (header, blocks) => Change(header.version, blocks) }
  }

  /** Deltas from a backup back to the first, newest first. */
  private def deltas(tag: String): Iterator[(Header, Seq[RowBlock])] =
    Iterator.unfold(tag) { next =>
      if (next.isEmpty) None
      else {
        val found = restorer.delta(next).getOrElse(
          refuse(s"The changes up to version ${BackupFile.versionOf(next)} cannot be read.", s"$next is damaged, or no longer kept."))
        Some((found, found._1.parent))
      }
    }

  private def refuse(what: String, why: String): Nothing = throw new IllegalStateException(
    s"$what Why: $why What to do: read another batch; end the query in good order first; or run it with a bound of 0, " +
      "which keeps every version.")
}
