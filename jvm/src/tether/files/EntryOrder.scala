package tether.files

import java.util.concurrent.{CompletableFuture, CompletionException, ExecutionException}

import org.apache.spark.internal.Logging

/**
 * The entries of one checkpoint that are on their way, in the order in which they were written.
 *
 * An entry appears only when all before it are through. Once one has failed, no later one appears that is written by
 * anybody who was there before the failure: the query ends with what went wrong, and the one that is started
 * after it finds an order without gaps.
 */
private[files] final class EntryOrder extends Logging {
  private var last: CompletableFuture[Void] = CompletableFuture.completedFuture(null)
  private var failures = 0
  private var reason: Throwable = _

  /** How many entries have failed so far: who begins to write now is not concerned by them. */
  def failed: Int = synchronized(failures)

  /** Lets an entry appear when it is `ready` and those before it are through; `born`: `failed` at the writer's start. */
  def follow(born: Int, ready: CompletableFuture[Void])(appear: () => Unit): CompletableFuture[Void] = synchronized {
    val entry = last.thenCombine[Void, Void](ready, (_, _) => null).thenRunAsync(() => {
      synchronized(if (failures > born) throw reason)
      appear()
    }, Background.threads)
    last = entry.handle[Void]((_, error) => {
      if (error != null) record(causeOf(error))
      null
    })
    entry
  }

  /** Waits for an entry; throws what went wrong with it, or with one before it. */
  def await(entry: CompletableFuture[Void]): Unit =
    try entry.get()
    catch { case error: ExecutionException => throw causeOf(error) }

  /** Waits until nothing is on its way. */
  def settle(): Unit = synchronized(last).get()

  private def record(error: Throwable): Unit = synchronized {
    if (error ne reason) logWarning(s"An entry of a checkpoint's logs could not be written: $error")
    failures += 1
    reason = error
  }

  private def causeOf(error: Throwable): Throwable = error match {
    case _: ExecutionException | _: CompletionException if error.getCause != null => causeOf(error.getCause)
    case other => other
  }
}
