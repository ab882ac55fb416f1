// SPDX-License-Identifier: Apache-2.0
#include "sensitivity/auto_precision.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "base/progress.h"

namespace tessera {
namespace {

std::string brief(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6f", x);
  return text;
}

// Layer `layer` goes from candidate `to` - 1 to candidate `to`.
struct Move {
  size_t layer, to;
  double gain;
};

class Search {
 public:
  Search(const Trials& trials, const AutoOptions& options)
      : trials_(trials), options_(options), layers_(layers_of_blocks(trials.graph())) {
    const auto named = [&](const TrialLayer& l) {
      return std::any_of(options_.types.allow.begin(), options_.types.allow.end(),
                         [&](const Allowance& a) { return matches(a.pattern.c_str(), l.name.c_str()); });
    };
    allowed_ = std::erase_if(layers_, named);
  }

  Result<AutoChoice> run() {
    if (layers_.empty() && allowed_ > 0)
      return usage_error(
          "--precision auto: --allow names every linear layer of the blocks, nothing is left to choose; ask for a "
          "precision by name");
    if (layers_.empty()) return refused("this model has no linear layer in a block to choose a precision for");
    for (const std::string& name : options_.candidates) {
      TS_ASSIGN(const Precision* p, base_precision(name));
      precisions_.push_back(p);
    }
    if (!options_.quiet)
      progress_.emplace("choosing precisions", static_cast<int64_t>(layers_.size() * (precisions_.size() - 1)) + 8);
    TS_TRY(measure_alone());
    order_moves();
    TS_ASSIGN(const Closeness cheapest, measured(0));
    size_t low = 0, high = moves_.size();  // `low` moves do not reach it, `high` do
    Closeness reached = cheapest;
    if (!reaches(cheapest)) {
      TS_ASSIGN(reached, measured(high));
      if (!reaches(reached)) {
        return refused(cat("--min-cosine ", options_.min_cosine, ": even with every layer that is to be chosen in ",
                           options_.candidates.back(), " the mean cosine to fp32 is ", brief(reached.cosine_mean),
                           "; ask for less"));
      }
      while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        TS_ASSIGN(const Closeness here, measured(middle));
        (reaches(here) ? high : low) = middle;
        if (reaches(here)) reached = here;
      }
    } else {
      high = 0;
    }
    return describe(high, reached, cheapest);
  }

 private:
  bool reaches(const Closeness& c) const { return c.finite && c.cosine_mean >= options_.min_cosine; }

  // cost_[layer][candidate], with the layer alone in it. A candidate that a layer refuses costs everything.
  Status measure_alone() {
    QuantizeOptions none = options_.types;
    none.precision = options_.candidates.back();
    none.attention.clear();
    TS_ASSIGN(const Closeness floor, trials_.measure(none));
    for (const TrialLayer& layer : layers_) {
      std::vector<double>& costs = cost_.emplace_back();
      for (size_t c = 0; c + 1 < precisions_.size(); ++c) {
        QuantizeOptions alone = none;
        alone.allow.insert(alone.allow.begin(), {layer.name, options_.candidates[c]});
        const auto got = trials_.measure(alone);
        if (!got.ok() && got.status().code() != Code::kRefused) return got.status();
        costs.push_back(got.ok() && got->finite ? 1 - got->cosine_mean : 1);
        if (progress_) progress_->advance();
      }
      costs.push_back(1 - floor.cosine_mean);
    }
    return {};
  }

  // The largest gain first; a layer's later moves never before its earlier ones.
  void order_moves() {
    for (size_t l = 0; l < layers_.size(); ++l) {
      double before = 0;
      for (size_t c = 1; c < precisions_.size(); ++c) {
        double gain = cost_[l][c - 1] - cost_[l][c];
        if (c > 1) gain = std::min(gain, before);
        moves_.push_back({l, c, gain});
        before = gain;
      }
    }
    std::stable_sort(moves_.begin(), moves_.end(), [](const Move& a, const Move& b) { return a.gain > b.gain; });
  }

  std::vector<size_t> candidates_after(size_t moves) const {
    std::vector<size_t> at(layers_.size(), 0);
    for (size_t m = 0; m < moves; ++m) at[moves_[m].layer] = std::max(at[moves_[m].layer], moves_[m].to);
    return at;
  }

  // The base is the carrier, so that any mixture is a list of layers that are something else.
  std::vector<Allowance> allowances(const std::vector<size_t>& at) const {
    std::vector<Allowance> allow;
    for (size_t l = 0; l < layers_.size(); ++l) {
      if (at[l] + 1 < precisions_.size()) allow.push_back({layers_[l].name, options_.candidates[at[l]]});
    }
    return allow;
  }

  Result<Closeness> measured(size_t moves) {
    QuantizeOptions types = options_.types;
    types.precision = options_.candidates.back();
    types.allow = allowances(candidates_after(moves));
    types.allow.insert(types.allow.end(), options_.types.allow.begin(), options_.types.allow.end());
    auto closeness = trials_.measure(types);
    if (progress_) progress_->advance();
    // A layer that refuses its candidate is the first to move.
    if (!closeness.ok() && closeness.status().code() == Code::kRefused && moves < moves_.size())
      return Closeness{.cosine_mean = -1, .cosine_worst = -1, .relative_l2 = 1, .finite = false};
    return closeness;
  }

  AutoChoice describe(size_t moves, const Closeness& reached, const Closeness& cheapest) const {
    const std::vector<size_t> at = candidates_after(moves);
    AutoChoice choice{.base = options_.candidates.back(),
                      .allow = allowances(at),
                      .layers = {},
                      .reached = reached,
                      .cheapest = cheapest};
    std::map<std::string, int> counts;
    for (size_t l = 0; l < layers_.size(); ++l) {
      const double bytes = weight_bytes(*precisions_[at[l]], layers_[l].weights),
                   carrier = weight_bytes(*precisions_.back(), layers_[l].weights);
      choice.layers.push_back({layers_[l], options_.candidates[at[l]], cost_[l][at[l]], carrier - bytes});
      choice.bytes += bytes;
      choice.bytes_of_carrier += carrier;
      ++counts[options_.candidates[at[l]]];
    }
    std::string mixture;
    for (const std::string& name : options_.candidates) {
      if (counts[name] > 0) mixture += cat(mixture.empty() ? "" : ", ", counts[name], " ", name);
    }
    choice.sentence =
        cat("auto: ", mixture, allowed_ > 0 ? cat(", ", allowed_, " as --allow says") : "", "; mean cosine ",
            brief(reached.cosine_mean), " of at least ", options_.min_cosine, " over ", trials_.samples(), " samples (",
            allowed_ > 0 ? "the others " : "", "all ", options_.candidates[0], ": ", brief(cheapest.cosine_mean), ")");
    return choice;
  }

  const Trials& trials_;
  const AutoOptions& options_;
  std::vector<TrialLayer> layers_;
  size_t allowed_ = 0;  // layers that --allow names
  std::vector<const Precision*> precisions_;
  std::vector<std::vector<double>> cost_;
  std::vector<Move> moves_;
  std::optional<Progress> progress_;
};

}  // namespace

Result<AutoChoice> choose_by_cosine(const Trials& trials, const AutoOptions& options) {
  return Search(trials, options).run();
}

}  // namespace tessera
