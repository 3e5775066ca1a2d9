package tether.sql

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.util.zip.CRC32

import scala.util.control.NonFatal

import org.json4s._
import org.json4s.jackson.JsonMethods.{compact, parse, render}

/** One restore that lost something: the most that it can have cost, in units of the divergence. */
final case class Loss(wanted: Long, got: Long, atMost: Double, extra: Double)

/**
 * Under which terms a store runs: θ now, and all that was lost so far.
 *
 * A new record is written whenever they change, before the batch that saw the change may commit: so the
 * number of failures is durable before anything comes of a restore, however often it crashes.
 */
final case class Terms(sequence: Long, theta: Double, maxStateError: Double, divergence: String, losses: List[Loss],
    file: String = "") {
  def failures: Int = losses.size
  def spent: Double = losses.map(loss => loss.atMost + loss.extra).sum
}

object Terms {
  private implicit val formats: Formats = DefaultFormats
  private val Name = raw"(\d+)-(\d+)-[0-9a-f]+\.terms".r

  // JSON knows no infinity, so amounts are written as text.
  private final case class LossText(wanted: Long, got: Long, atMost: String, extra: String)
  private final case class TermsText(
      sequence: Long, theta: String, maxStateError: String, divergence: String, losses: List[LossText])

  /** Gives the terms back with the name of their file. */
  def write(directory: BackupDirectory, terms: Terms): Terms = {
    val text = TermsText(terms.sequence, terms.theta.toString, terms.maxStateError.toString, terms.divergence,
      terms.losses.map(loss => LossText(loss.wanted, loss.got, loss.atMost.toString, loss.extra.toString)))
    val body = compact(render(Extraction.decompose(text)))
    val name = f"${terms.sequence}%08d-${terms.failures}-${BackupFile.newId()}.terms"
    directory.make(name)(_.write(s"$body\n${checksum(body)}\n".getBytes(UTF_8)))
    terms.copy(file = name)
  }

  /**
   * The newest readable record; unreadable ones are told to `report` and passed over. How many losses such
   * a one knew of is in its name: those missing are taken to have cost θ each, for what they did is gone.
   */
  def newest(directory: BackupDirectory, report: String => Unit): Option[Terms] = {
    val names = directory.list().map(_.getPath.getName).collect {
      case name @ Name(sequence, failures) => (sequence.toLong, failures.toInt, name)
    }
    val known = names.map(_._2).maxOption.getOrElse(0)
    names.sortBy(-_._1).iterator.flatMap { case (_, _, name) =>
      try Some(read(directory, name)) catch {
        case NonFatal(error) =>
          report(s"$name cannot be read: ${error.getMessage}")
          None
      }
    }.nextOption().map { terms =>
      val missing = known - terms.failures
      terms.copy(
        sequence = names.map(_._1).max,
        losses = terms.losses ++ List.fill(missing)(Loss(-1L, -1L, terms.theta, 0.0)))
    }
  }

  private def read(directory: BackupDirectory, name: String): Terms = {
    val in = directory.open(name)
    val lines = try new String(in.readAllBytes(), UTF_8).split("\n") finally in.close()
    if (lines.length != 2 || lines(1) != checksum(lines(0))) throw new IOException("its checksum does not match")
    val text = parse(lines(0)).extract[TermsText]
    Terms(text.sequence, text.theta.toDouble, text.maxStateError.toDouble, text.divergence,
      text.losses.map(loss => Loss(loss.wanted, loss.got, loss.atMost.toDouble, loss.extra.toDouble)), name)
  }

  private def checksum(body: String): String = {
    val sum = new CRC32
    sum.update(body.getBytes(UTF_8))
    f"${sum.getValue}%08x"
  }
}
