package tether.files

import java.io.{FileOutputStream, FilterOutputStream, OutputStream}
import java.net.URI

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, FSDataOutputStream, FileStatus, FileSystem, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/**
 * A local directory that answers as slowly as a store across a network: `slow:///path`.
 *
 * The price list is that of tether/testing/slow_store.py: a read, a write (once, when it is closed), a look at
 * one object, a listing and a deletion are one request each; renaming and making folders are free, since the
 * checkpoint file managers for object stores need neither.
 */
class SlowFileSystem extends RawLocalFileSystem {
  private var latency = 0L
  private var counter: Option[String] = None
  // What a call does inside belongs to the same request.
  private val inside = ThreadLocal.withInitial[java.lang.Boolean](() => false)

  override def initialize(name: URI, conf: Configuration): Unit = {
    super.initialize(name, conf)
    val environment = System.getenv()
    latency = (environment.getOrDefault("TETHER_SLOW_STORE_LATENCY", "0").toDouble * 1000).toLong
    counter = Option(environment.get("TETHER_SLOW_STORE_REQUESTS"))
  }

  override def getUri: URI = URI.create("slow:///")
  override def getScheme: String = "slow"

  private def request[A](work: => A): A =
    if (inside.get) work
    else {
      inside.set(true)
      try {
        pay(0)
        work
      } finally inside.set(false)
    }

  private def free[A](work: => A): A = {
    val before = inside.get
    inside.set(true)
    try work
    finally inside.set(before)
  }

  private def pay(bytesWritten: Long): Unit = {
    for (path <- counter) {
      val file = new FileOutputStream(path, true)
      try file.write(s"$bytesWritten\n".getBytes)
      finally file.close()
    }
    Thread.sleep(latency)
  }

  override def open(path: Path, buffer: Int): FSDataInputStream = request(super.open(path, buffer))

  override def create(
      path: Path, permission: FsPermission, overwrite: Boolean, buffer: Int, replication: Short, block: Long,
      progress: Progressable): FSDataOutputStream =
    paidAtClose(free(super.create(path, overwrite, buffer, replication, block, progress)))

  override def create(
      path: Path, overwrite: Boolean, buffer: Int, replication: Short, block: Long, progress: Progressable)
      : FSDataOutputStream =
    paidAtClose(free(super.create(path, overwrite, buffer, replication, block, progress)))

  private def paidAtClose(stream: FSDataOutputStream): FSDataOutputStream =
    if (inside.get) stream
    else new FSDataOutputStream(new PaidAtClose(stream), null)

  private class PaidAtClose(target: OutputStream) extends FilterOutputStream(target) {
    private var paid = false
    private var written = 0L
    override def write(byte: Int): Unit = {
      target.write(byte)
      written += 1
    }
    override def write(bytes: Array[Byte], from: Int, length: Int): Unit = {
      target.write(bytes, from, length)
      written += length
    }
    override def close(): Unit = {
      if (!paid) {
        paid = true
        pay(written)
      }
      super.close()
    }
  }

  override def rename(from: Path, to: Path): Boolean = free(super.rename(from, to))
  override def mkdirs(path: Path): Boolean = free(super.mkdirs(path))
  override def mkdirs(path: Path, permission: FsPermission): Boolean = free(super.mkdirs(path))
  override def delete(path: Path, recursive: Boolean): Boolean = request(super.delete(path, recursive))
  override def listStatus(path: Path): Array[FileStatus] = request(super.listStatus(path))
  override def getFileStatus(path: Path): FileStatus = request(super.getFileStatus(path))
  override def exists(path: Path): Boolean = request(super.exists(path))

  // Without Hadoop's native library these would fork a process each.
  override def setPermission(path: Path, permission: FsPermission): Unit = ()
}
