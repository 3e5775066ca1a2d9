package tether.files

import scala.collection.mutable

import org.apache.hadoop.fs.Path

/** The newest entries of one log that this process has written itself, so that they need not be fetched to be read. */
private[files] final class OwnEntries {
  private val Numbered = """(\d+)(?:\.compact)?""".r
  private val entries = mutable.LinkedHashMap.empty[Path, Array[Byte]]
  private var newest = Long.MaxValue
  private var size = 0L

  def add(entry: Path, bytes: Array[Byte]): Unit = synchronized {
    numberOf(entry).foreach { found =>
      newest = found
      entries.put(entry, bytes)
      size += bytes.length
      while (entries.size > OwnEntries.Most || (size > OwnEntries.MostBytes && entries.nonEmpty)) remove(entries.head._1)
    }
  }

  def get(entry: Path): Option[Array[Byte]] = synchronized(entries.get(entry))

  def remove(entry: Path): Unit = synchronized {
    entries.remove(entry).foreach(bytes => size -= bytes.length)
  }

  /** Whether an entry would come after all that this process has written, if it has written any. */
  def isNew(entry: Path): Boolean = synchronized(numberOf(entry).exists(_ > newest))

  private def numberOf(entry: Path): Option[Long] = entry.getName match {
    case Numbered(digits) => digits.toLongOption
    case _ => None
  }
}

private[files] object OwnEntries {
  /** Sources merge their last ten entries into one, which reads them. */
  final val Most = 16
  final val MostBytes = 1L << 20
}
