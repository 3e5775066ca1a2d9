package tether.files

import java.io.ByteArrayOutputStream

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

/** Keeps an entry's bytes until Spark has written all of them; then, or never, they are sent. */
private[files] final class EntryStream(send: Array[Byte] => Unit, bytes: ByteArrayOutputStream)
    extends CancellableFSDataOutputStream(bytes) {
  private var over = false

  def this(send: Array[Byte] => Unit) = this(send, new ByteArrayOutputStream)

  override def close(): Unit = synchronized {
    if (!over) {
      over = true
      flush()
      send(bytes.toByteArray)
    }
  }

  override def cancel(): Unit = synchronized {
    over = true
  }
}
