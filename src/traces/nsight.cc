// SPDX-License-Identifier: Apache-2.0
// An SQLite export of Nsight Systems (`nsys export --type sqlite`), by its documented schema; no file of the tool
// itself was at hand to try. Kernels, copies and memsets are CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY and _MEMSET, times in
// ns, names in StringIds. A kernel's layer is the innermost NVTX range of the host thread around its launch, found
// through correlationId and CUPTI_ACTIVITY_KIND_RUNTIME. The file does not know runs of a model.
#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "traces/format.h"
#include "traces/sqlite_file.h"
#include "traces/timeline.h"

namespace tessera {
namespace {

constexpr const char* kKernels = "CUPTI_ACTIVITY_KIND_KERNEL";
constexpr const char* kCopies = "CUPTI_ACTIVITY_KIND_MEMCPY";
constexpr const char* kMemsets = "CUPTI_ACTIVITY_KIND_MEMSET";
constexpr const char* kLaunches = "CUPTI_ACTIVITY_KIND_RUNTIME";
constexpr const char* kGraphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
constexpr const char* kRanges = "NVTX_EVENTS";
constexpr const char* kStrings = "StringIds";

constexpr int64_t kHostToDevice = 1, kDeviceToHost = 2;  // of copyKind, CUPTI's numbers
constexpr int64_t kPushPopRange = 59;                    // of NVTX_EVENTS.eventType
constexpr size_t kMostRows = 5'000'000;                  // of kernels, launches or ranges
constexpr size_t kTextBytes = size_t{256} << 20;         // of all names together
constexpr int64_t kProcessBits = 24;                     // globalTid: process above, thread in these bits

using Row = SqliteFile::Row;

struct Kernel {
  int64_t begin_ns, end_ns, device, process, correlation, name;
};
struct Launch {  // a call of the host that started something
  int64_t at_ns, thread, correlation;
};
struct Range {
  int64_t begin_ns, end_ns, thread, name;
  std::string text;
};

// Correlation ids count per process.
struct Id {
  int64_t process, correlation;
  bool operator==(const Id&) const = default;
};
struct HashId {
  size_t operator()(const Id& id) const {
    return static_cast<size_t>(id.process) * 0x9e3779b97f4a7c15u ^ static_cast<size_t>(id.correlation);
  }
};
template <class Value>
using ById = std::unordered_map<Id, Value, HashId>;

Status too_many(const char* what) { return bad_input(cat("holds more than ", kMostRows, " ", what)); }

class Export {
 public:
  Export(const SqliteFile& file, const Rules& rules) : file_(file), rules_(rules) {}

  Result<Profile> read(int64_t runs);

 private:
  Status check_schema() const;
  Status read_kernels();
  Status check_graphs() const;
  Status read_copies();
  Status read_ranges();
  Status read_strings();
  Status read_machine(Profile& profile) const;
  ById<const Range*> range_of_launches();
  Result<Timeline::Text> layer_of(const Range* range);
  Status fill_timeline(Profile& profile);
  Status keep_text(size_t bytes);

