// SPDX-License-Identifier: Apache-2.0
#include "runtime/time_kernel.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "archs/cuda/device_memory.h"
#include "base/random.h"
#include "op/op.h"
#include "op/operand_extent.h"
#include "op/prepack.h"
#include "ops/matmul/matmul.h"

#ifdef TS_WITH_CUDA
#include "archs/cuda/status.h"
#endif

namespace tessera {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(mix64(seed) | 1) {}
  uint64_t next() {  // xorshift64*
    state_ ^= state_ >> 12, state_ ^= state_ << 25, state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  // About normal, variance 1: four uniform numbers of 16 bits from one draw.
  double normal() {
    uint64_t bits = next();
    double sum = -2;
    for (int i = 0; i < 4; ++i, bits >>= 16) sum += static_cast<double>(bits & 0xffff) * 0x1p-16;
    return sum * 1.7320508075688772;
  }

 private:
  uint64_t state_;
};

// Codes of this magnitude stand for numbers of magnitude 1 (e4m3: 64).
double code_unit(const QuantType& type) { return type.scaled() ? info(type.element).max / 7 : 1; }

// Numbers of the first block repeat: drawing and rounding 40 million would take longer than timing them. The block is
// no multiple of a row.
constexpr int64_t kBlock = (1 << 20) + 64;

Buffer random_codes(const Operand& o, Random& random) {
  const int64_t count = span_of(o);
  Buffer codes(static_cast<size_t>(packed_bytes(o.type.element, count)));
  if (codes.size() == 0) return codes;
  std::memset(codes.data(), 0, codes.size());
  const ElementInfo& element = info(o.type.element);
  if (element.kind == ElementKind::kInteger && !o.type.scaled()) return codes;
  std::vector<double> numbers(static_cast<size_t>(std::min(count, kBlock)));
  for (double& v : numbers) v = random.normal() * code_unit(o.type);
  element.encode_f64(numbers.data(), static_cast<int64_t>(numbers.size()), codes.data(), 0);
  const size_t block = static_cast<size_t>(packed_bytes(o.type.element, static_cast<int64_t>(numbers.size())));
  for (size_t at = block; at < codes.size(); at += block)
    std::memcpy(codes.data() + at, codes.data(), std::min(block, codes.size() - at));
  return codes;
}

Bytes scales_of(const ScaleLevel& level, const Shape& shape, double around) {
  if (level.granularity == Granularity::kNone) return {};
  std::vector<double> numbers(static_cast<size_t>(scale_count(level, rows_of(shape), cols_of(shape))));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = around * (0.75 + 0.0625 * static_cast<double>(i % 8));
  Buffer codes(static_cast<size_t>(packed_bytes(level.element, static_cast<int64_t>(numbers.size()))));
  if (!numbers.empty())
    info(level.element).encode_f64(numbers.data(), static_cast<int64_t>(numbers.size()), codes.data(), 0);
  return Bytes::own(std::move(codes));
}

// Keeps the two largest-indexed of each four along a row zero: which two does not change the time.
void prune(Buffer& codes, Element element, int64_t cols) {
  const int64_t count = cols == 0 ? 0 : static_cast<int64_t>(codes.size()) * 8 / info(element).bits;
  std::vector<double> zero(1, 0);
  for (int64_t i = 0; i < count; ++i) {
    if (i % cols % 4 > 1) info(element).encode_f64(zero.data(), 1, codes.data(), i);
  }
}

int64_t result_bytes(const Operand& o) { return packed_bytes(o.type.element, elements(o.shape)); }

// Weights in the layouts that the variant wants.
Result<ProblemBytes> arranged(const Problem& problem, const ProblemBytes& plain) {
  ProblemBytes out = plain;
  for (size_t i = 0; i < problem.in.size(); ++i) {
    const Operand& o = problem.in[i];
    if (!o.present || o.layout == Layout::kRows) continue;
    TS_ASSIGN(Prepacked packed, prepack(o, plain.in[i].data.data(), plain.in[i].scale.data()));
    if (packed.codes.size() > 0) out.in[i].data = Bytes::own(std::move(packed.codes));
    if (packed.scales.size() > 0) out.in[i].scale = Bytes::own(std::move(packed.scales));
  }
  return out;
}

// The problem as the variant runs it: its config named, its operands in the layouts that it wants.
Result<Problem> prepared(const Variant& variant, const Problem& asked) {
  if (variant.bind == nullptr) return machine_error(cat(variant.name, ": this build holds only its contract"));
  Problem problem = asked;
  TS_ASSIGN(problem.config, checked_config(variant, problem));
  const std::vector<OperandLayout> layouts = layouts_of(variant, problem);
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (problem.in[i].present) problem.in[i].layout = layouts[i];
  }
  return problem;
}

