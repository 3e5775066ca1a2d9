package tether.sql

import java.math.BigDecimal

/**
 * θ of one store: its share of Θ, halved by each failure. The arithmetic of `tether.core.thresholds`,
 * rounded down at each step as there; tests compare the two on shared vectors.
 */
object Thresholds {
  /** Θ / copies, never above the exact quotient. */
  def share(total: Double, copies: Long): Double =
    if (total.isInfinite) total else {
      val quotient = total / copies
      val back = new BigDecimal(quotient).multiply(BigDecimal.valueOf(copies))
      if (back.compareTo(new BigDecimal(total)) > 0) Math.nextAfter(quotient, 0.0) else quotient
    }

  def halved(value: Double, times: Int): Double = {
    val half = Math.scalb(value, -times)
    if (!half.isInfinite && Math.scalb(half, times) > value) Math.nextAfter(half, 0.0) else half
  }

  /** θ after `failures` restores that lost something. */
  def theta(total: Double, copies: Long, failures: Int): Double =
    halved(halved(share(total, copies), 1), failures)
}
