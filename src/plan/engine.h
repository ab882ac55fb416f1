// SPDX-License-Identifier: Apache-2.0
// Engine: one or more plans over shared constants, golden values, and the record of how it was made. What an engine
// file holds.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "plan/plan.h"

namespace tessera {

// The first plan that golden values come from, on `ref` (golden_plans.h).
inline constexpr const char* kGoldenPlan = "golden";
// Golden values allow less than this relative L2 error: results that are all zero are as far away.
inline constexpr double kMostGoldenBound = 1;

struct EngineConstant {
  std::string name;
  Bytes data;
  std::optional<uint64_t> checksum = {};  // that the file has for it; nothing: checked already, or not of a file
};

// Memory that outlives a run: what one plan of a session writes another may read (a KV cache). Every session has its
// own (runtime/state.h), zero when it begins. Plans have ports of its name, which lie in it (ir/graph.h, StatePair).
struct EngineState {
  std::string name;
  int64_t bytes = 0;  // of the plan with the largest batch
};

// A graph's plan, so many times one after the other; graphs hand each other their numbers in states. Sampling by flow
// matching: vision, prefix, then ten times step.
struct ScheduleItem {
  std::string graph;
  int64_t times = 1;
  bool operator==(const ScheduleItem&) const = default;
};

struct GoldenTensor {
  std::string name;
  Shape shape;
  QuantType type;
  Bytes data;
};

// A value inside the model as the golden run has it, and how far a plan's may be from it (relative L2). Plans are
// compared at such values one after the other, each run beginning with the one before: errors do not add up.
struct GoldenValue {
  GoldenTensor tensor;
  double bound = 0;
};

// What one golden plan gave on the first of the golden inputs, as many as its batch, and how far the plans that are
// held against it may be from that.
struct GoldenForm {
  std::string plan = kGoldenPlan;  // the golden plan
  std::vector<GoldenTensor> outputs;
  std::vector<double> bounds;       // relative L2 error allowed, per output
  std::vector<GoldenValue> values;  // in the order in which the golden plan makes them
  // Of another graph than the engine's first: its own inputs, and outputs of the model as written. Else empty.
  std::vector<GoldenTensor> inputs = {}, original = {};
  int64_t samples() const { return outputs.empty() || outputs[0].shape.empty() ? 0 : outputs[0].shape[0]; }
};

// Inputs (a few samples, repeated to fill a plan's batch), what the golden plans made of them, in their order; and what
// the model as written gives, before any pass: outputs beside it show the quantization error.
struct Golden {
  std::vector<GoldenTensor> inputs;
  std::vector<GoldenForm> forms;          // empty: no golden values
  std::vector<GoldenTensor> original;     // per output; empty where the model was not at hand
  std::string from;                       // where the inputs come from, in words: "seed 1", "2 samples of calib.npz"
  std::optional<bool> within_amax = {};   // static scales are the amax of samples that the inputs are among
  std::optional<double> min_cosine = {};  // the gate of the build: the least mean cosine of an output with the model's
};

// The inputs that a form was made of, and what the model as written gives.
inline const std::vector<GoldenTensor>& inputs_of(const Golden& golden, const GoldenForm& form) {
  return form.inputs.empty() ? golden.inputs : form.inputs;
}
inline const std::vector<GoldenTensor>& original_of(const Golden& golden, const GoldenForm& form) {
  return form.inputs.empty() ? golden.original : form.original;
}

// Lengths that the arrays of an engine may have: which axes of its inputs and outputs go with a size of the model
// (Plan::sizes), and whether arrays between two buckets may be padded with zeros up to the larger one.
//   extent of an axis = plus + sum over sizes s of per[s] * s
struct LengthAxis {
  std::string port;
  int64_t axis = 1;                    // of the port's shape; 0 counts samples
  std::map<std::string, int64_t> per;  // by size
  int64_t plus = 0;
  // Contract: `sizes` has all of `per`, and check_engine found nothing wrong.
  int64_t extent(const std::map<std::string, int64_t>& sizes) const {
    int64_t n = plus;
    for (const auto& [size, times] : per) n += times * sizes.at(size);
    return n;
  }
};

struct Lengths {
  // Each size of the plans, and why arrays must have exactly a bucket's length; empty: shorter ones are padded, which
  // the build has tried.
  std::map<std::string, std::string> why_exact;
  std::vector<LengthAxis> inputs;   // each goes with one size
  std::vector<LengthAxis> outputs;  // every axis that depends on a size, where some size may be padded; else none
  bool none() const { return why_exact.empty(); }
};

// The numbers that plans have of a size, ascending.
std::vector<int64_t> numbers_of_size(const std::vector<Plan>& plans, const std::string& size);

// A place in a port's list of axes; null where that axis goes with no size.
const LengthAxis* find_axis(const std::vector<LengthAxis>& axes, const std::string& port, size_t axis);

struct Engine {
  std::string model;      // name of the graph
  std::string weights;    // checksum of its weights (calibrate/ranges_file.h); empty: not known
  std::string precision;  // as asked on the command line
  Arch target = Arch::ref;
  std::string calibration;  // how activation scales were found, in words; empty where none were needed
  // How images became the inputs that scales were taken from (io/images_prepare.h); empty: arrays.
  std::string preprocess;
  std::string recipe;                        // whose rules chose the precisions; empty: none
  std::vector<std::string> refinements;      // what was done to weights with calibration data, a sentence each
  std::vector<std::string> refined_weights;  // layers whose weights are no longer the model's
  // Layers whose results are divided by factors that their readers' weights make good.
  std::vector<std::string> divided_layers;
  std::vector<std::string> allowed;  // layers that the user allowed another precision, as given
  std::string producer;              // "tessera 0.1.0"
  std::vector<EngineConstant> constants;
  std::vector<EngineState> states;
  std::vector<ScheduleItem> schedule;  // what one answer takes, in order; empty: one run of a plan
  Lengths lengths;                     // of an engine of one graph whose plans are for several; else none
  std::vector<Plan> plans;             // runnable ones first, then golden ones (arch ref)
  Golden golden;
};

}  // namespace tessera
