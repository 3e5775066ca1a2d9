package org.apache.spark.sql.execution.streaming.state

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.util.NextIterator

/** Gives the changes of a store to Spark's state reader, in the form that it wants. */
trait ChangeFeed extends SupportsFineGrainedReplay {
  /** Kind of change, key, value (null where the row is gone) and batch, for all versions from `first` to `last`. */
  protected def changes(
      first: Long, last: Long, family: String, id: Option[String]): Iterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)]

  override def getStateStoreChangeDataReader(
      startVersion: Long, endVersion: Long, colFamilyNameOpt: Option[String], endVersionStateStoreCkptId: Option[String])
      : NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] = {
    val found = changes(
      startVersion, endVersion, colFamilyNameOpt.getOrElse(StateStore.DEFAULT_COL_FAMILY_NAME), endVersionStateStoreCkptId)
    new NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] {
      override protected def getNext(): (RecordType.Value, UnsafeRow, UnsafeRow, Long) =
        if (found.hasNext) found.next() else {
          finished = true
          null
        }
      override protected def close(): Unit = ()
    }
  }
}
