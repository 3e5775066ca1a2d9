package tether.sql

import java.net.URI

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, FSDataOutputStream, FileStatus, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/**
 * The local disk as if it were far away: `slow:/some/folder`. For benchmarks and tests, never for data.
 *
 * Every call that a remote file system would answer over the network first waits for
 * `fs.slow.latency.ms` (default 50). To use it for a checkpoint, whatever the state store:
 *
 * {{{
 * spark.jars                        the jar of tether.sql (tether.sql.jar.jar_path())
 * spark.hadoop.fs.slow.impl         tether.sql.SlowFileSystem
 * spark.hadoop.fs.slow.latency.ms   50
 * spark.sql.streaming.checkpointFileManagerClass   …FileSystemBasedCheckpointFileManager
 * }}}
 *
 * Permissions are not set: for each file, Hadoop would fork a process to do that.
 */
class SlowFileSystem extends RawLocalFileSystem {
  private var latencyMs = 50L

  override def initialize(uri: URI, conf: Configuration): Unit = {
    super.initialize(uri, conf)
    latencyMs = conf.getLong("fs.slow.latency.ms", 50L)
  }

  override def getScheme: String = "slow"
  override def getUri: URI = URI.create("slow:///")

  // Hadoop's local calls are made of each other; over a network each is one question and one answer.
  private val inside = new ThreadLocal[java.lang.Boolean]

  private def far[A](call: => A): A = if (inside.get() != null) call else {
    Thread.sleep(latencyMs)
    inside.set(true)
    try call finally inside.remove()
  }

  override def open(path: Path, bufferSize: Int): FSDataInputStream = far(super.open(path, bufferSize))
  override def create(
      path: Path, overwrite: Boolean, bufferSize: Int, replication: Short, blockSize: Long,
      progress: Progressable): FSDataOutputStream =
    far(super.create(path, overwrite, bufferSize, replication, blockSize, progress))
  override def create(
      path: Path, permission: FsPermission, overwrite: Boolean, bufferSize: Int, replication: Short, blockSize: Long,
      progress: Progressable): FSDataOutputStream =
    create(path, overwrite, bufferSize, replication, blockSize, progress)
  override def rename(from: Path, to: Path): Boolean = far(super.rename(from, to))
  override def delete(path: Path, recursive: Boolean): Boolean = far(super.delete(path, recursive))
  override def listStatus(path: Path): Array[FileStatus] = far(super.listStatus(path))
  override def mkdirs(path: Path, permission: FsPermission): Boolean = far(super.mkdirs(path))
  override def exists(path: Path): Boolean = far(super.exists(path))
  override def getFileStatus(path: Path): FileStatus = far(super.getFileStatus(path))
  override def setPermission(path: Path, permission: FsPermission): Unit = ()
}
