// SPDX-License-Identifier: Apache-2.0
// Host side of the streaming kernels: tensor maps, which rows make a tile, the launch. Included by sm90_stream.cu and
// sm90_stream_fp8.cu only.
#pragma once

#include <bit>

#include "archs/sm90/chip.h"
#include "ops/attention/sm90_contract.h"
#include "tiles/cuda/launch.cuh"
#include "tiles/sm90/stream_attend.cuh"
#include "tiles/sm90/tensor_map.cuh"

namespace tessera {

// Keys and values worked on at a time: half of the L2, less 1 MiB for the queries and results that pass through it.
constexpr int64_t kTogetherBytes = sm90::kL2Bytes / 2 - (1 << 20);

// One instantiation, as the host sees it.
struct StreamChoice {
  void (*kernel)(sm90::StreamMaps, sm90::StreamParams) = nullptr;
  int rows = 0, keys = 0, columns = 0, value_columns = 0,
      threads = 0;  // of a tile; of a block of keys; of a box of q and k, of v
  size_t shared_bytes = 0;
  int slices = 0;  // stream_slices
};
template <class C>
StreamChoice stream_choice(int slices = 0) {
  return {sm90::stream_attention<C>, C::kRows,    C::kKeys,        C::kChunkColumns,
          C::kValueChunkColumns,     C::kThreads, C::kSharedBytes, slices};
}

class StreamKernel final : public Kernel {
 public:
  StreamKernel(const char* name, const Problem& problem, const StreamChoice& choice, int sms)
      : name_(name), problem_(problem), a_(AttentionProblem::of(problem_)), choice_(choice), sms_(sms) {}
  Status prepare() { return cuda::allow_shared_memory(name_, choice_.kernel, choice_.shared_bytes); }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (a_.batch * a_.queries * a_.heads * a_.value_size == 0) return {};
    for (const void* p : {in[0].data, in[1].data, in[2].data, out[0].data}) {
      if (!is_aligned(p, 16)) return machine_error(cat(name_, ": an operand does not start at a multiple of 16 bytes"));
    }
    const int64_t pack = packed_heads(a_), groups = a_.heads / pack;
    const Shape &q = a_.q_strides, &k = a_.k_strides, &v = a_.v_strides;
    const auto keys_map = [&](const TensorView& t, const Shape& s, int64_t columns, int box) {
      return cuda::make_tensor_map<4>(
          {t.data,
           a_.q.element,
           {columns, a_.kv_heads, a_.keys, a_.batch},
           {copy_stride(a_.kv_heads, s[2]), copy_stride(a_.keys, s[1]), copy_stride(a_.batch, s[0])},
           {box, 1, choice_.keys, 1}});
    };
    sm90::StreamMaps maps;
    TS_ASSIGN(maps.q, cuda::make_tensor_map<5>({in[0].data,
                                                a_.q.element,
                                                {a_.head_size, pack, a_.queries, groups, a_.batch},
                                                {copy_stride(pack, q[2]), copy_stride(a_.queries, q[1]),
                                                 copy_stride(groups, pack * q[2]), copy_stride(a_.batch, q[0])},
                                                {choice_.columns, static_cast<int>(pack),
                                                 static_cast<int>(sm90::kGroupRows / pack), 1, 1}}));
    TS_ASSIGN(maps.k, keys_map(in[1], k, a_.head_size, choice_.columns));
    TS_ASSIGN(maps.v, keys_map(in[2], v, a_.value_size, choice_.value_columns));
    const int tiles = static_cast<int>(stream_tiles(a_, choice_.rows));
    // L2: the heads of a causal problem are taken together, so that tiles of one length come side by side; else one
    // after another.
    const int64_t head_bytes = a_.keys * (a_.head_size + a_.value_size) * info(a_.q.element).bits / 8;
    sm90::StreamParams p{
        .queries = static_cast<int>(a_.queries),
        .keys = static_cast<int>(a_.keys),
        .heads = static_cast<int>(a_.heads),
        .value_size = static_cast<int>(a_.value_size),
        .heads_per_kv = static_cast<int>(a_.heads / a_.kv_heads),
        .pack_shift = std::countr_zero(static_cast<uint64_t>(pack)),
        .head_groups = static_cast<int>(groups),
        .row_tiles = static_cast<int>(divide_up(a_.queries * pack, choice_.rows)),
        .tiles = tiles,
        .together =
            a_.causal ? static_cast<int>(std::clamp<int64_t>(kTogetherBytes / head_bytes, 1, a_.batch * groups)) : 1,
        .slices = std::max(1, choice_.slices),
        .causal = a_.causal,
        .scale = static_cast<float>(a_.has_bias ? a_.scale : a_.scale * sm90::kLog2e),
        .q_scale = static_cast<const float*>(in[0].scale),
        .k_scale = static_cast<const float*>(in[1].scale),
        .v_scale = static_cast<const float*>(in[2].scale),
        .y = device_tensor(out[0])};
    if (a_.has_bias) {
      p.bias = in[3].data;
      p.bias_element = in[3].desc->type.element;
      p.bias_batch = a_.bias_strides[0], p.bias_head = a_.bias_strides[1], p.bias_query = a_.bias_strides[2],
      p.bias_key = a_.bias_strides[3];
    }
    if (a_.has_lengths) {
      p.lengths = static_cast<const int32_t*>(in[4].data);
      p.length_stride = static_cast<int>(a_.length_stride), p.fresh = static_cast<int>(a_.fresh);
    }
    return cuda::launch_overlapping(name_, choice_.kernel,
                                    choice_.slices > 0 ? tiles * choice_.slices : std::min(sms_, tiles),
                                    choice_.threads, choice_.shared_bytes, stream.handle, p.slices, maps, p);
  }

 private:
  const char* name_;
  const Problem problem_;
  const AttentionProblem a_;
  const StreamChoice choice_;
  const int sms_;
};

// choose: problem -> StreamChoice
template <class Choose>
Result<std::unique_ptr<Kernel>> bind_stream(const char* name, const Problem& problem, Choose choose) {
  int device = 0, sms = 0;
  TS_TRY(cuda::cuda_status(name, cudaGetDevice(&device)));
  TS_TRY(cuda::cuda_status(name, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device)));
  auto kernel = std::make_unique<StreamKernel>(name, problem, choose(problem), sms);
  TS_TRY(kernel->prepare());
  return std::unique_ptr<Kernel>(std::move(kernel));
}

}  // namespace tessera
