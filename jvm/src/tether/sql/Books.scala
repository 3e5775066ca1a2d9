package tether.sql

import java.util.ArrayList

/** What the batch in progress has replaced, in order, so that it can be taken back. */
final class Journal {
  private val steps = new ArrayList[AnyRef]()

  def add(family: Family, before: AnyRef, after: AnyRef): Unit = {
    steps.add(family)
    steps.add(before)
    steps.add(after)
  }

  def undo(): Unit = {
    var at = steps.size - 3
    while (at >= 0) {
      steps.get(at).asInstanceOf[Family].swap(steps.get(at + 2), steps.get(at + 1))
      at -= 3
    }
  }
}

/**
 * Which rows differ from the last backup, and by how much in total.
 *
 * @param generation number that rows written from now on carry; each started backup begins a new one
 * @param base tag of the backup that the differences are counted from; null: the empty state
 */
final class Books(val divergence: Divergence, val generation: Int, val base: String) {
  /** One entry for each row at its first change (the row may have been changed again since). */
  val families = new ArrayList[Family]()
  val touched = new ArrayList[AnyRef]()
  /** Running total of [[Divergence]], incremental. */
  var total = 0.0

  def touch(family: Family, entry: AnyRef): Unit = {
    families.add(family)
    touched.add(entry)
  }

  /** A row's part in the total went from `before` to `after`. */
  def account(before: Double, after: Double): Unit =
    total =
      if (divergence == Divergence.Max || after.isInfinite) divergence.combine(total, after)
      else total + (after - before)

  /** Sum up anew from the rows: what was added and taken away a million times has drifted. */
  def recount(): Double = {
    var exact = 0.0
    var at = 0
    val seen = new java.util.IdentityHashMap[AnyRef, AnyRef]()
    while (at < touched.size) {
      val family = families.get(at)
      val entry = family.current(touched.get(at))
      if (entry != null && Entry.generation(Entry.head(entry)) == generation && seen.put(entry, entry) == null) {
        exact = divergence.combine(exact, family.contribution(entry))
      }
      at += 1
    }
    total = exact
    value
  }

  def value: Double = divergence.value(total)

  def mark: Books.Mark = new Books.Mark(this, touched.size, total)
}

object Books {
  /** A place in the books to come back to. */
  final class Mark(val books: Books, size: Int, total: Double) {
    def value: Double = books.divergence.value(total)

    def restore(): Books = {
      while (books.touched.size > size) {
        books.touched.remove(books.touched.size - 1)
        books.families.remove(books.families.size - 1)
      }
      books.total = total
      books
    }
  }
}
