// SPDX-License-Identifier: Apache-2.0
#include "ops/rotary/rotary.h"

#include <algorithm>

#include "base/parallel.h"

#define TS_OP_FOLDER rotary
#include "ops/list_variants.inc"

namespace tessera {

RotaryProblem RotaryProblem::of(const Problem& p) {
  const Operand &x = p.in[0], &cos = p.in[1], &sin = p.in[2];
  RotaryProblem r;
  r.batch = x.shape[0], r.tokens = x.shape[1], r.heads = x.shape[2], r.head_size = x.shape[3];
  r.pairs = cos.shape[2];
  r.interleaved = p.attrs.integer("interleaved") != 0;
  r.x_strides = x.strides;
  const auto strides = [](const Operand& o) {
    Shape s = o.strides;
    if (o.shape[0] == 1) s[0] = 0;
    return s;
  };
  r.cos_strides = strides(cos), r.sin_strides = strides(sin);
  r.x = x.type, r.cos = cos.type, r.sin = sin.type, r.y = p.out[0].type;
  r.then = &p.then;
  return r;
}

namespace {

Result<std::vector<Type>> infer(const Problem& p) {
  const Operand *x = p.operand(0), *cos = p.operand(1), *sin = p.operand(2);
  if (x == nullptr || x->shape.size() != 4 || p.in.size() != 3)
    return bad_input("rotary: wants x[batch, tokens, heads, size], cos and sin");
  if (cos == nullptr || sin == nullptr || cos->shape.size() != 3 || cos->shape != sin->shape)
    return bad_input("rotary: wants cos and sin of the same shape [1 or batch, tokens, pairs]");
  const std::string shapes = cat("rotary: x", to_string(x->shape), " cos", to_string(cos->shape), ": ");
  if ((cos->shape[0] != 1 && cos->shape[0] != x->shape[0]) || cos->shape[1] != x->shape[1])
    return bad_input(shapes + "cos and sin must have x's tokens, and one batch or x's");
  if (cos->shape[2] < 1 || cos->shape[2] > x->shape[3] / 2)
    return bad_input(shapes + "there must be a pair at least, and at most half of the head size");
  const int64_t interleaved = p.attrs.integer("interleaved");
  if (interleaved != 0 && interleaved != 1)
    return bad_input(cat("rotary: interleaved is ", interleaved, "; 0 (halves) or 1 (neighbours) is wanted"));
  return std::vector<Type>{{.shape = x->shape, .quant = result_element(*x)}};
}

void reference(const Problem& p, std::span<const Dense> in, std::span<Dense> out) {
  const RotaryProblem r = RotaryProblem::of(p);
  const int64_t batches = in[1].shape[0];
  parallel_for(r.batch * r.tokens, 16, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const int64_t row = (batches == 1 ? 0 : token / r.tokens) * r.tokens + token % r.tokens;
      const double* cos = in[1].v.data() + row * r.pairs;
      const double* sin = in[2].v.data() + row * r.pairs;
      for (int64_t head = token * r.heads; head < (token + 1) * r.heads; ++head) {
        const double* x = in[0].v.data() + head * r.head_size;
        double* y = out[0].v.data() + head * r.head_size;
        std::copy_n(x, r.head_size, y);
        for (int64_t i = 0; i < r.pairs; ++i) {
          const double a = x[r.first(i)], b = x[r.second(i)];
          y[r.first(i)] = a * cos[i] - b * sin[i];
          y[r.second(i)] = b * cos[i] + a * sin[i];
        }
      }
    }
  });
}

int64_t terms(const Problem&) { return 2; }

double flops(const Problem& p) {
  const RotaryProblem r = RotaryProblem::of(p);
  return 6.0 * static_cast<double>(r.batch * r.tokens * r.heads * r.pairs);
}

}  // namespace

const OpInfo& rotary_op() {
  static const OpInfo kInfo{.name = "rotary",
                            .signature = "x[b,s,h,d], cos[c,s,r], sin[c,s,r] -> y[b,s,h,d]",
                            .strided = StridedInputs::kAny,
                            .takes_program = true,
                            .infer = infer,
                            .reference = reference,
                            .errors = rotary_errors,
                            .terms = terms,
                            .flops = flops,
                            .variants = listed_variants()};
  return kInfo;
}

}  // namespace tessera
