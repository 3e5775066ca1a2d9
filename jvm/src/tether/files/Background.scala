package tether.files

import java.util.concurrent.{CompletableFuture, ExecutorService, Executors, TimeUnit}

import org.apache.hadoop.fs.FileSystem
import org.apache.hadoop.util.ShutdownHookManager

/** Threads for requests that nobody waits for yet. */
private[files] object Background {
  private final val LongestExitSeconds = 30L

  val threads: ExecutorService = Executors.newCachedThreadPool { work =>
    val thread = new Thread(work, "tether-checkpoint-files")
    thread.setDaemon(true)
    thread
  }

  def run(work: Runnable): CompletableFuture[Void] = CompletableFuture.runAsync(work, threads)

  def call[A](work: () => A): CompletableFuture[A] = CompletableFuture.supplyAsync(() => work(), threads)

  /** Runs before Hadoop closes its file systems, when the JVM ends in order. */
  def beforeExit(work: Runnable): Unit = ShutdownHookManager.get()
    .addShutdownHook(work, FileSystem.SHUTDOWN_HOOK_PRIORITY + 1, LongestExitSeconds, TimeUnit.SECONDS)
}
