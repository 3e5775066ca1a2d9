package tether.sql

import java.io.{BufferedOutputStream, OutputStream}
import java.nio.channels.{Channels, FileChannel}
import java.nio.file.{FileSystems, Files, Path, StandardCopyOption, StandardOpenOption}
import java.nio.file.attribute.{FileAttribute, PosixFilePermissions}

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

/**
 * Files on a local disk: for their owner alone, whole or not there, and on the disk itself once they are made.
 *
 * Hadoop's own layer costs two forked chmod and a second file of checksums for each, and leaves the rest to the
 * operating system's cache.
 */
object LocalFiles {
  private val knowsOwners = FileSystems.getDefault.supportedFileAttributeViews.contains("posix")

  private def rights(text: String): Seq[FileAttribute[_]] =
    if (knowsOwners) Seq(PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(text))) else Nil

  /** Makes a folder and those above it. Those that are there stay as they are. */
  def createFolder(folder: Path): Unit = if (!Files.isDirectory(folder)) {
    val missing = Iterator.iterate(folder)(_.getParent).takeWhile(path => path != null && !Files.exists(path)).toList
    Files.createDirectories(folder, rights("rwx------"): _*)
    missing.foreach(made => sync(made.getParent))
  }

  /** Makes a file of what `write` writes; when that fails, there is no file. */
  def make[A](target: Path)(write: OutputStream => A): A = {
    val partial = target.resolveSibling(s".${target.getFileName}.partial")
    try {
      val options = Set(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE).asJava
      val channel = FileChannel.open(partial, options, rights("rw-------"): _*)
      val result = try {
        val out = new BufferedOutputStream(Channels.newOutputStream(channel), 1 << 16)
        val written = write(out)
        out.flush()
        channel.force(true)
        written
      } finally channel.close()
      Files.move(partial, target, StandardCopyOption.ATOMIC_MOVE)
      sync(target.getParent)
      result
    } catch {
      case NonFatal(error) =>
        try Files.deleteIfExists(partial) catch { case NonFatal(_) => }
        throw error
    }
  }

  /** Names in a folder are on the disk only when the folder is. */
  private def sync(folder: Path): Unit = if (knowsOwners && folder != null) {
    val channel = FileChannel.open(folder, StandardOpenOption.READ)
    try channel.force(true) finally channel.close()
  }
}
