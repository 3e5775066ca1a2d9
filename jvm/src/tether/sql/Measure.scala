package tether.sql

import java.util.function.DoubleBinaryOperator

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.Platform

/** How far rows are from their last backup: what one changed row adds, and what the sum means. */
sealed abstract class Divergence(val name: String) {
  /** What one row with these differences adds to the running total. */
  def of(differences: Array[Double]): Double
  def combine(total: Double, part: Double): Double = total + part
  /** The divergence of a running total. */
  def value(total: Double): Double = total
}

object Divergence {
  /** The number of rows that changed. */
  case object Count extends Divergence("count") {
    override def of(differences: Array[Double]): Double = 1.0
  }
  case object L1 extends Divergence("l1") {
    override def of(differences: Array[Double]): Double = fold(differences)((sum, d) => sum + math.abs(d))
  }
  case object L2 extends Divergence("l2") {
    override def of(differences: Array[Double]): Double = fold(differences)((sum, d) => sum + d * d)
    override def value(total: Double): Double = math.sqrt(math.max(total, 0.0))
  }
  case object Max extends Divergence("max") {
    override def of(differences: Array[Double]): Double = fold(differences)((most, d) => math.max(most, math.abs(d)))
    override def combine(total: Double, part: Double): Double = math.max(total, part)
  }

  private def fold(differences: Array[Double])(step: DoubleBinaryOperator): Double = {
    var sum = 0.0
    var index = 0
    while (index < differences.length) {
      sum = step.applyAsDouble(sum, differences(index))
      index += 1
    }
    sum
  }

  val all: Seq[Divergence] = Seq(Count, L1, L2, Max)

  def named(name: String): Divergence = all.find(_.name == name).getOrElse(
    throw new IllegalArgumentException(
      s"divergence=$name is not known. Why: rows are compared by one of " +
        s"${all.map(_.name).mkString(", ")}. What to do: set ${Settings.Divergence} to one of these."))
}

/**
 * What a column family contributes to the divergence.
 *
 * A family that has none of the chosen columns (a timer index, say) counts 1 for each changed row.
 */
final class Measure(val divergence: Divergence, ordinals: Array[Int], types: Array[DataType]) {
  val columns: Int = ordinals.length
  private val differences = new Array[Double](math.max(columns, 1))

  /** The measured column as a number; null counts as nothing. */
  def read(row: UnsafeRow, index: Int): Double = {
    val ordinal = ordinals(index)
    if (row.isNullAt(ordinal)) 0.0 else types(index) match {
      case ByteType => row.getByte(ordinal).toDouble
      case ShortType => row.getShort(ordinal).toDouble
      case IntegerType => row.getInt(ordinal).toDouble
      case LongType => row.getLong(ordinal).toDouble
      case FloatType => row.getFloat(ordinal).toDouble
      case DoubleType => row.getDouble(ordinal)
      case decimal: DecimalType =>
        row.getDecimal(ordinal, decimal.precision, decimal.scale).toDouble
    }
  }

  /**
   * What a dirty row adds to the running total; `row` null: it was removed.
   *
   * @param base, offset where the columns are as they were in the last backup
   */
  def contribution(base: AnyRef, offset: Long, inBase: Boolean, row: UnsafeRow): Double =
    if (row == null && !inBase) 0.0 else {
      var index = 0
      while (index < columns) {
        val now = if (row == null) 0.0 else read(row, index)
        val before = Platform.getDouble(base, offset + 8L * index)
        val difference = now - before
        // NaN is comparable with nothing: take it as far away, so that it is backed up at once.
        differences(index) =
          if (now == before) 0.0 else if (difference.isNaN) Double.PositiveInfinity else difference
        index += 1
      }
      divergence.of(differences)
    }
}

object Measure {
  private def isNumeric(dataType: DataType): Boolean = dataType match {
    case _: NumericType => true
    case _ => false
  }

  /** For rows of this schema; with no columns named, all numeric ones are measured. */
  def of(divergence: Divergence, columns: Seq[String], schema: StructType): Measure = {
    val wanted = if (divergence == Divergence.Count) Seq.empty[Int] else schema.indices.filter { at =>
      isNumeric(schema(at).dataType) && (columns.isEmpty || columns.contains(schema(at).name))
    }
    new Measure(divergence, wanted.toArray, wanted.map(schema(_).dataType).toArray)
  }
}
