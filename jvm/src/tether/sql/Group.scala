package tether.sql

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * The stores of one partition of one operator that are committed by the same task.
 *
 * A stream-stream join keeps counts and rows in separate stores. Restored at different versions they
 * would contradict each other, so they are backed up at the same versions: when the first of them
 * commits, all rows of the batch are in place, and it is decided for all.
 */
final class Group private (place: (String, String, Long, Int)) {
  private var members = Set.empty[BoundedStateStoreProvider]
  private var decidedFor = -1L
  private var decision = false

  def join(member: BoundedStateStoreProvider): Unit = synchronized { members += member }
  def leave(member: BoundedStateStoreProvider): Unit = synchronized {
    members -= member
    if (members.isEmpty) Group.groups.remove(place)
  }

  def isDue(version: Long): Boolean = synchronized {
    if (decidedFor != version) {
      decidedFor = version
      decision = false
    }
    decision ||= members.exists(member => member.books != null && member.isDue(member.theta))
    decision
  }
}

object Group {
  private val groups = new ConcurrentHashMap[(String, String, Long, Int), Group]()

  def of(runId: String, id: StateStoreId): Group = groups.computeIfAbsent(
    (runId, id.checkpointRootLocation, id.operatorId, id.partitionId), place => new Group(place))
}
