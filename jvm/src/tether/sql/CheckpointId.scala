package tether.sql

/**
 * The id of a committed version in Spark's checkpoint format 2, where the driver keeps one a partition.
 *
 * Ours tells which backup the version hangs on and how far it is from it. So the driver's commit log
 * says, for each partition, what to restore and what that loses, even if all executors are gone.
 *
 * @param unique the id in the names of backups of this very version: one may be written after the commit
 */
final case class CheckpointId(unique: String, durable: String, pending: String, divergence: Double) {
  def text: String = Seq("tether", unique, durable, pending, divergence.toString).mkString("/")
}

object CheckpointId {
  def parse(text: String): Option[CheckpointId] = text.split("/", -1) match {
    case Array("tether", unique, durable, pending, divergence) =>
      divergence.toDoubleOption.map(CheckpointId(unique, durable, pending, _))
    case _ => None
  }
}