  const SqliteFile& file_;
  const Rules& rules_;
  Timeline timeline_;
  std::vector<Kernel> kernels_;
  std::vector<Launch> launches_;
  std::vector<Range> ranges_;
  std::unordered_map<int64_t, std::string> strings_;  // the ones that are asked for
  size_t text_bytes_ = 0;
};

Status graphs_as_wholes() {
  return bad_input("holds CUDA graphs as wholes, without their kernels: profile with --cuda-graph-trace=node");
}

Status Export::check_schema() const {
  if (!file_.has(kKernels)) {
    if (file_.has(kGraphs)) return graphs_as_wholes();
    if (file_.has(kStrings))
      return bad_input(cat("holds no kernel (there is no table ", kKernels, "): profile with --trace=cuda"));
    return bad_input(cat("is an SQLite file, but no export of Nsight Systems: there is no table ", kKernels));
  }
  for (const char* column : {"start", "end"}) {
    if (!file_.has(kKernels, column))
      return bad_input(cat("is of a version that is not read: ", kKernels, " has no column '", column, "'"));
  }
  const bool named = file_.has(kKernels, "demangledName") || file_.has(kKernels, "shortName");
  if (!named || !file_.has(kStrings, "id") || !file_.has(kStrings, "value"))
    return bad_input(cat("is of a version that is not read: names want the columns demangledName or shortName of ",
                         kKernels, " and id and value of ", kStrings));
  return {};
}

Status Export::read_kernels() {
  const bool full = file_.has(kKernels, "demangledName");
  TS_TRY(file_.scan(kKernels,
                    {"start", "end", "deviceId", "globalPid", "correlationId", full ? "demangledName" : "shortName"},
                    [&](const Row& r) -> Status {
                      if (kernels_.size() >= kMostRows) return too_many("kernels");
                      kernels_.push_back({r.number(0), r.number(1), r.number(2), r.number(3) >> kProcessBits,
                                          r.number(4), r.number(5)});
                      strings_.try_emplace(r.number(5));
                      return {};
                    }));
  if (kernels_.empty()) return bad_input(cat("holds no kernel: ", kKernels, " is empty"));
  return {};
}

// A kernel outside of graphs makes the table of kernels, so that the table alone does not show that graphs were traced
// as wholes: their time would be missing. Kernels of a graph have the correlation id of its launch.
Status Export::check_graphs() const {
  if (!file_.has(kGraphs)) return {};
  std::unordered_set<Id, HashId> started;
  for (const Kernel& k : kernels_) started.insert({k.process, k.correlation});
  const bool joined = file_.has(kGraphs, "correlationId") && file_.has(kKernels, "correlationId");
  return file_.scan(kGraphs, {"globalPid", "correlationId"}, [&](const Row& r) -> Status {
    if (joined && !r.is_null(1) && started.contains({r.number(0) >> kProcessBits, r.number(1)})) return {};
    return graphs_as_wholes();
  });
}

Status Export::read_copies() {
  size_t rows = 0;
  const auto add = [&](const char* name, const Row& r) -> Status {
    TS_ASSIGN(const Timeline::Text id, timeline_.keep(name));
    return timeline_.add({.begin_us = static_cast<double>(r.number(0)) / 1000,
                          .us = (static_cast<double>(r.number(1)) - static_cast<double>(r.number(0))) / 1000,
                          .name = id,
                          .device = r.number(2)},
                         cat("row ", rows));
  };
  if (file_.has(kCopies)) {
    TS_TRY(file_.scan(kCopies, {"start", "end", "deviceId", "copyKind"}, [&](const Row& r) -> Status {
      if (++rows > kMostRows) return too_many("copies");
      const double us = (static_cast<double>(r.number(1)) - static_cast<double>(r.number(0))) / 1000;
      const std::string where = cat("row ", rows, " of ", kCopies);
      if (r.number(3) == kHostToDevice) return timeline_.add_copy(Timeline::Direction::kHostToDevice, us, where);
      if (r.number(3) == kDeviceToHost) return timeline_.add_copy(Timeline::Direction::kDeviceToHost, us, where);
      return add("[CUDA memcpy Device-to-Device]", r).at(kCopies);
    }));
  }
  rows = 0;
  if (!file_.has(kMemsets)) return {};
  return file_.scan(kMemsets, {"start", "end", "deviceId"}, [&](const Row& r) -> Status {
    if (++rows > kMostRows) return too_many("memsets");
    return add("[CUDA memset]", r).at(kMemsets);
  });
}

Status Export::read_ranges() {
  const bool joined = file_.has(kRanges, "globalTid") && file_.has(kRanges, "end") &&
                      file_.has(kLaunches, "globalTid") && file_.has(kLaunches, "correlationId") &&
                      file_.has(kKernels, "correlationId");
  if (!joined) return {};
  const bool typed = file_.has(kRanges, "eventType");
  TS_TRY(file_.scan(kRanges, {"start", "end", "globalTid", "textId", "text", "eventType"}, [&](const Row& r) -> Status {
    if (r.is_null(1) || r.number(1) < r.number(0) || (typed && r.number(5) != kPushPopRange)) return {};
    if (ranges_.size() >= kMostRows) return too_many("NVTX ranges");
    ranges_.push_back({r.number(0), r.number(1), r.number(2), r.number(3), std::string(r.text(4).substr(0, 1024))});
    if (ranges_.back().text.empty()) strings_.try_emplace(r.number(3));
    return keep_text(ranges_.back().text.size());
  }));
  if (ranges_.empty()) return {};
  std::unordered_set<int64_t> started;
  for (const Kernel& k : kernels_) started.insert(k.correlation);
  return file_.scan(kLaunches, {"start", "globalTid", "correlationId"}, [&](const Row& r) -> Status {
    if (!started.contains(r.number(2))) return {};
    if (launches_.size() >= kMostRows) return too_many("launches");
    launches_.push_back({r.number(0), r.number(1), r.number(2)});
    return {};
  });
}

Status Export::keep_text(size_t bytes) {
  if ((text_bytes_ += bytes) <= kTextBytes) return {};
  return bad_input(cat("holds more than ", kTextBytes, " bytes of names"));
}

Status Export::read_strings() {
  return file_.scan(kStrings, {"id", "value"}, [&](const Row& r) -> Status {
    const auto at = strings_.find(r.number(0));
    if (at == strings_.end() || !at->second.empty()) return {};
    at->second = std::string(r.text(1).substr(0, 16'384));
    return keep_text(at->second.size());
  });
}

Status Export::read_machine(Profile& profile) const {
  if (!file_.has("TARGET_INFO_GPU")) return {};
  const int64_t device = kernels_.front().device;
  bool exact = false;
  return file_.scan("TARGET_INFO_GPU", {"id", "name", "computeMajor", "computeMinor"}, [&](const Row& r) -> Status {
    if (exact || (!profile.machine.empty() && r.number(0) != device)) return {};
    profile.machine = std::string(r.text(1).substr(0, 256));
    const int64_t major = r.number(2), minor = r.number(3);
    const bool told = major > 0 && major < 1000 && minor >= 0 && minor < 10;
    profile.capability = told ? 10 * major + minor : 0;
    exact = r.number(0) == device;
    return {};
  });
}

// The innermost range around each launch, thread by thread: ranges that are pushed and popped nest.
ById<const Range*> Export::range_of_launches() {
  std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) {
    return std::tuple(a.thread, a.begin_ns, b.end_ns) < std::tuple(b.thread, b.begin_ns, a.end_ns);
  });
  std::sort(launches_.begin(), launches_.end(), [](const Launch& a, const Launch& b) {
    return std::pair(a.thread, a.at_ns) < std::pair(b.thread, b.at_ns);
  });
  ById<const Range*> found;
  std::vector<const Range*> open;
  size_t next = 0;
  for (const Launch& l : launches_) {
    while (next < ranges_.size() &&
           std::pair(ranges_[next].thread, ranges_[next].begin_ns) <= std::pair(l.thread, l.at_ns))
      open.push_back(&ranges_[next++]);
    while (!open.empty() && (open.back()->thread != l.thread || open.back()->end_ns < l.at_ns)) open.pop_back();
    if (!open.empty()) found.emplace(Id{l.thread >> kProcessBits, l.correlation}, open.back());
  }
  return found;
}

Result<Timeline::Text> Export::layer_of(const Range* range) {
  std::string_view text = range->text;
  if (text.empty()) text = strings_[range->name];
  // PyTorch's ranges carry a counter, which is no part of a layer's name.
  return timeline_.keep(text.substr(0, text.find(", seq = ")));
}

Status Export::fill_timeline(Profile& profile) {
  for (size_t i = 0; i < kernels_.size(); ++i) {
    const Kernel& k = kernels_[i];
    const std::string& name = strings_[k.name];
    TS_ASSIGN(const Timeline::Text id, timeline_.keep(name.empty() ? std::string_view("(no name)") : name));
    TS_TRY(timeline_.add({.begin_us = static_cast<double>(k.begin_ns) / 1000,
                          .us = (static_cast<double>(k.end_ns) - static_cast<double>(k.begin_ns)) / 1000,
                          .name = id,
                          .device = k.device},
                         cat("row ", i + 1, " of ", kKernels)));
  }
  const auto ranges = range_of_launches();
  // A launch of many kernels is that of a graph, and the range around it none of their layers.
  ById<size_t> started;
  for (const Kernel& k : kernels_) ++started[{k.process, k.correlation}];
  for (size_t i = 0; i < kernels_.size(); ++i) {
    const Id id{kernels_[i].process, kernels_[i].correlation};
    const auto at = ranges.find(id);
    if (at == ranges.end() || started[id] > 1) continue;
    const auto layer = layer_of(at->second);
    if (!layer.ok()) {
      for (Timeline::Launch& l : timeline_.launches()) l.layer = 0;
      profile.notes.push_back("There are too many different NVTX ranges to be layers; they are left out.");
      break;
    }
    timeline_.launches()[i].layer = *layer;
  }
  return {};
}

Result<Profile> Export::read(int64_t runs) {
  TS_TRY(check_schema());
  TS_TRY(read_kernels());
  TS_TRY(check_graphs());
  TS_TRY(read_ranges());
  TS_TRY(read_strings());
  Profile profile;
  profile.source = "nsight systems";
  TS_TRY(fill_timeline(profile));
  TS_TRY(read_copies());
  TS_TRY(read_machine(profile));
  timeline_.put_into(profile, settle_runs(runs, 0, profile), rules_);
  return profile;
}

}  // namespace

bool looks_like_nsight(const Opening& o) { return o.head.starts_with(std::string_view("SQLite format 3\0", 16)); }

Result<Profile> read_nsight(const Input& input) {
  if (!input.beside.empty()) return bad_input("is an SQLite file, to which no further file belongs");
  if (!looks_like_nsight({.head = std::string(reinterpret_cast<const char*>(input.main.bytes.data()),
                                              std::min<size_t>(input.main.bytes.size(), 16))}))
    return bad_input("is a packed SQLite file: unpack it first");
  TS_ASSIGN(const SqliteFile file, SqliteFile::open(input.main.path));
  return Export(file, input.rules).read(input.options.runs);
}

}  // namespace tessera
