package tether.sql

import java.io.{FileNotFoundException, InputStream, OutputStream}
import java.util.UUID

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, LocalFileSystem, Path, RawLocalFileSystem}

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager

/**
 * A file of a store's backups, as its name tells: nothing must be read to plan a restore.
 *
 * @param version state version that it brings the store to
 * @param attempt counts up with each restore, so the last of several runs of one batch is known
 * @param covers divergence from its parent that it made durable; infinite where not told
 */
final case class BackupFile(
    name: String, version: Long, attempt: Long, id: String, covers: Double, isSnapshot: Boolean, bytes: Long) {
  def tag: String = BackupFile.tag(version, attempt, id)
}

object BackupFile {
  private val Name = raw"(\d+)-(\d+)-([0-9a-f]+)(?:_([0-9.E\-]+|Infinity))?\.(delta|snapshot)".r
  /** Backups, and the marks that a rewind leaves. */
  val Attempt = raw"\d+-(\d+)-[0-9a-f]+.*\.(?:delta|snapshot|rewound)".r
  private val Tag = raw"(\d+)-(\d+)-([0-9a-f]+)".r

  def tag(version: Long, attempt: Long, id: String): String = f"$version%012d-$attempt%04d-$id"
  def newId(): String = UUID.randomUUID().toString.replace("-", "").take(12)
  def deltaName(tag: String, covers: Double): String = s"${tag}_$covers.delta"
  def snapshotName(tag: String): String = s"$tag.snapshot"

  def versionOf(tag: String): Long = tag match {
    case Tag(version, _, _) => version.toLong
    case _ => 0L
  }

  def parse(name: String, bytes: Long): Option[BackupFile] = name match {
    case Name(version, attempt, id, covers, kind) =>
      val covered = Option(covers).map(_.toDouble).getOrElse(Double.PositiveInfinity)
      Some(BackupFile(name, version.toLong, attempt.toLong, id, covered, kind == "snapshot", bytes))
    case _ => None
  }
}

/** A store's directory under the query's checkpoint: files appear whole, and are never overwritten. */
final class BackupDirectory(val path: Path, conf: Configuration) {
  private val fs: FileSystem = path.getFileSystem(conf)
  // Without Hadoop's layer of checksums above it.
  private val local: Option[RawLocalFileSystem] = fs match {
    case checksummed: LocalFileSystem => Some(checksummed.getRaw.asInstanceOf[RawLocalFileSystem])
    case _ => None
  }
  private lazy val manager = CheckpointFileManager.create(path, conf)

  def create(): Unit = local match {
    case Some(raw) => LocalFiles.createFolder(raw.pathToFile(path).toPath)
    case None => fs.mkdirs(path)
  }

  def list(): Seq[FileStatus] =
    try local.getOrElse(fs).listStatus(path).toSeq catch { case _: FileNotFoundException => Nil }

  def backups(): Seq[BackupFile] =
    list().flatMap(status => BackupFile.parse(status.getPath.getName, status.getLen))

  /** The attempt of whoever was the last to write here, or to set the store back. */
  def lastAttempt(): Long =
    list().map(_.getPath.getName).collect { case BackupFile.Attempt(number) => number.toLong }.maxOption.getOrElse(0L)

  def has(name: String): Boolean = local.getOrElse(fs).exists(new Path(path, name))

  /** Directories beside this one: the other stores of the same partition. */
  def siblings(): Seq[Path] =
    local.getOrElse(fs).listStatus(path.getParent).toSeq.filter(_.isDirectory).map(_.getPath)
      .filterNot(_.getName.startsWith("_"))

  def open(name: String): InputStream = local.getOrElse(fs).open(new Path(path, name))

  /** Makes a file of what `write` writes; when that fails, there is no file. */
  def make[A](name: String)(write: OutputStream => A): A = {
    val target = new Path(path, name)
    local match {
      case Some(raw) => LocalFiles.make(raw.pathToFile(target).toPath)(write)
      case None =>
        // No file has a name twice, so nobody need ask first whether it is there: one round trip less.
        val out = manager.createAtomic(target, overwriteIfPossible = true)
        try {
          val result = write(out)
          out.close()
          result
        } catch {
          case NonFatal(error) =>
            out.cancel()
            throw error
        }
    }
  }

  def delete(name: String): Unit = local.getOrElse(fs).delete(new Path(path, name), false)
}