// One set of operands, one call after the other.
Result<KernelTimes> time_on_host(const Variant& variant, const Problem& asked, const ProblemBytes& plain,
                                 const TimingOptions& options) {
  TS_ASSIGN(const Problem problem, prepared(variant, asked));
  TS_ASSIGN(const ProblemBytes bytes, arranged(problem, plain));
  std::vector<TensorView> in, out;
  std::vector<Buffer> results;
  const auto view = [](const Operand& desc, const OperandBytes& b, const uint8_t* data) {
    const auto memory = [](const Bytes& from) {
      return from.size() == 0 ? nullptr : const_cast<uint8_t*>(from.data());
    };
    TensorView v;
    v.desc = &desc, v.data = const_cast<uint8_t*>(data), v.scale = memory(b.scale), v.scale2 = memory(b.scale2);
    return v;
  };
  for (size_t i = 0; i < problem.in.size(); ++i)
    in.push_back(problem.in[i].present ? view(problem.in[i], bytes.in[i], bytes.in[i].data.data()) : TensorView{});
  for (size_t i = 0; i < problem.out.size(); ++i) {
    results.emplace_back(static_cast<size_t>(result_bytes(problem.out[i])));
    out.push_back(view(problem.out[i], bytes.out[i], results.back().data()));
  }
  Buffer workspace(static_cast<size_t>(variant.workspace_bytes != nullptr ? variant.workspace_bytes(problem) : 0));
  TS_ASSIGN(const std::unique_ptr<Kernel> kernel, variant.bind(problem));
  std::vector<double> all;
  for (int r = -1; r < options.replays; ++r) {  // the first call warms pages and caches up
    const auto start = std::chrono::steady_clock::now();
    TS_TRY(kernel->launch(in, out, workspace.data(), {}));
    if (r >= 0)
      all.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(all.begin(), all.end());
  return KernelTimes{.us = all[all.size() / 2],
                     .fastest_us = all.front(),
                     .calls = 1,
                     .replays = options.replays,
                     .sets = 1,
                     .bytes = operand_bytes(problem)};
}

}  // namespace

ProblemBytes random_bytes(const Problem& problem, uint64_t seed, double result_amax) {
  Random random(seed);
  ProblemBytes bytes;
  for (size_t i = 0; i < problem.in.size(); ++i) {
    const Operand& o = problem.in[i];
    OperandBytes& b = bytes.in.emplace_back();
    if (!o.present) continue;
    Buffer codes = random_codes(o, random);
    if (i == 1 && problem.attrs.integer(kSparse24) != 0) prune(codes, o.type.element, cols_of(o.shape));
    b.data = Bytes::own(std::move(codes));
    b.scale = scales_of(o.type.scale, o.shape, 1 / code_unit(o.type));
    b.scale2 = scales_of(o.type.scale2, o.shape, 1);
  }
  for (const Operand& o : problem.out) {
    OperandBytes& b = bytes.out.emplace_back();
    b.scale = scales_of(o.type.scale, o.shape, scale_for_amax(o.type.element, static_cast<float>(result_amax)));
    b.scale2 = scales_of(o.type.scale2, o.shape, 1);
  }
  return bytes;
}

double operand_bytes(const Problem& problem) {
  double bytes = 0;
  for (const std::vector<Operand>* side : {&problem.in, &problem.out}) {
    for (const Operand& o : *side) {
      if (!o.present) continue;
      bytes += static_cast<double>(packed_bytes(o.type.element, elements(o.shape)));
      for (const ScaleLevel* level : {&o.type.scale, &o.type.scale2}) {
        if (level->granularity == Granularity::kNone) continue;
        bytes +=
            static_cast<double>(packed_bytes(level->element, scale_count(*level, rows_of(o.shape), cols_of(o.shape))));
      }
    }
  }
  return bytes;
}

#ifdef TS_WITH_CUDA
namespace {

// A set of operands on the device, in one allocation; each piece begins at a multiple of 256 bytes, as CUDA aligns its
// own.
class OperandSet {
 public:
  OperandSet(const Problem& problem, const ProblemBytes& bytes) : problem_(problem), bytes_(bytes) {}

