// SPDX-License-Identifier: Apache-2.0
// A trace of PyTorch's profiler (Kineto), plain or gzipped: Chrome's trace events, as {"traceEvents": [...]} or the
// bare list. Events of category kernel, gpu_memcpy and gpu_memset count, `ts` and `dur` in us; ProfilerStep#n ranges
// are the runs; deviceProperties names the machine and its compute capability. A
// kernel whose name no rule knows has the class of the operator around its launch (category cpu_op, by "External id",
// else by the "correlation" of the launch). Events are read one by one, so that a trace of gigabytes needs
// memory for its kernels only.
#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

#include "io/json_events.h"
#include "traces/chrome_trace.h"
#include "traces/format.h"
#include "traces/timeline.h"

namespace tessera {
namespace {

constexpr size_t kSteps = 1'000'000;
constexpr size_t kOperators = 5'000'000;  // and as many launches that name theirs

class TraceEvents : public JsonEvents {
 public:
  bool open(bool is_object) override {
    if (depth() == 3 && is_object && top_key_ == "deviceProperties" && machines_.size() < 1024)
      machines_.emplace_back();
    if (depth() == 1) list_depth_ = is_object ? 0 : 1;
    if (depth() == 2 && !is_object && top_key_ == "traceEvents") list_depth_ = 2;
    if (list_depth_ > 0 && depth() == list_depth_ + 1 && is_object) event_ = {}, in_event_ = true;
    return true;
  }
  bool close() override {
    if (in_event_ && depth() == list_depth_ + 1) {
      in_event_ = false;
      return take_event();
    }
    if (depth() == list_depth_) list_depth_ = 0;
    return true;
  }
  bool key(std::string& k) override {
    if (depth() == 1) top_key_ = k;
    if (depth() == 1 && k == kTimelineMark)
      return stop(bad_input("is a timeline that profile --trace wrote, for viewers: give what profile --json prints"));
    if (depth() == 3 && top_key_ == "deviceProperties") field_ = k;
    if (in_event_ && depth() == list_depth_ + 1) field_ = k;
    if (in_event_ && depth() == list_depth_ + 2) inner_field_ = k;
    return true;
  }
  bool text(std::string& v) override {
    if (in_event_) {
      if (depth() != list_depth_ + 1) return true;
      if (field_ == "name") event_.name = std::move(v);
      if (field_ == "cat") event_.category = std::move(v);
    } else if (in_machine() && field_ == "name") {
      machines_.back().name = std::move(v);
    }
    return true;
  }
  bool number(double v) override {
    if (in_machine() && v >= 0 && v < 1000) {
      if (field_ == "computeMajor") machines_.back().major = static_cast<int64_t>(v);
      if (field_ == "computeMinor") machines_.back().minor = static_cast<int64_t>(v);
    }
    if (!in_event_) return true;
    if (depth() == list_depth_ + 1) {
      if (field_ == "ts") event_.begin_us = v;
      if (field_ == "dur") event_.us = v;
    } else if (depth() == list_depth_ + 2 && field_ == "args") {
      if (inner_field_ == "device") event_.device = v;
      if (inner_field_ == "External id" || inner_field_ == "external id") event_.op = id_of(v);
      if (inner_field_ == "correlation") event_.correlation = id_of(v);
    }
    return true;
  }

  // The innermost operator around each launch, by its number in the kernel's event, else in that of the call which
  // launched it.
  Timeline& joined_timeline() {
    for (size_t i = 0; i < launches_.size(); ++i) {
      const auto call = launched_by_.find(launches_[i].correlation);
      auto found = operators_.find(launches_[i].op);
      if (found == operators_.end() && call != launched_by_.end()) found = operators_.find(call->second);
      if (found != operators_.end()) timeline_.launches()[i].op = found->second;
    }
    return timeline_;
  }
  int64_t steps() const { return static_cast<int64_t>(steps_.size()); }
  size_t seen() const { return seen_; }
  size_t kernels() const { return kernels_; }
  struct Machine {
    std::string name;
    int64_t major = 0, minor = 0;  // compute capability; 0: not told
  };
  Machine machine() const {
    const auto device = static_cast<size_t>(std::max<int64_t>(0, timeline_.first_device()));
    return machines_.empty() ? Machine() : machines_[device < machines_.size() ? device : 0];
  }

