package tether.sql

import java.util.concurrent.{Callable, Executors, TimeUnit}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.FileSystem
import org.apache.hadoop.util.ShutdownHookManager

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.RunHolder

/**
 * The stores of this process that have something in memory, by the run of their query.
 *
 * Spark closes stores long after a query has ended, or never where the process ends before. So whoever knows of an end
 * retires them: the driver when a run is over (see [[RunHolder]]), Spark's environment when it stops, and this process
 * when it exits in good order.
 */
object Stores extends Logging {
  private final val MillisAtExit = 2000L
  private final val LongestExitSeconds = 60L
  private val byRun = mutable.HashMap.empty[String, mutable.Set[BoundedStateStoreProvider]]

  // More than there are cores: with a checkpoint far away they mostly wait for it.
  private val threads = Executors.newFixedThreadPool(8, (work: Runnable) => {
    val thread = new Thread(work, "tether-last-backups")
    thread.setDaemon(true)
    thread
  })

  ShutdownHookManager.get().addShutdownHook(
    () => retireAll(MillisAtExit), FileSystem.SHUTDOWN_HOOK_PRIORITY + 1, LongestExitSeconds, TimeUnit.SECONDS)

  def add(store: BoundedStateStoreProvider): Unit = {
    val isFirst = synchronized {
      val known = byRun.contains(store.run)
      byRun.getOrElseUpdate(store.run, mutable.Set.empty) += store
      !known
    }
    if (isFirst) RunHolder.announce(store.run, retire, () => retireAll(MillisAtExit))
  }

  def remove(store: BoundedStateStoreProvider): Unit = synchronized {
    byRun.get(store.run).foreach { stores =>
      stores -= store
      if (stores.isEmpty) byRun -= store.run
    }
  }

  /** Makes all durable that a run has in memory here; gives what went wrong. */
  def retire(run: String): Seq[String] = retire(synchronized(byRun.get(run).toSeq.flatten), _.retire())

  private def retireAll(millis: Long): Unit =
    retire(synchronized(byRun.values.toSeq.flatten), _.retire(millis)): Unit

  private def retire(
      stores: Seq[BoundedStateStoreProvider], end: BoundedStateStoreProvider => Option[String]): Seq[String] =
    threads.invokeAll(stores.map(store => (() => end(store)): Callable[Option[String]]).asJava)
      .asScala.toSeq.flatMap(_.get())
}
