package tether.sql

import java.io.{BufferedReader, FileNotFoundException, InputStreamReader}
import java.nio.charset.StandardCharsets.UTF_8

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s._
import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.sql.execution.streaming.state.StateStoreId

/** What a store reads in Spark's own logs, beside the folder of the query's state. */
object CheckpointLogs {
  /**
   * Whether the driver has noted a batch as done: then no restart runs it again. One that is still on its
   * way to a checkpoint far away is not noted yet.
   */
  def isCommitted(id: StateStoreId, batch: Long, conf: Configuration): Boolean = {
    val commit = new Path(new Path(id.checkpointRootLocation).getParent, s"commits/$batch")
    commit.getFileSystem(conf).exists(commit)
  }

  /**
   * The watermark, in microseconds, with which a batch was run; the least value where it is not known.
   *
   * Only for a query with one stateful operator: others have watermarks of their own.
   */
  def watermark(id: StateStoreId, batch: Long, conf: Configuration): Long = {
    val root = new Path(id.checkpointRootLocation)
    val fs = root.getFileSystem(conf)
    val alone = id.operatorId == 0 && !fs.exists(new Path(root, "1"))
    if (!alone || batch < 0) Long.MinValue else {
      try {
        val in = new BufferedReader(new InputStreamReader(fs.open(new Path(root.getParent, s"offsets/$batch")), UTF_8))
        val lines = try Iterator.continually(in.readLine()).takeWhile(_ != null).take(2).toList finally in.close()
        lines.lift(1).map(parse(_) \ "batchWatermarkMs") match {
          case Some(JInt(millis)) => millis.toLong * 1000
          case _ => Long.MinValue
        }
      } catch { case _: FileNotFoundException => Long.MinValue }
    }
  }
}
