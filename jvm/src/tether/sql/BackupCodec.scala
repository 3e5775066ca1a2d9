package tether.sql

import java.io.{BufferedInputStream, BufferedOutputStream, DataInputStream, DataOutputStream}
import java.io.{EOFException, FilterInputStream, InputStream, IOException, OutputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.zip.{CRC32, CheckedInputStream, CheckedOutputStream}

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.TetherAccess

/**
 * Says of a backup what must be known before its rows are read.
 *
 * @param since first version whose changes are in it; `version`: no other's
 */
final case class Header(
    store: String, version: Long, since: Long, tag: String, parent: String, codec: String)

/**
 * A backup file: a plain header, compressed blocks of rows, a checksum over everything.
 *
 * {{{ magic | header | compressed: (kind, family, schema, rows, lengths, bytes)* end | CRC-32 | magic }}}
 *
 * Where all rows of a block are of the same lengths, as fixed-width columns make them, the first bytes of all
 * rows are written first, then the second bytes, and so on: rows are mostly made of zeros in the same places,
 * so the compressor finds long runs of them.
 *
 * A file without its last 12 bytes was never finished; one whose checksum differs has rotted. Neither
 * is ever taken for good.
 */
object BackupCodec {
  private final val Magic = 0x74455469 // a format that readers of today can read
  private final val TailBytes = 12L
  private final val End: Byte = 0
  private final val MostRows = 1 << 20 // blocks are cut long before
  private final val Uniform: Byte = 16 // added to the kind of a block

  /** Writes all blocks that `rows` gives; gives the number of bytes written. */
  def write(out: OutputStream, header: Header, rows: (RowBlock => Unit) => Unit): Long = {
    val counted = new CountingStream(new BufferedOutputStream(out, 1 << 16))
    val checksum = new CRC32
    val checked = new CheckedOutputStream(counted, checksum)
    val plain = new DataOutputStream(checked)
    plain.writeInt(Magic)
    writeText(plain, header.store)
    plain.writeLong(header.version)
    plain.writeLong(header.since)
    Seq(header.tag, header.parent, header.codec).foreach(writeText(plain, _))
    plain.flush()

    val body = new DataOutputStream(
      new BufferedOutputStream(TetherAccess.compressed(header.codec, new Unclosed(checked)), 1 << 16))
    rows(writeBlock(body, _))
    body.writeByte(End)
    body.close()

    val sum = checksum.getValue
    val tail = new DataOutputStream(counted)
    tail.writeLong(sum)
    tail.writeInt(Magic)
    tail.flush()
    counted.bytes
  }

  private def writeBlock(out: DataOutputStream, block: RowBlock): Unit = if (block.count > 0) {
    val uniform = block.isUniform
    val bytes = block.ends(block.count - 1)
    out.writeByte(if (uniform) block.kind + Uniform else block.kind)
    writeText(out, block.family)
    writeText(out, block.schema)
    out.writeInt(block.count)
    if (uniform) {
      out.writeInt(block.keys(0))
      out.writeInt(block.ends(0))
      out.write(turned(block.data, block.count, block.ends(0)))
    } else {
      var row = 0
      while (row < block.count) {
        out.writeInt(block.keys(row))
        out.writeInt(block.ends(row))
        row += 1
      }
      out.write(block.data, 0, bytes)
    }
  }

  /** From `rows` times `width` bytes to `width` times `rows`; back again with the arguments swapped. */
  private def turned(data: Array[Byte], rows: Int, width: Int): Array[Byte] = {
    val made = new Array[Byte](rows * width)
    var column = 0
    var to = 0
    while (column < width) {
      var from = column
      val until = to + rows
      while (to < until) {
        made(to) = data(from)
        from += width
        to += 1
      }
      column += 1
    }
    made
  }

  /** Reads a whole file of `length` bytes; gives nothing of it unless all of it is good. */
  def read(in: InputStream, length: Long): (Header, Seq[RowBlock]) = {
    if (length <= TailBytes) throw new IOException(s"the file has $length bytes: it was never finished")
    val checksum = new CRC32
    val whole = new BufferedInputStream(in, 1 << 16)
    val body = new BoundedStream(whole, length - TailBytes)
    val checked = new CheckedInputStream(body, checksum)
    val plain = new DataInputStream(checked)
    if (plain.readInt() != Magic) throw new IOException("it does not begin like a backup")
    val store = readText(plain)
    val version = plain.readLong()
    val since = plain.readLong()
    val texts = Seq.fill(3)(readText(plain))
    val header = Header(store, version, since, texts(0), texts(1), texts(2))

    val rows = new DataInputStream(new BufferedInputStream(TetherAccess.decompressed(header.codec, checked), 1 << 16))
    val blocks = mutable.ArrayBuffer.empty[RowBlock]
    var kind = rows.readByte()
    while (kind != End) {
      blocks += readBlock(rows, kind)
      kind = rows.readByte()
    }
    val rest = new Array[Byte](1 << 12)
    while (checked.read(rest) > 0) {} // what the decompressor did not need
    val tail = new DataInputStream(whole)
    if (tail.readLong() != checksum.getValue) throw new IOException("its checksum does not match")
    if (tail.readInt() != Magic) throw new IOException("it does not end like a backup")
    (header, blocks.toSeq)
  }

  private def readBlock(in: DataInputStream, written: Byte): RowBlock = {
    val uniform = written >= Uniform
    val kind = (if (uniform) written - Uniform else written).toByte
    if (kind < RowBlock.Removed || kind > RowBlock.Several) throw new IOException(s"rows of unknown kind $kind")
    val family = readText(in)
    val schema = readText(in)
    val count = sized(in.readInt())
    if (count > MostRows) throw new IOException(s"a block of $count rows makes no sense")
    val keys = new Array[Int](count)
    val ends = new Array[Int](count)
    if (uniform) {
      java.util.Arrays.fill(keys, sized(in.readInt()))
      val width = sized(in.readInt())
      (0 until count).foreach(row => ends(row) = sized((row + 1L) * width))
    } else {
      (0 until count).foreach { row =>
        keys(row) = sized(in.readInt())
        ends(row) = sized(in.readInt())
      }
    }
    val data = readBytes(in, if (count == 0) 0 else ends(count - 1))
    new RowBlock(family, schema, kind, count, keys, ends, if (uniform) turned(data, ends(0), count) else data)
  }

  /** In steps: a length that has rotted must meet the end of the file, not the end of the memory. */
  private def readBytes(in: DataInputStream, length: Int): Array[Byte] = {
    var data = new Array[Byte](math.min(length, 1 << 20))
    var got = 0
    while (got < length) {
      if (got == data.length) data = java.util.Arrays.copyOf(data, math.min(length.toLong, 2L * got).toInt)
      in.readFully(data, got, data.length - got)
      got = data.length
    }
    data
  }

  private def sized(count: Long): Int =
    if (count < 0 || count > Int.MaxValue - 16) throw new IOException(s"a length of $count makes no sense") else count.toInt

  private def writeText(out: DataOutputStream, text: String): Unit = {
    val bytes = text.getBytes(UTF_8)
    out.writeInt(bytes.length)
    out.write(bytes)
  }

  private def readText(in: DataInputStream): String = {
    val length = in.readInt()
    if (length < 0 || length > (1 << 20)) throw new IOException(s"a text of $length bytes makes no sense")
    val bytes = new Array[Byte](length)
    in.readFully(bytes)
    new String(bytes, UTF_8)
  }

  private final class CountingStream(out: OutputStream) extends OutputStream {
    var bytes = 0L
    override def write(byte: Int): Unit = { out.write(byte); bytes += 1 }
    override def write(data: Array[Byte], from: Int, length: Int): Unit = {
      out.write(data, from, length)
      bytes += length
    }
    override def flush(): Unit = out.flush()
  }

  /** Ends a compressor's stream without ending the file. */
  private final class Unclosed(out: OutputStream) extends OutputStream {
    override def write(byte: Int): Unit = out.write(byte)
    override def write(data: Array[Byte], from: Int, length: Int): Unit = out.write(data, from, length)
    override def flush(): Unit = out.flush()
  }

  private final class BoundedStream(in: InputStream, private var left: Long) extends FilterInputStream(in) {
    override def read(): Int = if (left <= 0) -1 else {
      val byte = in.read()
      if (byte < 0) throw new EOFException("the file is shorter than it should be")
      left -= 1
      byte
    }
    override def read(data: Array[Byte], from: Int, length: Int): Int = if (left <= 0) -1 else {
      val got = in.read(data, from, math.min(length.toLong, left).toInt)
      if (got < 0) throw new EOFException("the file is shorter than it should be")
      left -= got
      got
    }
    override def available(): Int = math.min(in.available().toLong, left).toInt
    override def skip(count: Long): Long = 0L // every byte must pass the checksum
    override def markSupported(): Boolean = false
  }
}