  // Bytes in all, after which allocate() or copy_of() may be called.
  int64_t measure() {
    for (size_t i = 0; i < problem_.in.size(); ++i) {
      in_.push_back({add(bytes_.in[i].data.size()), add(bytes_.in[i].scale.size()), add(bytes_.in[i].scale2.size())});
    }
    for (size_t i = 0; i < problem_.out.size(); ++i) {
      out_.push_back({add(static_cast<size_t>(result_bytes(problem_.out[i]))), add(bytes_.out[i].scale.size()),
                      add(bytes_.out[i].scale2.size())});
    }
    return total_;
  }
  Status allocate() {
    TS_TRY(memory_.allocate(static_cast<size_t>(total_)));
    return fill_device(memory_.data(), 0xff, static_cast<size_t>(total_));
  }
  Status fill() {
    const auto put = [&](int64_t offset, const Bytes& b) {
      return b.size() == 0 ? Status() : copy_to_device(memory_.data() + offset, b.data(), b.size());
    };
    for (size_t i = 0; i < in_.size(); ++i) {
      TS_TRY(put(in_[i].data, bytes_.in[i].data));
      TS_TRY(put(in_[i].scale, bytes_.in[i].scale));
      TS_TRY(put(in_[i].scale2, bytes_.in[i].scale2));
    }
    for (size_t i = 0; i < out_.size(); ++i) {
      TS_TRY(put(out_[i].scale, bytes_.out[i].scale));
      TS_TRY(put(out_[i].scale2, bytes_.out[i].scale2));
    }
    return {};
  }
  Status copy_from(const OperandSet& other) {
    TS_TRY(cuda::cuda_status("copying operands", cudaMemcpy(memory_.data(), other.memory_.data(),
                                                            static_cast<size_t>(total_), cudaMemcpyDeviceToDevice)));
    return device_synchronise();  // such a copy returns before it is done
  }
  void place() {
    const auto view = [&](const Operand& desc, const Offsets& at, const OperandBytes& b) {
      TensorView v;
      v.desc = &desc;
      v.data = memory_.data() + at.data;
      if (b.scale.size() > 0) v.scale = memory_.data() + at.scale;
      if (b.scale2.size() > 0) v.scale2 = memory_.data() + at.scale2;
      return v;
    };
    for (size_t i = 0; i < in_.size(); ++i) {
      in_views.push_back(problem_.in[i].present ? view(problem_.in[i], in_[i], bytes_.in[i]) : TensorView{});
    }
    for (size_t i = 0; i < out_.size(); ++i) out_views.push_back(view(problem_.out[i], out_[i], bytes_.out[i]));
  }
  std::vector<TensorView> in_views, out_views;

 private:
  struct Offsets {
    int64_t data, scale, scale2;
  };
  int64_t add(size_t bytes) {
    const int64_t at = total_;
    total_ += (static_cast<int64_t>(bytes) + 255) / 256 * 256;
    return at;
  }

