package tether.sql

import java.util.ArrayList

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.{KeyStateEncoderSpec, NoPrefixKeyStateEncoderSpec, StateStoreId, UnsafeRowDataEncoder}
import org.apache.spark.sql.types.StructType

/** What Spark said of a column family when it created it. */
final case class FamilySpec(
    name: String, keySchema: StructType, valueSchema: StructType, encoder: KeyStateEncoderSpec, many: Boolean)

/** The rows of one store, by column family. */
final class Resident(settings: Settings) {
  private val specs = mutable.LinkedHashMap.empty[String, FamilySpec]
  private val families = mutable.LinkedHashMap.empty[String, Family]

  def names: Set[String] = specs.keySet.toSet
  def isRegistered(name: String): Boolean = specs.contains(name)
  def get(name: String): Family = families.getOrElse(name, null)

  /** Makes a family known. Rows of it that a restore has brought before are taken over. */
  def register(spec: FamilySpec): Unit = if (!specs.contains(spec.name)) {
    specs(spec.name) = spec
    val made = build(spec)
    families.get(spec.name).foreach(_.records.foreach(made.load))
    families(spec.name) = made
  }

  /** Takes a family away; its rows must have been removed before. */
  def forget(name: String): Unit = {
    specs.remove(name)
    families.remove(name)
  }

  def clear(): Unit = {
    families.clear()
    specs.values.foreach(spec => families(spec.name) = build(spec))
  }

  def load(record: Record): Unit =
    families.getOrElseUpdate(record.family, unregistered(record.family)).load(record)

  def liveKeys: Long = families.valuesIterator.map(_.liveKeys).sum
  def bytes: Long = families.valuesIterator.map(family => family.entryBytes + family.table.bytes).sum

  /** Every row, as of now, for a backup that is written while the rows go on changing. */
  def everything(): Iterator[(Family, AnyRef, Boolean)] =
    families.values.toVector.map(family => (family, family.live)).iterator.flatMap { case (family, rows) =>
      rows.map((family, _, false))
    }

  def familyNames: Seq[String] = families.keys.toVector

  private def build(spec: FamilySpec): Family = {
    // A list has no columns to compare: it counts as one changed row.
    val measure =
      if (spec.many) new Measure(settings.divergence, Array.empty, Array.empty)
      else Measure.of(settings.divergence, settings.columns, spec.valueSchema)
    val table = spec.encoder match {
      case _: NoPrefixKeyStateEncoderSpec => new HashTable(Entry.keyStart(measure.columns))
      case ordered => new SortedTable(
        ordered.toEncoder(new UnsafeRowDataEncoder(ordered, spec.valueSchema), false))
    }
    new Family(spec.name, spec.keySchema, spec.valueSchema, table, measure, spec.many)
  }

  private def unregistered(name: String): Family = new Family(name, new StructType(), new StructType(),
    new HashTable(Entry.keyStart(0)), new Measure(settings.divergence, Array.empty, Array.empty), false)
}

object Resident {
  /** Refuses columns that no row has, where an operator's rows are all of one kind. */
  def checkColumns(settings: Settings, id: StateStoreId, useColumnFamilies: Boolean, values: StructType): Unit =
    if (settings.divergence != Divergence.Count && settings.columns.nonEmpty && !useColumnFamilies
        && id.storeName == StateStoreId.DEFAULT_STORE_NAME
        && Measure.of(settings.divergence, settings.columns, values).columns == 0) {
      throw new IllegalArgumentException(
        s"No column of ${settings.columns.mkString(", ")} is a number in the state of operator ${id.operatorId}. " +
          s"Why: its rows have ${values.map(field => s"${field.name} ${field.dataType.sql}").mkString(", ")}. " +
          s"What to do: choose columns among these, or leave ${Settings.Columns} out.")
    }
}

/** The rows that a backup must hold: each touched row as it is now. */
object Capture {
  def apply(books: Seq[Books]): ArrayList[(Family, AnyRef, Boolean)] = {
    val rows = new ArrayList[(Family, AnyRef, Boolean)](books.map(_.touched.size).sum)
    books.foreach { book =>
      var at = 0
      while (at < book.touched.size) {
        val family = book.families.get(at)
        val entry = book.touched.get(at)
        val now = family.current(entry)
        rows.add(if (now == null) (family, entry, true) else (family, now, false))
        at += 1
      }
    }
    rows
  }
}
