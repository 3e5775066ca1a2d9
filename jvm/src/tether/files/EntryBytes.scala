package tether.files

import java.io.{ByteArrayInputStream, EOFException}

import org.apache.hadoop.fs.{FSDataInputStream, PositionedReadable, Seekable}

/** Bytes in memory, as Hadoop's streams want them. */
private[files] final class EntryBytes(bytes: Array[Byte])
    extends ByteArrayInputStream(bytes) with Seekable with PositionedReadable {
  def stream: FSDataInputStream = new FSDataInputStream(this)

  override def seek(position: Long): Unit = {
    if (position < 0 || position > count) throw new EOFException(s"$position is not within $count bytes")
    pos = position.toInt
  }

  override def getPos: Long = pos
  override def seekToNewSource(position: Long): Boolean = false

  override def read(position: Long, buffer: Array[Byte], offset: Int, length: Int): Int =
    if (position >= count) -1
    else {
      val part = math.min(length, count - position.toInt)
      System.arraycopy(bytes, position.toInt, buffer, offset, part)
      part
    }

  override def readFully(position: Long, buffer: Array[Byte], offset: Int, length: Int): Unit =
    if (position + length > count) throw new EOFException(s"$length bytes from $position are not within $count")
    else read(position, buffer, offset, length)

  override def readFully(position: Long, buffer: Array[Byte]): Unit = readFully(position, buffer, 0, buffer.length)
}
