package org.apache.spark.sql.execution.streaming.state

import java.io.ByteArrayOutputStream

import org.apache.avro.generic.{GenericDatumReader, GenericDatumWriter}
import org.apache.avro.io.{DecoderFactory, EncoderFactory}

import org.apache.spark.sql.avro.{AvroDeserializer, AvroOptions, AvroSerializer, SchemaConverters}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types.StructType

/**
 * Makes rows of the schema that a query had of rows of one that it had before.
 *
 * Spark lets the state of transformWithState change its schema where Avro could read the old one as the new one, and has
 * checked that before any row is read. So Avro is asked here too: a row is written as it was, and read as it shall be.
 */
final class RowEvolution(before: StructType, now: StructType) {
  private val written = SchemaConverters.toAvroTypeWithDefaults(before)
  private val wanted = SchemaConverters.toAvroTypeWithDefaults(now)
  private val serializer = new AvroSerializer(before, written, nullable = false)
  private val writer = new GenericDatumWriter[Any](written)
  private val reader = new GenericDatumReader[Any](written, wanted)
  private val deserializer = {
    val options = AvroOptions(Map.empty[String, String])
    new AvroDeserializer(wanted, now, options.datetimeRebaseModeInRead, options.useStableIdForUnionType,
      options.stableIdPrefixForUnionType, options.recursiveFieldMaxDepth)
  }
  private val projection = UnsafeProjection.create(now)
  private val row = new UnsafeRow(before.length)

  def apply(bytes: Array[Byte]): Array[Byte] = {
    row.pointTo(bytes, bytes.length)
    val out = new ByteArrayOutputStream
    val encoder = EncoderFactory.get().directBinaryEncoder(out, null)
    writer.write(serializer.serialize(row), encoder)
    encoder.flush()
    val record = reader.read(null, DecoderFactory.get().binaryDecoder(out.toByteArray, null))
    projection(deserializer.deserialize(record).get.asInstanceOf[InternalRow]).getBytes.clone()
  }
}
