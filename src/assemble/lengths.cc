// SPDX-License-Identifier: Apache-2.0
#include "assemble/lengths.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "calibrate/calibrate.h"
#include "io/npz.h"
#include "precision/masks.h"
#include "runtime/batches.h"
#include "verify/padded_lengths.h"

namespace tessera {
namespace {

std::string in_words(const BucketSizes& sizes) {
  std::string text;
  for (const auto& [name, n] : sizes) text += cat(text.empty() ? "" : ", ", name, " ", n);
  return text;
}

// How one axis of a port grows with the sizes; nothing where that is no multiple of each and a constant.
std::optional<LengthAxis> axis_from(const std::string& port, size_t axis, const BucketSizes& least,
                                    const BucketSizes& most, int64_t at_least,
                                    const std::map<std::string, int64_t>& at_most) {
  LengthAxis a{.port = port, .axis = static_cast<int64_t>(axis), .per = {}, .plus = at_least};
  for (const auto& [size, extent] : at_most) {
    const int64_t steps = most.at(size) - least.at(size), grown = extent - at_least;
    if (grown == 0) continue;
    if (grown < 0 || grown % steps != 0) return std::nullopt;
    a.per[size] = grown / steps;
    a.plus -= a.per[size] * least.at(size);
  }
  return a;
}

void take_exactly(Lengths& lengths, const std::string& why) {
  for (auto& [size, reason] : lengths.why_exact) {
    if (reason.empty()) reason = why;
  }
  lengths.outputs.clear();
}

// The model at its smallest sizes, and with each size at its largest.
struct Corners {
  BucketSizes least, most;
  Graph smallest;
  std::map<std::string, Graph> grown;  // by the size that is at its largest
};
Result<Corners> corners_of(const BuildOptions& options, const ModelAt& model) {
  Corners c{.least = smallest_sizes(options), .most = largest_sizes(options), .smallest = {}, .grown = {}};
  TS_ASSIGN(c.smallest, model(c.least));
  for (const auto& [size, n] : c.most) {
    BucketSizes one = c.least;
    one[size] = n;
    TS_ASSIGN(c.grown[size], model(one));
    const Graph& g = c.grown[size];
    if (g.inputs.size() != c.smallest.inputs.size() || g.outputs.size() != c.smallest.outputs.size())
      return bad_input(cat("the model has other inputs or outputs at ", in_words(one), " than at ", in_words(c.least)));
  }
  return c;
}

// Calls `take` with the port, the axis and what is known of it, for every axis but the first that some size changes.
template <class Take>
Status each_axis(const Corners& c, std::vector<ValueId> Graph::*side, const Take& take) {
  for (size_t i = 0; i < (c.smallest.*side).size(); ++i) {
    const Value& port = c.smallest.at((c.smallest.*side)[i]);
    for (size_t axis = 1; axis < port.type.shape.size(); ++axis) {
      std::map<std::string, int64_t> extents;
      bool changes = false;
      for (const auto& [size, grown] : c.grown) {
        const Shape& shape = grown.at((grown.*side)[i]).type.shape;
        extents[size] = axis < shape.size() ? shape[axis] : 0;
        changes = changes || extents[size] != port.type.shape[axis];
      }
      if (!changes) continue;
      TS_TRY(take(port, axis, axis_from(port.name, axis, c.least, c.most, port.type.shape[axis], extents)));
    }
  }
  return {};
}

// Lengths to try of one size, and the bucket that they are padded to: small ones cost little, and tokens behind the end
// weigh most beside few others.
struct Trial {
  int64_t bucket;
  std::vector<int64_t> lengths;
};
Trial trial_of(const std::vector<int64_t>& numbers) {
  constexpr int64_t kEnough = 8;
  const auto enough = std::find_if(numbers.begin() + 1, numbers.end(), [](int64_t n) { return n >= kEnough; });
  Trial t{.bucket = enough == numbers.end() ? numbers.back() : *enough, .lengths = {numbers[0]}};
  for (const int64_t fewer : {3, 1}) {
    const int64_t length = t.bucket - fewer;
    if (t.lengths.size() < 2 && length > numbers[0]) t.lengths.push_back(length);
  }
  return t;
}

// What is wrong with padding from some sizes to others, in a sentence; empty: nothing.
Result<std::string> try_one(const ModelAt& model, const Lengths& lengths, const BucketSizes& own,
                            const BucketSizes& bucket, uint64_t seed) {
  const auto exact = model(own);
  if (!exact.ok()) return cat("the model cannot be read at ", in_words(own), " (", exact.status().message(), ")");
  TS_ASSIGN(const Graph padded, model(bucket));
  for (const ValueId id : exact->outputs) {
    const Value& v = exact->at(id);
    for (size_t axis = 1; axis < v.type.shape.size(); ++axis) {
      const LengthAxis* const known = find_axis(lengths.outputs, v.name, axis);
      if (known != nullptr && known->extent(own) != v.type.shape[axis])
        return cat("axis ", axis, " of output '", v.name, "' is ", v.type.shape[axis], " at ", in_words(own),
                   ", where other lengths lead to ", known->extent(own));
    }
  }
  TS_ASSIGN(const std::string changed, what_padding_changes(*exact, padded, seed));
  if (changed.empty()) return changed;
  return cat("padding changes the model's results: ", changed, " where ", in_words(own), " is padded to ",
             in_words(bucket), mask_inputs(padded).empty() ? "; the model has no mask as an input" : "");
}

}  // namespace

BucketSizes smallest_sizes(const BuildOptions& options) {
  BucketSizes sizes;
  for (const auto& [name, numbers] : options.buckets) sizes[name] = *std::min_element(numbers.begin(), numbers.end());
  return sizes;
}

BucketSizes largest_sizes(const BuildOptions& options) {
  BucketSizes sizes;
  for (const auto& [name, numbers] : options.buckets) sizes[name] = *std::max_element(numbers.begin(), numbers.end());
  return sizes;
}

Result<BuildOptions> with_lengths(const BuildOptions& options) {
  if (options.ranges.empty()) return options;
  const std::string several = "--shape with several numbers for an axis";
  if (!options.family.empty()) return usage_error("--shape: a family has its own sizes (--size), leave it out");
  if (!options.states.empty())
    return usage_error(cat(several, " and --state: a session's memory has one length, so give one number per axis"));
  if (!options.graphs.empty())
    return usage_error(cat(several, " and --graph: a graph has one length, so give one number per axis"));
  TS_ASSIGN(SizeRanges said, name_sizes(options.model_path, options.ranges));
  BuildOptions out = options;
  out.ranges.clear();
  out.shapes = std::move(said.shapes);
  if (!said.batches.empty() && !options.batches.empty())
    return usage_error("--batch and several numbers for the first axis of --shape both say the batches: give one");
  if (!said.batches.empty()) out.batches = std::move(said.batches);
  int64_t plans = static_cast<int64_t>(std::max<size_t>(1, out.batches.size()));
  for (RangedSize& size : said.sizes) {
    plans *= static_cast<int64_t>(size.numbers.size());
    if (plans > kMostPlans)
      return usage_error(cat("--shape and --batch ask for more than ", kMostPlans,
                             " plans, one for each batch and length: name fewer, as in 16/128/512"));
    out.buckets[size.name] = size.numbers;
    out.lengths.push_back(std::move(size));
  }
  return out;
}

Result<Lengths> find_lengths(const BuildOptions& options, const ModelAt& model) {
  Lengths lengths;
  for (const auto& [size, numbers] : options.buckets) lengths.why_exact[size] = "";
  TS_ASSIGN(const Corners corners, corners_of(options, model));
  TS_TRY(each_axis(corners, &Graph::inputs, [&](const Value& port, size_t axis, const std::optional<LengthAxis>& a) {
    if (!a || a->per.size() != 1 || a->per.begin()->second != 1 || a->plus != 0)
      return bad_input(cat("axis ", axis, " of input '", port.name, "' does not have the length of one size"));
    lengths.inputs.push_back(*a);
    return Status();
  }));
  std::string why;
  TS_TRY(each_axis(corners, &Graph::outputs, [&](const Value& port, size_t axis, const std::optional<LengthAxis>& a) {
    if (a) {
      lengths.outputs.push_back(*a);
    } else if (why.empty()) {
      why = cat("axis ", axis, " of output '", port.name, "' does not grow evenly with the lengths");
    }
    return Status();
  }));
  if (!why.empty()) take_exactly(lengths, why);
  return lengths;
}

Status try_padding(const BuildOptions& options, const ModelAt& model, Engine& engine) {
  Lengths& lengths = engine.lengths;
  const BucketSizes least = smallest_sizes(options);
  BucketSizes all_own = least, all_buckets = least;
  for (auto& [size, why] : lengths.why_exact) {
    if (!why.empty()) continue;
    const Trial trial = trial_of(options.buckets.at(size));
    BucketSizes own = least, bucket = least;
    bucket[size] = trial.bucket;
    for (const int64_t length : trial.lengths) {
      own[size] = length;
      if (!why.empty()) break;
      TS_ASSIGN(why, try_one(model, lengths, own, bucket, options.seed));
    }
    if (why.empty()) all_own[size] = own[size], all_buckets[size] = trial.bucket;
  }
  const auto padded =
      std::count_if(lengths.why_exact.begin(), lengths.why_exact.end(), [](const auto& s) { return s.second.empty(); });
  if (padded > 1) {
    TS_ASSIGN(const std::string why, try_one(model, lengths, all_own, all_buckets, options.seed));
    if (!why.empty()) take_exactly(lengths, why);
  }
  if (padded == 0) lengths.outputs.clear();
  for (const Plan& plan : engine.plans) {
    for (size_t o = 0; o < plan.outputs.size(); ++o) {
      const Port& port = plan.outputs[o];
      const Shape& shape = plan.tensors[static_cast<size_t>(port.tensor)].desc.shape;
      for (size_t axis = 1; axis < shape.size(); ++axis) {
        const LengthAxis* const known = find_axis(lengths.outputs, port.name, axis);
        const PlanTensor& first = engine.plans[0].tensors[static_cast<size_t>(engine.plans[0].outputs[o].tensor)];
        if (padded == 0 || (known != nullptr ? known->extent(plan.sizes) : first.desc.shape[axis]) == shape[axis])
          continue;
        take_exactly(lengths, cat("axis ", axis, " of output '", port.name, "' does not grow evenly with the lengths"));
        return {};
      }
    }
  }
  return {};
}

Result<BucketSizes> sizes_of_file(const BuildOptions& options, const Lengths& lengths, const std::string& path) {
  BucketSizes sizes = largest_sizes(options);
  std::error_code none;
  if (path.empty() || std::filesystem::is_directory(path, none)) return sizes;
  TS_ASSIGN(const bool ranges, is_ranges_file(path));
  if (ranges) return sizes;
  TS_ASSIGN(const std::vector<Array> arrays, read_npz(path));
  const BucketSizes least = smallest_sizes(options), most = largest_sizes(options);
  for (const LengthAxis& a : lengths.inputs) {
    for (const Array& array : arrays) {
      const bool only = arrays.size() == 1 && path.ends_with(".npy");
      if ((array.name != a.port && !only) || a.axis >= static_cast<int64_t>(array.shape.size())) continue;
      const std::string& size = a.per.begin()->first;
      const int64_t n = array.shape[static_cast<size_t>(a.axis)];
      if (n < least.at(size) || n > most.at(size))
        return bad_input(cat(path, ": array '", array.name, "' has ", n, " along axis ", a.axis, " ('", size,
                             "'), where the engine is built for ", least.at(size), " to ", most.at(size)));
      sizes[size] = n;
    }
  }
  return sizes;
}

}  // namespace tessera
