package org.apache.spark.sql.execution.streaming.state

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExecBase

/**
 * Lets transformWithState run on Tether's store.
 *
 * Spark allows that operator only on a store of one certain name, whatever the store can do. The list of
 * names is a value of the operator itself, so a node right above it adds ours just before it runs.
 */
class TetherExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit =
    for (rule <- Seq(AdmitTransformWithState, AdjacentGroups)) {
      extensions.injectColumnar(_ => new ColumnarRule {
        override def postColumnarTransitions: Rule[SparkPlan] = rule
      })
    }
}

object TetherExtensions {
  private val installed = new java.util.WeakHashMap[SparkSessionExtensions, java.lang.Boolean]()

  /** For a session that is there already: its streaming queries take the extension over when they start. */
  def install(session: SparkSession): Unit = synchronized {
    if (installed.put(session.extensions, true) == null) new TetherExtensions().apply(session.extensions)
    RunEnds.install(session)
  }
}

private object AdmitTransformWithState extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
    case operator: TransformWithStateExecBase
        if operator.conf.stateStoreProviderClass == classOf[tether.sql.BoundedStateStoreProvider].getName =>
      AdmittedTransformWithState(operator)
  }
}

/** Gives on what its child gives. */
case class AdmittedTransformWithState(child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override def supportsColumnar: Boolean = false

  override protected def doExecute(): RDD[InternalRow] = {
    val field = classOf[TransformWithStateExecBase].getDeclaredField("SUPPORTED_STATE_STORE_PROVIDERS")
    field.setAccessible(true)
    child.collectFirst { case operator: TransformWithStateExecBase => operator }.foreach { operator =>
      field.set(operator, Set(operator.conf.stateStoreProviderClass))
    }
    child.execute()
  }

  override protected def withNewChildInternal(newChild: SparkPlan): AdmittedTransformWithState = newChild match {
    case twice: AdmittedTransformWithState => twice
    case other => copy(child = other)
  }
}
