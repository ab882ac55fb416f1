// SPDX-License-Identifier: Apache-2.0
// The Amdahl ladder: what the speedup would be if one limit after the other fell. The first rung starts from A, the
// others from B and are cumulative. Where B's precision is not lower than A's, or one profile is alone, the rungs are
// those of lower precisions.
#include <algorithm>

#include "explain/numbers.h"
#include "explain/parts.h"

namespace tessera {
namespace {

// Kernel time in pieces, as the next rung finds it. A rung changes one piece and prints the sum.
class Ladder {
 public:
  Ladder(const Case& c, const Sums& from, char base)
      : c_(c),
        base_(base),
        products_(from.products),
        attention_(from.attention),
        conversions_(from.conversions),
        others_(from.rest - from.conversions) {}

  void now() { add("now", c_.time(total()), false); }
  void products(const std::string& name, double us, const std::string& arithmetic, bool nominal) {
    if (!is_gain(products_, us)) return;
    products_ = us;
    nominal_ |= nominal;
    add(name, arithmetic + " + " + c_.time(total() - us), true);
  }
  void attention(const std::string& name, double us, const std::string& arithmetic, bool nominal) {
    if (!is_gain(attention_, us)) return;
    attention_ = us;
    nominal_ |= nominal;
    add(name, c_.time(products_) + " + " + arithmetic + " + " + c_.time(conversions_ + others_), true);
  }
  void drop_conversions() {
    if (!is_gain(conversions_, 0)) return;
    const std::string arithmetic = c_.time(total()) + " - " + c_.time(conversions_);
    conversions_ = 0;
    add("conversions gone", arithmetic, true);
  }
  void others_as_in_a(double us) {
    if (!is_gain(others_, us)) return;
    const std::string arithmetic = c_.time(total() - others_) + " + " + c_.time(us);
    others_ = us;
    add("no more work outside " + c_.products_and_attention() + " than in A", arithmetic, true);
  }
  void products_and_attention_alone() {
    if (conversions_ + others_ <= 0 || products_ + attention_ <= 0) return;
    conversions_ = others_ = 0;
    const std::string arithmetic = c_.time(products_) + (attention_ > 0 ? " + " + c_.time(attention_) : "");
    add("nothing memory-bound: " + c_.products_and_attention() + " alone", arithmetic, attention_ > 0);
  }
  std::vector<Rung> take() { return std::move(rungs_); }

 private:
  // A rung that would print the speedup of the one before says nothing.
  bool is_gain(double from, double to) const { return from - to > 0.001 * total(); }
  double total() const { return products_ + attention_ + conversions_ + others_; }
  void add(std::string name, std::string arithmetic, bool is_sum) {
    if (total() <= 0) return;
    if (is_sum) arithmetic += " = " + c_.time(total());
    rungs_.push_back({.name = std::move(name),
                      .base = base_,
                      .ms = total() / 1000,
                      .speedup = c_.in_a.kernels / total(),
                      .arithmetic = std::move(arithmetic),
                      .nominal = nominal_});
  }
  const Case& c_;
  char base_;
  bool nominal_ = false;
  double products_, attention_, conversions_, others_;
  std::vector<Rung> rungs_;
};

std::string factor(double ratio) { return " (" + ratio_text(ratio) + "x)"; }

// A's attention at the chip's rate of `to`, from its own precision, else from that of A's products.
void attention_too(Ladder& ladder, const Case& c, const std::string& to) {
  if (c.in_a.attention <= 0) return;
  std::string from = multiplied_in(attention_of(c)->a_precision);
  if (from.empty()) from = c.in_a.main_precision();
  const std::optional<Ratio> ratio = c.rates.ratio(from, to);
  if (!ratio || ratio->value <= 1) return;
  ladder.attention("attention too" + factor(ratio->value), c.in_a.attention / ratio->value,
                   c.time(c.in_a.attention) + " / " + ratio_text(ratio->value), ratio->nominal);
}

// B runs in a lower precision than A.
std::vector<Rung> lowered(const Case& c) {
  const std::string products = "all " + c.products_word();
  const std::optional<AtChipRate> chip = at_chip_rate(c, c.in_a.precisions, c.low);
  Ladder ceiling(c, c.in_a, 'A');
  if (chip)
    ceiling.products(products + " at the chip's rate" + factor(chip->ratio) + ", the rest as in A", chip->us,
                     chip->arithmetic, chip->nominal);
  std::vector<Rung> rungs = ceiling.take();
  Ladder ladder(c, c.in_b, 'B');
  ladder.now();
  if (const auto reached = at_reached_rate(c))
    ladder.products("all " + c.covered_word() + " at the rate that " + c.low + " reaches here", reached->us,
                    reached->arithmetic, false);
  if (chip)
    ladder.products(products + " at the chip's rate" + factor(chip->ratio), chip->us, chip->arithmetic, chip->nominal);
  attention_too(ladder, c, c.low);
  ladder.drop_conversions();
  ladder.others_as_in_a(c.in_a.rest - c.in_a.conversions);
  ladder.products_and_attention_alone();
  for (Rung& r : ladder.take()) rungs.push_back(std::move(r));
  return rungs;
}

std::vector<Rung> not_lowered(const Case& c) {
  const char base = c.compared ? 'B' : 'A';
  Ladder ladder(c, c.in_b, base);
  ladder.now();
  if (const auto reached = at_reached_rate(c))
    ladder.products("all " + c.covered_word() + " at the rate that " + c.low + " reaches here", reached->us,
                    reached->arithmetic, false);
  for (const std::string to : {"fp8", "fp4"}) {
    if (!is_lower(to, c.low)) continue;
    if (const auto chip = at_chip_rate(c, c.in_b.precisions, to))
      ladder.products("all " + c.products_word() + " at the chip's rate of " + to + factor(chip->ratio), chip->us,
                      chip->arithmetic, chip->nominal);
  }
  if (!attention_precision(c).empty()) attention_too(ladder, c, "fp8");
  ladder.drop_conversions();
  ladder.products_and_attention_alone();
  return ladder.take();
}

}  // namespace

std::vector<Rung> ladder_of(const Case& c) {
  if (!c.has_times() || !c.same_work) return {};
  return c.lowered() ? lowered(c) : not_lowered(c);
}

}  // namespace tessera
