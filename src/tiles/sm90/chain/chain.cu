// SPDX-License-Identifier: Apache-2.0
#include "tiles/sm90/chain/chain.h"

#ifdef __CUDACC__
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "archs/cuda/device_memory.h"
#include "archs/sm90/chip.h"
#include "tiles/cuda/launch.cuh"
#include "tiles/sm90/chain/chain.cuh"
#include "tiles/sm90/chain/chain_kernels.h"
#endif

namespace tessera::sm90 {

#ifdef __CUDACC__
namespace {

constexpr const char* kName = "tiles/sm90/chain";

struct Range {
  const uint8_t *begin, *end;
  bool meets(const void* data, int64_t bytes) const {
    const auto* at = static_cast<const uint8_t*>(data);
    return data != nullptr && at < end && begin < at + std::max<int64_t>(bytes, 1);
  }
};
Range range_of(const void* data, int64_t bytes) {
  const auto* at = static_cast<const uint8_t*>(data);
  return {at, at + bytes};
}
int64_t bytes_of(Element e, int64_t count) { return count * info(e).bits / 8; }

// What the phases so far write.
class Written {
 public:
  void note(const ChainPhase& f) {
    if (f.kind == ChainKind::kAttention) {
      const FewParams& a = f.attention;
      all_.push_back(range_of(a.y, bytes_of(a.y_element, int64_t{f.units} * a.queries * a.head_size)));
      return;
    }
    const SwappedParams& p = f.matmul;
    const int64_t numbers = int64_t{p.m} * p.cols;
    all_.push_back(range_of(p.y, bytes_of(p.y_element, numbers)));
    if (p.codes != nullptr) all_.push_back(range_of(p.codes, bytes_of(p.codes_element, numbers)));
    if (p.moments != nullptr)
      all_.push_back(range_of(p.moments, int64_t{8} * p.m * ((p.n + kSwappedChannels - 1) / kSwappedChannels)));
    for (int i = 0; i < p.heads.kept_count; ++i) {
      const SwappedHeads::Kept& k = p.heads.kept[i];
      const int64_t count = int64_t{k.rows.batch} * k.rows.outer * k.rows.rows * k.rows.run;
      kept_.push_back({range_of(k.data, bytes_of(k.element, count)), k});
    }
  }
  bool any(const void* data, int64_t bytes) const {
    return std::any_of(all_.begin(), all_.end(), [&](const Range& r) { return r.meets(data, bytes); }) ||
           std::any_of(kept_.begin(), kept_.end(), [&](const auto& k) { return k.first.meets(data, bytes); });
  }
  // Of a cache that attention reads; its new rows are written where its lengths say that the old ones end.
  FewWritten of_cache(const void* data, int64_t bytes, const FewParams& a) const {
    for (const Range& r : all_) {
      if (r.meets(data, bytes)) return FewWritten::kAll;
    }
    FewWritten found = FewWritten::kNone;
    for (const auto& [range, k] : kept_) {
      if (!range.meets(data, bytes)) continue;
      const bool fresh = k.at == a.lengths && a.lengths != nullptr && k.rows.tokens == a.fresh &&
                         k.rows.rows == a.keys && (k.at_stride == 0) == (a.length_stride == 0);
      if (!fresh) return FewWritten::kAll;
      found = FewWritten::kFresh;
    }
    return found;
  }

