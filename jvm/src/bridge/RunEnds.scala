package org.apache.spark.sql.execution.streaming.state

import java.util.{Collections, LinkedHashMap, UUID}
import java.util.concurrent.{ConcurrentHashMap, CountDownLatch}

import scala.concurrent.{Await, ExecutionContext, Future}
import scala.concurrent.duration._
import scala.util.control.NonFatal

import org.apache.spark.SparkEnv
import org.apache.spark.internal.Logging
import org.apache.spark.rpc.{RpcCallContext, RpcEndpoint, RpcEndpointRef, RpcEnv, RpcTimeout}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.streaming.StreamingQueryListener
import org.apache.spark.sql.streaming.StreamingQueryListener._
import org.apache.spark.util.{RpcUtils, ThreadUtils}

/**
 * What the driver does when a run of a query is over: every process that holds stores of it makes them durable.
 *
 * `stop()` and `awaitTermination()` return after that. Messages are tuples of Scala's and Spark's own classes: those of a
 * jar that was added to a session are not known to the threads that read messages.
 */
object RunEnds extends Logging {
  final val Holds = "holds"
  final val Begins = "begins"
  final val Ends = "ends"
  final val Retire = "retire"
  final val Durable = "durable"
  private final val RunsRemembered = 10000
  private final val Name = "TetherRuns"
  private val longest = new RpcTimeout(10.minutes, "the time for last backups")

  private[state] val threads: ExecutionContext =
    ExecutionContext.fromExecutorService(ThreadUtils.newDaemonCachedThreadPool("tether-run-ends"))

  private[state] def driver(env: SparkEnv): RpcEndpointRef = RpcUtils.makeDriverRef(Name, env.conf, env.rpcEnv)

  /** For the queries that a session starts from now on. */
  def install(session: SparkSession): Unit = {
    serve()
    if (!session.streams.listListeners().exists(_.getClass.getName == classOf[RunEndsListener].getName)) {
      session.streams.addListener(new RunEndsListener)
    }
  }

  /** Lets holders find the driver; once is enough for each Spark. */
  private[state] def serve(): Unit = {
    val rpc = SparkEnv.get.rpcEnv
    try rpc.setupEndpoint(Name, new RunEnds(rpc)): Unit catch {
      case _: IllegalArgumentException => // it is there already
    }
  }

  private[state] def tell(message: Any): Unit =
    try {
      val failures = driver(SparkEnv.get).askSync[Seq[String]](message, longest)
      failures.foreach(failure => logWarning(s"Tether: not everything is durable at the end of a query: $failure"))
    } catch {
      case NonFatal(error) => logWarning("Tether: stores could not be told that their query has ended", error)
    }

  /** Whether a run is over, and everything that it had in memory then is durable. */
  def isDurable(run: String): Boolean =
    try driver(SparkEnv.get).askSync[Boolean]((Durable, run)) catch { case NonFatal(_) => false }
}

private final class RunEnds(override val rpcEnv: RpcEnv) extends RpcEndpoint {
  import RunEnds._

  private val holders = new ConcurrentHashMap[String, Set[RpcEndpointRef]]()
  private val ending = new ConcurrentHashMap[String, Future[Seq[String]]]()
  private val newestRun = new ConcurrentHashMap[String, String]()
  private val durable = Collections.synchronizedMap(new LinkedHashMap[String, Boolean] {
    override def removeEldestEntry(eldest: java.util.Map.Entry[String, Boolean]): Boolean = size > RunsRemembered
  })

  override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
    case (Holds, run: String, holder: RpcEndpointRef) =>
      holders.merge(run, Set(holder), _ ++ _)
      context.reply(true)
    case (Begins, query: String, run: String) =>
      // The run before may be over for Spark while its stores are still written.
      val before = Option(newestRun.put(query, run))
      before.fold(Future.successful(Seq.empty[String]))(end).foreach(context.reply)(threads)
    case (Ends, run: String) =>
      end(run).foreach(context.reply)(threads)
    case (Durable, run: String) =>
      context.reply(durable.containsKey(run))
  }

  private def end(run: String): Future[Seq[String]] = {
    val end = ending.computeIfAbsent(run, _ => Future(retire(run))(threads))
    end.onComplete(_ => ending.remove(run))(threads)
    end
  }

  private def retire(run: String): Seq[String] = {
    val asked = Option(holders.remove(run)).toSeq.flatten.map(holder =>
      (holder, holder.ask[Seq[String]]((Retire, run), longest)))
    val failures = asked.flatMap { case (holder, answer) =>
      try Await.result(answer, longest.duration) catch {
        case NonFatal(error) => Seq(s"${holder.address} does not answer: ${error.getMessage}")
      }
    }
    if (asked.nonEmpty && failures.isEmpty) durable.put(run, true)
    failures
  }
}

/** Sees queries begin, in their own threads, and ties what must happen at their ends to them. */
class RunEndsListener extends StreamingQueryListener with Logging {
  RunEnds.serve()
  private val untied = ConcurrentHashMap.newKeySet[UUID]()

  override def onQueryStarted(event: QueryStartedEvent): Unit = {
    RunEnds.tell((RunEnds.Begins, event.id.toString, event.runId.toString))
    try {
      val session = SparkSession.getActiveSession.orElse(SparkSession.getDefaultSession).get
      val query = session.sharedState.activeStreamingQueries.get(event.id)
      // stop() and awaitTermination() return when this latch, or the thread that counts it down, is through.
      val latch = classOf[StreamExecution].getDeclaredField("terminationLatch")
      latch.setAccessible(true)
      latch.set(query, new RunLatch(event.runId.toString))
    } catch {
      case NonFatal(error) =>
        logWarning("Tether: the end of a query does not wait until its state is durable", error)
        untied.add(event.runId)
    }
  }

  override def onQueryProgress(event: QueryProgressEvent): Unit = ()

  override def onQueryTerminated(event: QueryTerminatedEvent): Unit =
    if (untied.remove(event.runId)) RunEnds.tell((RunEnds.Ends, event.runId.toString))
}

private final class RunLatch(run: String) extends CountDownLatch(1) {
  override def countDown(): Unit =
    try if (getCount > 0) RunEnds.tell((RunEnds.Ends, run)) finally super.countDown()
}
