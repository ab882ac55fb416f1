// SPDX-License-Identifier: Apache-2.0
#include "cli/batches.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "base/log.h"
#include "base/progress.h"
#include "cli/open_engine.h"
#include "cli/plan_summary.h"
#include "runtime/residency.h"
#include "verify/verify.h"

namespace tessera {
namespace {

const Operand& desc_of(const Plan& plan, const Port& port) {
  return plan.tensors[static_cast<size_t>(port.tensor)].desc;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// All samples of one output port, gathered chunk by chunk.
class Gather {
 public:
  Gather(const Plan& plan, const Port& port, int64_t samples) {
    const Operand& d = desc_of(plan, port);
    element_ = d.type.element;
    array_.name = port.name;
    array_.shape = d.shape;
    array_.shape[0] = samples;
    array_.dtype = numpy_dtype(element_);
    decoded_ = array_.dtype.empty();
    if (decoded_) array_.dtype = "<f4";  // numpy has no such type: the numbers themselves
    sample_elements_ = elements(d.shape) / plan.batch;
    data_ = Buffer(static_cast<size_t>(samples * sample_elements_ * dtype_bytes(array_.dtype)));
  }
  void take(const void* from, int64_t first, int64_t count) {
    const int64_t n = count * sample_elements_, width = dtype_bytes(array_.dtype);
    uint8_t* to = data_.data() + first * sample_elements_ * width;
    if (decoded_) {
      info(element_).decode(from, 0, n, reinterpret_cast<float*>(to));
    } else if (n > 0) {
      std::memcpy(to, from, static_cast<size_t>(n * width));
    }
  }
  Array finish() {
    array_.data = Bytes::own(std::move(data_));
    return std::move(array_);
  }

 private:
  Array array_;
  Buffer data_;
  Element element_;
  bool decoded_ = false;
  int64_t sample_elements_ = 0;
};

}  // namespace

std::vector<Chunk> split_into_chunks(const std::vector<const Plan*>& plans, int64_t samples) {
  std::vector<Chunk> chunks;
  for (int64_t first = 0; first < samples;) {
    const int64_t left = samples - first;
    const Plan* best = nullptr;
    for (const Plan* p : plans) {
      const bool filled = p->batch <= left, best_filled = best != nullptr && best->batch <= left;
      if (best == nullptr || (filled && !best_filled) ||
          (filled == best_filled && (filled ? p->batch > best->batch : p->batch < best->batch)))
        best = p;
    }
    const int64_t count = std::min(left, best->batch);
    chunks.push_back({best, first, count});
    first += count;
  }
  return chunks;
}

Result<BatchedRun> run_batched(const Engine& engine, const Samples& samples, bool check_golden_first) {
  const std::vector<const Plan*> plans = runnable_plans(engine);
  if (plans.empty()) return bad_input("the engine has no plan to run");
  const std::vector<Chunk> chunks = split_into_chunks(plans, samples.count);
  BatchedRun result;
  std::vector<Gather> gathers;
  for (const Port& p : plans[0]->outputs) gathers.emplace_back(*plans[0], p, samples.count);
  TS_TRY(check_runs_here(engine));
  ExecutorOptions sharing;
  TS_ASSIGN(sharing.residency, Residency::make(engine, info(engine.target).device));
  std::map<const Plan*, std::unique_ptr<Executor>> executors;
  Progress progress("running", samples.count);
  for (const Chunk& c : chunks) {
    std::unique_ptr<Executor>& executor = executors[c.plan];
    if (executor == nullptr) {
      if (check_golden_first && !engine.golden.outputs.empty()) {
        const auto start = std::chrono::steady_clock::now();
        TS_ASSIGN(const VerifyReport report, check_golden(engine, *c.plan));
        result.golden_seconds += seconds_since(start);
        if (!report.ok)
          return Status(Code::kVerifyFailed,
                        cat("plan ", c.plan->name, " does not reproduce its golden values here: ", report.sentence,
                            "; tessera verify names the layer, --no-verify runs it all the same"));
      }
      const Activity binding("plan", c.plan->name);
      const auto start = std::chrono::steady_clock::now();
      TS_ASSIGN(executor, bind(engine, *c.plan, sharing));
      result.bind_seconds += seconds_since(start);
      result.used.push_back(c.plan);
      result.machine = executor->machine();
    }
    const Filled inputs = fill_inputs(*c.plan, samples, c.first);
    Outputs outputs = make_outputs(*c.plan);
    const auto start = std::chrono::steady_clock::now();
    TS_TRY(executor->run(inputs.pointers, outputs.pointers));
    result.milliseconds += 1e3 * seconds_since(start);
    ++result.runs;
    for (size_t i = 0; i < gathers.size(); ++i) gathers[i].take(outputs.pointers[i], c.first, c.count);
    progress.advance(c.count);
  }
  for (Gather& g : gathers) result.outputs.push_back(g.finish());
  return result;
}

}  // namespace tessera