 private:
  std::vector<Range> all_;
  std::vector<std::pair<Range, SwappedHeads::Kept>> kept_;
};

// What is read before a phase begins must have been there before the chain.
bool reads_early(const ChainPhase& f, const Written& written) {
  if (f.kind == ChainKind::kAttention) {
    const FewParams& a = f.attention;
    const int64_t lengths = int64_t{a.length_stride} * (f.units / std::max(a.heads, 1) - 1) + 1;
    return written.any(a.lengths, 4 * lengths) || written.any(a.y_scale, 4);
  }
  const SwappedParams& p = f.matmul;
  const int64_t angles = int64_t{p.heads.angle_rows} * p.heads.angle_stride;
  const std::pair<const void*, int64_t> vectors[] = {
      {p.x_scale, 4},
      {p.w_scale, p.w_scale_stride > 0 ? int64_t{4} * p.n : 4},
      {p.bias, bytes_of(p.bias_element, p.n)},
      {p.gain, bytes_of(p.gain_element, p.n)},
      {p.y_scale, 4},
      {p.codes_scale, 4},
      {p.codes_gain, bytes_of(p.codes_gain_element, p.cols)},
      {p.heads.angles, bytes_of(p.heads.angle_element, angles)},
  };
  for (const auto& [data, bytes] : vectors) {
    if (data != nullptr && written.any(data, bytes)) return true;
  }
  for (int i = 0; i < p.heads.kept_count; ++i) {
    const SwappedHeads::Kept& k = p.heads.kept[i];
    if (written.any(k.at, 4) || written.any(k.scale, 4)) return true;
  }
  return false;
}

struct Elements {
  std::optional<Element> x, half;
  Status see(const ChainPhase& f) {
    std::optional<Element>& known = f.kind == ChainKind::kAttention ? half : x;
    if (known && *known != f.element)
      return bad_input(cat(kName, ": phases of ", info(*known).name, " and of ", info(f.element).name));
    known = f.element;
    return {};
  }
  ChainKernel kernel(int tokens) const {
    const Element of_x = x ? *x : half.value_or(Element::bf16);
    const Element of_half = half ? *half : of_x == Element::f16 ? Element::f16 : Element::bf16;
    switch (of_x) {
      case Element::bf16:
        return chain_of_bf16(tokens, of_half);
      case Element::f16:
        return chain_of_f16(tokens, of_half);
      case Element::e4m3:
        return chain_of_e4m3(tokens, of_half);
      default:
        return nullptr;
    }
  }
};

class ChainOfPhases final : public Chain {
 public:
  Status prepare(std::span<const Bytes> records) {
    std::vector<ChainPhase> phases(records.size());
    Elements elements;
    Written written;
    int tokens = 0, x_bytes = 0;
    for (size_t i = 0; i < records.size(); ++i) {
      ChainPhase& f = phases[i];
      if (records[i].size() != sizeof(f)) return bad_input(cat(kName, ": phase ", i, " has no record of this chip"));
      std::memcpy(&f, records[i].data(), sizeof(f));
      TS_TRY(elements.see(f));
      if (reads_early(f, written))
        return bad_input(cat(kName, ": phase ", i, " reads a vector that an earlier phase writes"));
      tokens = std::max(tokens, f.tokens);
      if (f.kind == ChainKind::kAttention) {
        FewParams& a = f.attention;
        a.written = std::max(written.of_cache(a.k_data, a.k_bytes, a), written.of_cache(a.v_data, a.v_bytes, a));
      }
      written.note(f);
    }
    for (const ChainPhase& f : phases) {
      if (f.tokens != tokens) return bad_input(cat(kName, ": phases of ", f.tokens, " and of ", tokens, " rows"));
      x_bytes = std::max(x_bytes, f.kind == ChainKind::kAttention ? few_x_bytes(tokens, f.attention.head_size * 2)
                                                                  : chain_x_bytes(tokens, f.k_blocks, f.split));
    }
    kernel_ = elements.kernel(tokens);
    if (kernel_ == nullptr) return bad_input(cat(kName, ": no kernel for these types and ", tokens, " rows"));
    measure(phases);
    params_.memory = chain_memory(tokens, x_bytes, kMostSharedBytes);
    if (params_.memory.stages < 2) return bad_input(cat(kName, ": ", x_bytes, " bytes of x leave no room for weights"));
    return place(phases);
  }

  Status launch(void* stream) override {
    return cuda::cuda_status(kName, launch_on(static_cast<cudaStream_t>(stream)));
  }
  int blocks() const override { return blocks_; }

