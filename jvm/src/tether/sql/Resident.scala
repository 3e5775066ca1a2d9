package tether.sql

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.{NoPrefixKeyStateEncoderSpec, RowEvolution, StateStoreId, UnsafeRowDataEncoder}
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.unsafe.Platform

/**
 * The rows of one store, by column family.
 *
 * @param evolving whether families may come back with another schema of their values
 */
final class Resident(settings: Settings, evolving: Boolean) {
  private val specs = mutable.LinkedHashMap.empty[String, FamilySpec]
  private val families = mutable.LinkedHashMap.empty[String, Family]
  /** Rows of families that this run of the query has not (yet) asked for. */
  private val waiting = mutable.LinkedHashMap.empty[String, mutable.ArrayBuffer[RowBlock]]

  def names: Set[String] = specs.keySet.toSet
  def isRegistered(name: String): Boolean = specs.contains(name)
  def get(name: String): Family = families.getOrElse(name, null)

  /** Makes a family known. Rows of it that a restore has brought before are taken over. */
  def register(spec: FamilySpec): Unit = if (!specs.contains(spec.name)) {
    specs(spec.name) = spec
    val made = build(spec)
    waiting.remove(spec.name).foreach(_.foreach(block => made.load(adapted(block))))
    families(spec.name) = made
  }

  def clear(): Unit = {
    families.clear()
    waiting.clear()
    specs.values.foreach(spec => families(spec.name) = build(spec))
  }

  def load(block: RowBlock): Unit = families.get(block.family) match {
    case Some(family) => family.load(adapted(block))
    case None => waiting.getOrElseUpdate(block.family, mutable.ArrayBuffer.empty) += block
  }

  private def schemaOf(name: String): String = if (evolving) specs(name).valueSchema.json else ""

  /** Rows of a registered family in the schema that it has now. */
  def adapted(block: RowBlock): RowBlock = {
    val now = schemaOf(block.family)
    if (block.schema == now || block.kind == RowBlock.Removed) block
    else {
      val before = DataType.fromJson(block.schema).asInstanceOf[StructType]
      val evolution = new RowEvolution(before, specs(block.family).valueSchema)
      val made = new BlockBuilder(block.family, now, block.kind)
      (0 until block.count).foreach { row =>
        val key = block.key(row)
        made.begin(key, Platform.BYTE_ARRAY_OFFSET, key.length)
        if (block.kind == RowBlock.Several) block.values(row).foreach(value => made.appendWithLength(evolution(value)))
        else {
          val value = evolution(block.value(row))
          made.append(value, Platform.BYTE_ARRAY_OFFSET, value.length)
        }
      }
      made.take()
    }
  }

  def spec(name: String): Option[FamilySpec] = specs.get(name)

  def liveKeys: Long = all.map(_.liveKeys).sum
  def bytes: Long = all.map(_.bytes).sum
  def all: Iterator[Family] = families.valuesIterator

  /** The rows that differ from the last backup. */
  def changed(books: Books): Seq[RowBlock] = {
    val blocks = Seq.newBuilder[RowBlock]
    all.foreach { family =>
      val sink = new BlockSink(family.name, schemaOf(family.name), block => blocks += block)
      family.capture(books, sink)
      sink.finish()
    }
    blocks.result()
  }

  /** Every row, as of now, for a backup that is written while the rows go on changing. */
  def everything(): (RowBlock => Unit) => Unit = {
    val unclaimed = waiting.values.flatten.toVector
    val readers = all.map(family => (family.name, family.everything())).toVector
    out => {
      readers.foreach { case (name, giveTo) =>
        val sink = new BlockSink(name, schemaOf(name), out)
        giveTo(sink)
        sink.finish()
      }
      unclaimed.foreach(out)
    }
  }

  private def build(spec: FamilySpec): Family = {
    // A list has no columns to compare: it counts as one changed row.
    val measure =
      if (spec.many) new Measure(settings.divergence, Array.empty, Array.empty)
      else Measure.of(settings.divergence, settings.columns, spec.valueSchema)
    spec.encoder match {
      case _: NoPrefixKeyStateEncoderSpec if !spec.many => new PackedFamily(spec, measure)
      case _: NoPrefixKeyStateEncoderSpec =>
        new EntryFamily(spec, new HashTable(Entry.keyStart(measure.columns)), measure)
      case ordered =>
        val encoder = ordered.toEncoder(new UnsafeRowDataEncoder(ordered, spec.valueSchema), false)
        new EntryFamily(spec, new SortedTable(encoder), measure)
    }
  }
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
