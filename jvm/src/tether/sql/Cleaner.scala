package tether.sql

/** Removes backups that no restore can need. */
object Cleaner {
  /**
   * @param oldestNeeded oldest version that Spark may still ask for; the newest backup at or below it
   *   serves that, so it stays, with all that it builds on, and with one elder snapshot to fall back on
   */
  def clean(directory: BackupDirectory, oldestNeeded: Long): Unit = {
    val files = directory.backups()
    val serving = files.filter(_.version <= oldestNeeded).map(_.tag).distinct.sorted.lastOption
    // Chains end at snapshots: below the second snapshot at or before the serving one nothing is reached.
    val ends = files.filter(file => file.isSnapshot && serving.exists(file.tag <= _)).map(_.tag).sorted
    if (ends.size >= 2) {
      val keepFrom = ends(ends.size - 2)
      files.filter(_.tag < keepFrom).foreach(file => directory.delete(file.name))
    }
  }
}