 private:
  Status place(const std::vector<ChainPhase>& phases) {
    TS_TRY(phases_.allocate(phases.size() * sizeof(ChainPhase)));
    TS_TRY(copy_to_device(phases_.data(), phases.data(), phases.size() * sizeof(ChainPhase)));
    TS_TRY(arrived_.allocate(128));
    TS_TRY(fill_device(arrived_.data(), 0, 128));
    TS_TRY(meeting_.allocate(static_cast<size_t>(std::max<int64_t>(meeting_bytes_, 128))));
    const size_t met = std::max<size_t>(static_cast<size_t>(params_.units) * 2 * sizeof(uint32_t), 128);
    TS_TRY(met_.allocate(met));
    TS_TRY(fill_device(met_.data(), 0, met));
    params_.phases = reinterpret_cast<const ChainPhase*>(phases_.data());
    params_.count = static_cast<int>(phases.size());
    params_.arrived = reinterpret_cast<uint32_t*>(arrived_.data());
    params_.meeting = meeting_.data();
    params_.met = reinterpret_cast<uint32_t*>(met_.data());
    TS_TRY(cuda::allow_shared_memory(kName, kernel_, kMostSharedBytes));  // all chains of a kernel share its limit
    TS_TRY(count_blocks());
    return find_room();
  }

  // What units that slices share need beside the kernel: the phase that needs most.
  void measure(const std::vector<ChainPhase>& phases) {
    for (const ChainPhase& f : phases) {
      if (f.split == 1) continue;
      const FewParams& a = f.attention;
      const int64_t bytes = f.kind == ChainKind::kAttention
                                ? few_meeting_bytes((a.queries + kFewRows - 1) / kFewRows, a.head_size)
                                : meeting_bytes(f.tokens, f.split);
      meeting_bytes_ = std::max(meeting_bytes_, bytes * f.units);
      params_.units = std::max(params_.units, f.units);
      least_blocks_ = std::max(least_blocks_, f.split);
    }
  }

  Status count_blocks() {
    int device = 0, sms = 0, on_sm = 0;
    TS_TRY(cuda::cuda_status(kName, cudaGetDevice(&device)));
    TS_TRY(cuda::cuda_status(kName, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device)));
    TS_TRY(cuda::cuda_status(kName, cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                                        &on_sm, kernel_, kChainThreads, static_cast<size_t>(params_.memory.bytes))));
    blocks_ = on_sm > 0 ? sms : 0;
    if (const char* most = std::getenv(kMostBlocksVariable))
      blocks_ = std::clamp(std::atoi(most), least_blocks_, std::max(blocks_, least_blocks_));
    return {};
  }

  // The driver's number need not fit side by side; a launch without phases shows it.
  Status find_room() {
    cudaStream_t stream = nullptr;
    TS_TRY(cuda::cuda_status(kName, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
    const int count = std::exchange(params_.count, 0);
    cudaError_t answer = blocks_ < least_blocks_ ? cudaErrorCooperativeLaunchTooLarge : launch_on(stream);
    while (answer == cudaErrorCooperativeLaunchTooLarge && blocks_ > least_blocks_) {
      (void)cudaGetLastError();
      --blocks_;
      answer = launch_on(stream);
    }
    if (answer == cudaSuccess) answer = cudaStreamSynchronize(stream);
    params_.count = count;
    (void)cudaStreamDestroy(stream);
    if (answer == cudaErrorCooperativeLaunchTooLarge) {
      (void)cudaGetLastError();
      return machine_error(cat(kName, ": this GPU has no room for ", least_blocks_, " blocks at a time"));
    }
    return cuda::cuda_status(kName, answer);
  }

  cudaError_t launch_on(cudaStream_t stream) const {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks_));
    config.blockDim = dim3(kChainThreads);
    config.dynamicSmemBytes = static_cast<size_t>(params_.memory.bytes);
    config.stream = stream;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeCooperative;  // all blocks at once, or none
    attribute.val.cooperative = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel_, params_);
  }

  ChainKernel kernel_ = nullptr;
  ChainParams params_{};
  int blocks_ = 0, least_blocks_ = 1;
  int64_t meeting_bytes_ = 0;
  DeviceBuffer phases_, arrived_, meeting_, met_;
};

}  // namespace

Result<std::unique_ptr<Chain>> Chain::make(std::span<const Bytes> phases) {
  auto chain = std::make_unique<ChainOfPhases>();
  TS_TRY(chain->prepare(phases));
  return std::unique_ptr<Chain>(std::move(chain));
}

#else

Result<std::unique_ptr<Chain>> Chain::make(std::span<const Bytes>) {
  return machine_error("a chain was compiled without its kernels (no CUDA toolkit at build time)");
}

#endif

}  // namespace tessera::sm90