  const Problem& problem_;
  const ProblemBytes& bytes_;
  std::vector<Offsets> in_, out_;
  int64_t total_ = 0;
  DeviceBuffer memory_;
};

// Stream, events and graph that go when timing ends, however it ends.
struct Timer {
  cudaStream_t stream = nullptr;
  cudaEvent_t start = nullptr, stop = nullptr;
  cudaGraphExec_t exec = nullptr;
  ~Timer() {
    if (stream != nullptr) (void)cudaStreamSynchronize(stream);
    if (exec != nullptr) (void)cudaGraphExecDestroy(exec);
    if (start != nullptr) (void)cudaEventDestroy(start);
    if (stop != nullptr) (void)cudaEventDestroy(stop);
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
  }
  Status make() {
    TS_TRY(cuda::cuda_status("making a stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
    TS_TRY(cuda::cuda_status("making an event", cudaEventCreate(&start)));
    return cuda::cuda_status("making an event", cudaEventCreate(&stop));
  }
  Result<double> replay_ms() {
    TS_TRY(cuda::cuda_status("recording an event", cudaEventRecord(start, stream)));
    TS_TRY(cuda::cuda_status("launching the graph", cudaGraphLaunch(exec, stream)));
    TS_TRY(cuda::cuda_status("recording an event", cudaEventRecord(stop, stream)));
    TS_TRY(cuda::cuda_status("running the graph", cudaEventSynchronize(stop)));
    float ms = 0;
    TS_TRY(cuda::cuda_status("reading events", cudaEventElapsedTime(&ms, start, stop)));
    return static_cast<double>(ms);
  }
};

// Sets that exceed the L2 twice, as far as a quarter of the free memory holds them.
Result<int> sets_for(int64_t bytes) {
  constexpr int kMost = 128;
  int device = 0, l2 = 0;
  size_t free = 0, total = 0;
  TS_TRY(cuda::cuda_status("asking for the GPU", cudaGetDevice(&device)));
  TS_TRY(cuda::cuda_status("asking for the L2's size", cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device)));
  TS_TRY(cuda::cuda_status("asking for the free memory", cudaMemGetInfo(&free, &total)));
  const int64_t wanted = 2 * int64_t{l2} / std::max<int64_t>(bytes, 1) + 1;
  const int64_t room = static_cast<int64_t>(free / 4) / std::max<int64_t>(bytes, 1);
  return static_cast<int>(std::clamp<int64_t>(std::min(wanted, room), 1, kMost));
}

}  // namespace

Result<KernelTimes> time_kernel(const Variant& variant, const Problem& asked, const ProblemBytes& plain,
                                const TimingOptions& options, std::vector<Buffer>* results) {
  if (info(variant.arch).device == DeviceKind::kHost) return time_on_host(variant, asked, plain, options);
  TS_ASSIGN(const Problem problem, prepared(variant, asked));
  TS_ASSIGN(const ProblemBytes bytes, arranged(problem, plain));

  Timer timer;
  TS_TRY(timer.make());
  TS_ASSIGN(const int sets, sets_for(OperandSet(problem, bytes).measure()));
  std::vector<OperandSet> operands;
  operands.reserve(static_cast<size_t>(sets));
  for (int s = 0; s < sets; ++s) {
    OperandSet& set = operands.emplace_back(problem, bytes);
    (void)set.measure();
    TS_TRY(set.allocate());
    TS_TRY(s == 0 ? set.fill() : set.copy_from(operands[0]));
    set.place();
  }
  DeviceBuffer workspace;
  TS_TRY(workspace.allocate(
      static_cast<size_t>(variant.workspace_bytes != nullptr ? variant.workspace_bytes(problem) : 0)));
  TS_ASSIGN(const std::unique_ptr<Kernel> kernel, variant.bind(problem));
  const auto launch = [&](int call) {
    OperandSet& set = operands[static_cast<size_t>(call % sets)];
    return kernel->launch(set.in_views, set.out_views, workspace.data(), {timer.stream});
  };
  TS_TRY(device_synchronise());  // copies went through another stream

  // Outside a capture first: lazily loaded modules and first-launch work stay out of the graph.
  TS_TRY(launch(0));
  TS_TRY(cuda::cuda_status("running the kernel once", cudaStreamSynchronize(timer.stream)));
  if (results != nullptr) {
    results->clear();
    for (size_t i = 0; i < problem.out.size(); ++i) {
      Buffer& b = results->emplace_back(static_cast<size_t>(result_bytes(problem.out[i])));
      TS_TRY(copy_to_host(b.data(), operands[0].out_views[i].data, b.size()));
    }
  }
  KernelTimes times{.calls = std::max(options.calls, sets),
                    .replays = options.replays,
                    .sets = sets,
                    .bytes = operand_bytes(problem)};
  TS_TRY(cuda::cuda_status("starting the capture",
                           cudaStreamBeginCapture(timer.stream, cudaStreamCaptureModeThreadLocal)));
  Status launched;
  for (int c = 0; c < times.calls && launched.ok(); ++c) launched = launch(c);
  cudaGraph_t graph = nullptr;
  const Status ended = cuda::cuda_status("ending the capture", cudaStreamEndCapture(timer.stream, &graph));
  Status made = launched.ok() ? ended : launched;
  if (made.ok()) made = cuda::cuda_status("making the graph", cudaGraphInstantiate(&timer.exec, graph, 0));
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  TS_TRY(made);

  for (double warm = 0; warm < options.warm_ms;) {
    TS_ASSIGN(const double ms, timer.replay_ms());
    warm += std::max(ms, 0.1);
  }
  std::vector<double> all;
  for (int r = 0; r < options.replays; ++r) {
    TS_ASSIGN(const double ms, timer.replay_ms());
    all.push_back(ms * 1e3 / times.calls);
  }
  std::sort(all.begin(), all.end());
  times.us = all[all.size() / 2];
  times.fastest_us = all.front();
  return times;
}

#else

Result<KernelTimes> time_kernel(const Variant& variant, const Problem& asked, const ProblemBytes& plain,
                                const TimingOptions& options, std::vector<Buffer>*) {
  if (info(variant.arch).device == DeviceKind::kHost) return time_on_host(variant, asked, plain, options);
  return machine_error(cat(variant.name, ": ", why_no_device(Arch::cuda)));
}

#endif

}  // namespace tessera