 private:
  struct Event {
    std::string name, category;
    double begin_us = std::numeric_limits<double>::quiet_NaN(), us = begin_us, device = 0;
    int64_t op = 0, correlation = 0;  // numbers of the operator and of the launch; 0: not told
  };
  static int64_t id_of(double v) { return v > 0 && v < 9e15 ? static_cast<int64_t>(v) : 0; }

  bool in_machine() const { return !in_event_ && depth() == 3 && top_key_ == "deviceProperties" && !machines_.empty(); }
  bool take_event() {
    ++seen_;
    // Older profilers write Kernel, Memcpy and Memset.
    const std::string& c = event_.category;
    if (c == "kernel" || c == "Kernel") {
      ++kernels_;
      return add_launch();
    }
    if (c == "gpu_memset" || c == "Memset") return add_launch();
    if (c == "gpu_memcpy" || c == "Memcpy") {
      if (event_.name.find("HtoD") != std::string::npos) return add_copy(Timeline::Direction::kHostToDevice);
      if (event_.name.find("DtoH") != std::string::npos) return add_copy(Timeline::Direction::kDeviceToHost);
      return add_launch();
    }
    if (c == "cpu_op") return keep_operator();
    if (c == "cuda_runtime" || c == "cuda_driver") {
      if (event_.op > 0 && event_.correlation > 0 && launched_by_.size() < kOperators)
        launched_by_.emplace(event_.correlation, event_.op);
      return true;
    }
    if (event_.name.starts_with("ProfilerStep#") && steps_.size() < kSteps) steps_.insert(event_.name);
    return true;
  }
  // Those of a namespace, aten::addmm; other events of this category are regions of a compiler.
  bool keep_operator() {
    if (event_.op == 0 || event_.name.find("::") == std::string::npos || operators_.size() >= kOperators) return true;
    const auto name = timeline_.keep(event_.name);
    if (!name.ok()) return stop(name.status());
    operators_.emplace(event_.op, *name);
    return true;
  }
  std::string what() const { return cat("event ", seen_, " (", event_.name.substr(0, 80), ")"); }
  bool add_launch() {
    auto name = timeline_.keep(event_.name);
    if (!name.ok()) return stop(name.status());
    if (event_.name.empty()) return stop(bad_input(cat(what(), " is a kernel without a name")));
    const bool has_device = event_.device >= 0 && event_.device < 1e6;
    const Status added = timeline_.add({.begin_us = event_.begin_us,
                                        .us = event_.us,
                                        .name = *name,
                                        .device = has_device ? static_cast<int64_t>(event_.device) : 0},
                                       what());
    launches_.push_back({event_.op, event_.correlation});
    return added.ok() || stop(added);
  }
  bool add_copy(Timeline::Direction direction) {
    const Status added = timeline_.add_copy(direction, event_.us, what());
    return added.ok() || stop(added);
  }

  struct Ids {
    int64_t op, correlation;
  };
  Timeline timeline_;
  std::vector<Ids> launches_;                              // of the timeline's, in their order
  std::unordered_map<int64_t, Timeline::Text> operators_;  // by External id
  std::unordered_map<int64_t, int64_t> launched_by_;       // correlation -> External id
  std::set<std::string> steps_;
  std::vector<Machine> machines_;
  size_t seen_ = 0, kernels_ = 0;
  size_t list_depth_ = 0;  // containers around an event; 0 outside of the list
  bool in_event_ = false;
  std::string top_key_, field_, inner_field_;
  Event event_;
};

}  // namespace

bool looks_like_torch_trace(const Opening& o) {
  if (o.is_list) return o.has("ph") && o.has("name");
  return o.is_object && (o.has("traceEvents") || (o.has("schemaVersion") && o.has("deviceProperties")));
}

Result<Profile> read_torch_trace(const Input& input) {
  if (!input.beside.empty()) return bad_input("is a trace of PyTorch's profiler, to which no further file belongs");
  TraceEvents events;
  TS_TRY(read_json_events(input.main.bytes.span(), events));
  if (events.kernels() == 0)
    return bad_input(cat("holds ", events.seen(),
                         " events, but no kernel of a GPU (category kernel): was the profiler ",
                         "run with ProfilerActivity.CUDA?"));
  Profile profile;
  profile.source = "pytorch";
  const TraceEvents::Machine machine = events.machine();
  profile.machine = machine.name;
  profile.capability = 10 * machine.major + machine.minor;
  const int64_t runs = settle_runs(input.options.runs, events.steps(), profile);
  events.joined_timeline().put_into(profile, runs, input.rules);
  return profile;
}

}  // namespace tessera
