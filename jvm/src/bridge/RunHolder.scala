package org.apache.spark.sql.execution.streaming.state

import java.util.UUID

import scala.concurrent.Future
import scala.util.control.NonFatal

import org.apache.spark.SparkEnv
import org.apache.spark.internal.Logging
import org.apache.spark.rpc.{RpcCallContext, RpcEndpoint, RpcEndpointRef, RpcEnv}

/**
 * A process that holds stores: has them retired when the driver says that a run is over, or Spark stops here.
 *
 * @param retire makes durable what a run has in memory here; gives what went wrong
 */
private final class RunHolder(
    override val rpcEnv: RpcEnv, retire: String => Seq[String], retireAll: () => Unit) extends RpcEndpoint {
  override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
    case (RunEnds.Retire, run: String) =>
      Future(context.reply(retire(run)))(RunEnds.threads).failed.foreach(context.sendFailure)(RunEnds.threads)
  }

  override def onStop(): Unit = retireAll()
}

object RunHolder extends Logging {
  private var made: Option[(RpcEnv, RpcEndpointRef)] = None

  /** Tells the driver that this process has stores of a run from now on. */
  def announce(run: String, retire: String => Seq[String], retireAll: () => Unit): Unit = {
    val env = SparkEnv.get
    if (env != null) {
      try RunEnds.driver(env).askSync[Boolean]((RunEnds.Holds, run, holder(env, retire, retireAll))) catch {
        case NonFatal(error) => logWarning(
          s"Tether: the stores of run $run are not made durable as soon as it ends, only when Spark closes them. Why: the " +
            "driver does not ask for it. What to do: start the query under tether.sql.bounded or builder.", error)
      }
    }
  }

  // A process may have one Spark after the other; and a jar that was added to two sessions is loaded twice.
  private def holder(env: SparkEnv, retire: String => Seq[String], retireAll: () => Unit): RpcEndpointRef =
    synchronized {
      made.collect { case (rpc, known) if rpc eq env.rpcEnv => known }.getOrElse {
        val endpoint = new RunHolder(env.rpcEnv, retire, retireAll)
        val ref = env.rpcEnv.setupEndpoint(s"TetherStores-${UUID.randomUUID()}", endpoint)
        made = Some((env.rpcEnv, ref))
        ref
      }
    }
}
