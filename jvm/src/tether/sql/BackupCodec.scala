package tether.sql

import java.io.{BufferedInputStream, BufferedOutputStream, DataInputStream, DataOutputStream}
import java.io.{EOFException, FilterInputStream, InputStream, IOException, OutputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.zip.{CRC32, CheckedInputStream, CheckedOutputStream}

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.TetherAccess

/** Says of a backup what must be known before its rows are read. */
final case class Header(
    store: String, version: Long, tag: String, parent: String, codec: String, families: Seq[String])

/**
 * A backup file: a plain header, compressed rows, a checksum over everything.
 *
 * {{{ magic | header | compressed: (family, key, values)* end | CRC-32 | magic }}}
 *
 * A file without its last 12 bytes was never finished; one whose checksum differs has rotted. Neither
 * is ever taken for good.
 */
object BackupCodec {
  private final val Magic = 0x74455468 // a format that readers of today can read
  private final val TailBytes = 12L
  private final val End: Byte = 0
  private final val Removed: Byte = 1
  private final val One: Byte = 2
  private final val Several: Byte = 3

  /** Writes the rows of `entries`; gives the number of bytes written. */
  def write(out: OutputStream, header: Header, entries: Iterator[(Family, AnyRef, Boolean)]): Long = {
    val counted = new CountingStream(new BufferedOutputStream(out, 1 << 16))
    val checksum = new CRC32
    val checked = new CheckedOutputStream(counted, checksum)
    val plain = new DataOutputStream(checked)
    plain.writeInt(Magic)
    writeText(plain, header.store)
    plain.writeLong(header.version)
    Seq(header.tag, header.parent, header.codec).foreach(writeText(plain, _))
    plain.writeInt(header.families.size)
    header.families.foreach(writeText(plain, _))
    plain.flush()

    val numbers = header.families.zipWithIndex.toMap
    val rows = new DataOutputStream(
      new BufferedOutputStream(TetherAccess.compressed(header.codec, new Unclosed(checked)), 1 << 16))
    var last: Family = null
    var number = 0
    while (entries.hasNext) {
      val (family, entry, gone) = entries.next()
      if (family ne last) {
        last = family
        number = numbers(family.name)
      }
      writeRow(rows, number, family, entry, gone)
    }
    rows.writeByte(End)
    rows.close()

    val sum = checksum.getValue
    val tail = new DataOutputStream(counted)
    tail.writeLong(sum)
    tail.writeInt(Magic)
    tail.flush()
    counted.bytes
  }

  private def writeRow(out: DataOutputStream, number: Int, family: Family, entry: AnyRef, gone: Boolean): Unit = {
    val head = Entry.head(entry)
    val start = Entry.keyStart(family.measure.columns)
    val keyBytes = Entry.keyLength(head)
    def prefix(kind: Byte): Unit = {
      out.writeByte(kind)
      out.writeShort(number)
      out.writeInt(keyBytes)
      out.write(head, start, keyBytes)
    }
    entry match {
      case _ if gone || Entry.isDead(head) => prefix(Removed)
      case bytes: Array[Byte] =>
        prefix(One)
        out.writeInt(bytes.length - start - keyBytes)
        out.write(bytes, start + keyBytes, bytes.length - start - keyBytes)
      case several: Many =>
        prefix(Several)
        out.writeInt(several.values.size)
        several.values.foreach { value =>
          out.writeInt(value.length)
          out.write(value)
        }
    }
  }

  /** Reads a whole file of `length` bytes; gives nothing of it unless all of it is good. */
  def read(in: InputStream, length: Long): (Header, mutable.ArrayBuffer[Record]) = {
    if (length <= TailBytes) throw new IOException(s"the file has $length bytes: it was never finished")
    val checksum = new CRC32
    val whole = new BufferedInputStream(in, 1 << 16)
    val body = new BoundedStream(whole, length - TailBytes)
    val checked = new CheckedInputStream(body, checksum)
    val plain = new DataInputStream(checked)
    if (plain.readInt() != Magic) throw new IOException("it does not begin like a backup")
    val store = readText(plain)
    val version = plain.readLong()
    val texts = Seq.fill(3)(readText(plain))
    val families = Vector.fill(sized(plain.readInt(), length))(readText(plain))
    val header = Header(store, version, texts(0), texts(1), texts(2), families)

    val rows = new DataInputStream(new BufferedInputStream(TetherAccess.decompressed(header.codec, checked), 1 << 16))
    val records = mutable.ArrayBuffer.empty[Record]
    var kind = rows.readByte()
    while (kind != End) {
      val family = families(rows.readUnsignedShort())
      val key = readBytes(rows)
      val values = kind match {
        case Removed => null
        case One => Vector(readBytes(rows))
        case Several => Vector.fill(rows.readInt())(readBytes(rows))
        case other => throw new IOException(s"a row of unknown kind $other")
      }
      records += new Record(family, key, values, kind == Several)
      kind = rows.readByte()
    }
    while (checked.read(new Array[Byte](1 << 12)) > 0) {} // what the decompressor did not need
    val tail = new DataInputStream(whole)
    if (tail.readLong() != checksum.getValue) throw new IOException("its checksum does not match")
    if (tail.readInt() != Magic) throw new IOException("it does not end like a backup")
    (header, records)
  }

  private def sized(count: Int, limit: Long): Int =
    if (count < 0 || count > limit) throw new IOException(s"a length of $count makes no sense") else count

  private def readBytes(in: DataInputStream): Array[Byte] = {
    val bytes = new Array[Byte](sized(in.readInt(), Int.MaxValue))
    in.readFully(bytes)
    bytes
  }

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
