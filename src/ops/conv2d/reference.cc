// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"
#include "ir/region.h"
#include "op/f64_product.h"
#include "ops/conv2d/windows.h"

#define TS_OP_FOLDER conv2d
#include "ops/list_variants.inc"

namespace tessera {
namespace {

// Kernels, strides and pads are small enough that no index overflows.
constexpr int64_t kMost = int64_t{1} << 20;

bool all_within(const std::vector<int64_t>& list, size_t count, int64_t least) {
  return list.size() == count &&
         std::all_of(list.begin(), list.end(), [least](int64_t v) { return v >= least && v < kMost; });
}

// How many windows an axis holds; less than one where it holds none.
int64_t windows_along(int64_t size, int64_t kernel, int64_t stride, int64_t dilation, int64_t pads) {
  const int64_t room = size + pads - ((kernel - 1) * dilation + 1);
  return room < 0 ? 0 : room / stride + 1;
}

Result<std::vector<Type>> infer(const Problem& p) {
  const Operand *x = p.operand(0), *w = p.operand(1);
  if (x == nullptr || w == nullptr || x->shape.size() != 4 || w->shape.size() != 2)
    return bad_input("conv2d: wants two operands, x[b,h,w,c] and w[n,k]");
  const std::vector<int64_t> kernel = p.attrs.list("kernel"), strides = p.attrs.list("strides"),
                             dilations = p.attrs.list("dilations"), pads = p.attrs.list("pads");
  const int64_t groups = p.attrs.integer("groups", 1);
  if (!all_within(kernel, 2, 1) || !all_within(strides, 2, 1) || !all_within(dilations, 2, 1) ||
      !all_within(pads, 4, 0))
    return bad_input(
        "conv2d: kernel, strides and dilations are two sizes each of at least 1, pads four of at "
        "least 0, all below 2^20");
  const auto disagree = [&](const std::string& what) {
    return bad_input(cat("conv2d: x", to_string(x->shape), " and w", to_string(w->shape), ": ", what));
  };
  if (!checked_elements(x->shape, kMaxElements) || !checked_elements(w->shape, kMaxElements))
    return disagree("too large");
  const int64_t channels = x->shape[3], rows = w->shape[0];
  if (groups < 1 || channels < 1 || channels % groups != 0 || rows % groups != 0)
    return disagree(cat(groups, " groups do not divide the channels"));
  const auto k = checked_elements({kernel[0], kernel[1], channels / groups}, kMaxElements);
  if (!k || *k != w->shape[1])
    return disagree(cat("a kernel of ", to_string(kernel), " with ", groups, " groups wants rows of another length"));
  Type y{.shape = {x->shape[0]}, .quant = result_element(*x)};
  for (size_t a = 0; a < 2; ++a) {
    const int64_t count = windows_along(x->shape[1 + a], kernel[a], strides[a], dilations[a], pads[a] + pads[a + 2]);
    if (count < 1) return disagree(cat("a kernel of ", to_string(kernel), " does not fit into the image"));
    y.shape.push_back(count);
  }
  y.shape.push_back(rows);
  if (!checked_elements(y.shape, kMaxElements))
    return disagree(cat("the result ", to_string(y.shape), " is too large"));
  return std::vector<Type>{y};
}

// Pixels whose windows are multiplied at a time, unless those are large.
constexpr int64_t kPixels = 128, kMostNumbers = int64_t{1} << 22;

void reference(const Problem& p, std::span<const Dense> in, std::span<Dense> out) {
  Problem dense = p;
  dense.in[0].strides = dense_strides(p.in[0].shape);
  const Conv2dProblem q = Conv2dProblem::of(dense);
  const Windows windows(q);
  const int64_t pixels = std::clamp<int64_t>(kMostNumbers / std::max<int64_t>(1, q.k), 1, kPixels);
  const int64_t blocks = divide_up(q.pixels(), pixels), columns = q.groups * q.n;
  parallel_for(q.groups * blocks, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> x(static_cast<size_t>(pixels * q.k)), y(static_cast<size_t>(pixels * q.n));
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t group = piece / blocks, first = piece % blocks * pixels,
                    count = std::min(pixels, q.pixels() - first);
      for (int64_t r = 0; r < count; ++r) windows.read(in[0].v.data(), group, first + r, 0, q.k, x.data() + r * q.k);
      f64_product(x.data(), in[1].v.data() + group * q.n * q.k, y.data(), count, q.n, q.k);
      for (int64_t r = 0; r < count; ++r)
        std::copy_n(y.data() + r * q.n, q.n, out[0].v.data() + (first + r) * columns + group * q.n);
    }
  });
}

int64_t terms(const Problem& p) { return std::max<int64_t>(1, p.in[1].shape.back()); }

double flops(const Problem& p) {
  const Conv2dProblem q = Conv2dProblem::of(p);
  return 2.0 * static_cast<double>(q.pixels()) * static_cast<double>(q.groups * q.n) * static_cast<double>(q.k);
}

// One channel of x and one result in each group.
bool by_number(const Problem& p) {
  const Conv2dProblem q = Conv2dProblem::of(p);
  return q.c == 1 && q.n == 1;
}

}  // namespace

Conv2dProblem Conv2dProblem::of(const Problem& p) {
  const Operand &x = p.in[0], &w = p.in[1];
  const std::vector<int64_t> kernel = p.attrs.list("kernel"), strides = p.attrs.list("strides"),
                             dilations = p.attrs.list("dilations"), pads = p.attrs.list("pads");
  Conv2dProblem q;
  q.groups = p.attrs.integer("groups", 1);
  q.batch = x.shape[0], q.height = x.shape[1], q.width = x.shape[2];
  q.c = x.shape[3] / q.groups, q.n = w.shape[0] / q.groups, q.k = w.shape[1];
  q.kh = kernel[0], q.kw = kernel[1], q.sh = strides[0], q.sw = strides[1];
  q.dh = dilations[0], q.dw = dilations[1], q.top = pads[0], q.left = pads[1];
  q.out_height = windows_along(q.height, q.kh, q.sh, q.dh, pads[0] + pads[2]);
  q.out_width = windows_along(q.width, q.kw, q.sw, q.dw, pads[1] + pads[3]);
  q.strides = x.strides;
  q.sparse24 = p.attrs.integer("sparse24") != 0;
  return q;
}

Product product_of_conv2d(const Problem& p) {
  const Conv2dProblem q = Conv2dProblem::of(p);
  Product product;
  product.m = q.pixels(), product.n = product.cols = q.groups * q.n, product.k = q.k;
  product.x = p.in[0].type, product.w = p.in[1].type, product.y = p.out[0].type;
  product.constant_w = p.in[1].constant, product.then = &p.then;
  return product;
}

const OpInfo& conv2d_op() {
  static const OpInfo kInfo{.name = "conv2d",
                            .signature = "x[b,h,w,c], w[n,k] -> y[b,i,j,n]",
                            .strided = StridedInputs::kLastAxis,
                            .takes_program = true,
                            .promises = 1,
                            .by_number = by_number,
                            .infer = infer,
                            .reference = reference,
                            .errors = conv2d_errors,
                            .terms = terms,
                            .flops = flops,
                            .variants = listed_variants()};
  return kInfo;
}

}  // namespace tessera
