package org.apache.spark.sql.execution.streaming.state

import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.aggregate.{HashAggregateExec, SortAggregateExec}
import org.apache.spark.sql.execution.streaming.operators.stateful.{StateStoreRestoreExec, StateStoreSaveExec}

/**
 * Spares a streaming aggregation two of its three hash tables.
 *
 * Spark folds an epoch's rows by key, puts each key's stored row before its new one, folds these by key once more, stores
 * the result, and folds that a third time for its output. After the first time rows of one key are neighbours, and
 * after the second every key has one row: aggregation over sorted rows, which looks at neighbours only, gives the
 * same rows in the same order, without a table of all keys of the epoch.
 */
private object AdjacentGroups extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
    case found: HashAggregateExec if isOurs(found) && found.groupingExpressions.nonEmpty && comesGrouped(found) =>
      SortAggregateExec(
        found.requiredChildDistributionExpressions, found.isStreaming, found.numShufflePartitions,
        found.groupingExpressions, found.aggregateExpressions, found.aggregateAttributes,
        found.initialInputBufferOffset, found.resultExpressions, found.child)
  }

  private def isOurs(plan: SparkPlan): Boolean =
    plan.conf.stateStoreProviderClass == classOf[tether.sql.BoundedStateStoreProvider].getName

  private def comesGrouped(found: HashAggregateExec): Boolean = found.child match {
    case restore: StateStoreRestoreExec => restore.child match {
      case first: HashAggregateExec => first.groupingExpressions.map(_.toAttribute) == restore.keyExpressions
      case _ => false
    }
    case _: StateStoreSaveExec => true
    case _ => false
  }
}
