// SPDX-License-Identifier: Apache-2.0
#include "calibrate/moments.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/parallel.h"
#include "compile/compile.h"
#include "runtime/bind.h"
#include "runtime/executor.h"
#include "tiles/cpu/panels.h"

namespace tessera {
namespace {

// Rows added at a time: 16 columns of them are 24 KiB, which stay in the first-level cache.
constexpr int64_t kChunk = 384;

// Storages (not views) that nodes [begin, end) read and do not make themselves.
std::set<ValueId> reads(const Graph& g, const std::vector<int>& producers, size_t begin, size_t end) {
  std::set<ValueId> bases;
  for (size_t n = begin; n < end; ++n) {
    if (g.nodes[n].op == "view") continue;
    for (ValueId in : g.nodes[n].inputs) {
      if (in == kNoValue) continue;
      const ValueId base = placement_of(g, producers, in).base;
      const int maker = producers[static_cast<size_t>(base)];
      if (g.at(base).constant || (maker >= 0 && static_cast<size_t>(maker) >= begin)) continue;
      bases.insert(base);
    }
  }
  return bases;
}

// Nodes [begin, end) and the views before them that they read through.
std::vector<Node> with_views(const Graph& g, const std::vector<int>& producers, size_t begin, size_t end) {
  std::set<size_t> views;
  const auto follow = [&](ValueId id) {
    while (id != kNoValue) {
      const int maker = producers[static_cast<size_t>(id)];
      if (maker < 0 || static_cast<size_t>(maker) >= begin || g.nodes[static_cast<size_t>(maker)].op != "view") return;
      views.insert(static_cast<size_t>(maker));
      id = g.nodes[static_cast<size_t>(maker)].inputs[0];
    }
  };
  for (size_t n = begin; n < end; ++n) {
    for (ValueId in : g.nodes[n].inputs) follow(in);
  }
  std::vector<Node> nodes;
  for (size_t n : views) nodes.push_back(g.nodes[n]);
  nodes.insert(nodes.end(), g.nodes.begin() + static_cast<std::ptrdiff_t>(begin),
               g.nodes.begin() + static_cast<std::ptrdiff_t>(end));
  return nodes;
}

}  // namespace

MomentSum::MomentSum(int64_t cols, bool squares) : width_(round_up(cols, kPanelCols)), squares_(squares) {
  sum_.cols = cols;
  sum_.amax.assign(static_cast<size_t>(cols), 0.0f);
  total_abs_.assign(static_cast<size_t>(cols), 0.0f);
  if (!squares) return;
  square_.assign(static_cast<size_t>(cols * width_), 0.0f);
  panels_.resize(static_cast<size_t>(x_panels_floats(cols, kChunk)));
}

void MomentSum::add(const float* x, int64_t rows) {
  const int64_t k = sum_.cols, high = panel_rows();
  sum_.rows += rows;
  for (int64_t first = 0; first < rows; first += kChunk, x += kChunk * k) {
    const int64_t n = std::min(kChunk, rows - first);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < k; ++c) {
        const float a = std::fabs(x[r * k + c]);
        float& amax = sum_.amax[static_cast<size_t>(c)];
        amax = a > amax ? a : amax;
        total_abs_[static_cast<size_t>(c)] += a;
      }
    }
    if (!squares_) continue;
    parallel_for(divide_up(k, high), 16, [&](int64_t begin, int64_t end) {
      const int64_t c = begin * high;
      pack_x_transposed(Element::f32, x, k, c, std::min(k, end * high) - c, n, nullptr,
                        &panels_[static_cast<size_t>(c * n)]);
    });
    const int64_t columns = divide_up(k, kPanelCols);
    parallel_for(columns, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> panel(static_cast<size_t>(kPanelCols * n));
      for (int64_t i = begin; i < end; ++i) {
        const int64_t c = (columns - 1 - i) * kPanelCols, few = std::min(kPanelCols, k - c);  // the longest first
        for (int64_t r = 0; r < n; ++r) {
          std::copy_n(x + r * k + c, few, &panel[static_cast<size_t>(r * kPanelCols)]);
        }
        multiply_panel(panels_.data(), panel.data(), std::min(k, c + kPanelCols), n, /*first=*/false,
                       &square_[static_cast<size_t>(c)], width_);
      }
    });
  }
}

InputMoments MomentSum::finish() && {
  const int64_t k = sum_.cols;
  if (squares_) sum_.xtx.resize(static_cast<size_t>(k * k));
  for (int64_t i = 0; i < (squares_ ? k : 0); ++i) {
    for (int64_t j = i; j < k; ++j) {
      const float x = square_[static_cast<size_t>(i * width_ + j)];
      sum_.xtx[static_cast<size_t>(i * k + j)] = sum_.xtx[static_cast<size_t>(j * k + i)] = x;
    }
  }
  for (float a : total_abs_) sum_.mean_abs.push_back(a / static_cast<float>(std::max<int64_t>(sum_.rows, 1)));
  return std::move(sum_);
}

Result<PiecewiseRun> PiecewiseRun::start(const Graph& graph, const Samples& samples, int64_t most) {
  PiecewiseRun out;
  out.batch_ = batch_of(graph);
  // What lies between two nodes at the same time, at most.
  const std::vector<int> producers = graph.producers();
  int64_t widest = 1;
  for (size_t n = 1; n < graph.nodes.size(); ++n) {
    if (!(graph.nodes[n].op == "matmul")) continue;
    int64_t bytes = 0;
    for (ValueId id : reads(graph, producers, n, graph.nodes.size()))
      bytes += packed_bytes(graph.at(id).type.quant.element, elements(graph.at(id).type.shape));
    widest = std::max(widest, bytes);
  }
  const int64_t fit = std::max<int64_t>(1, kMomentBytes / widest) * out.batch_;
  out.samples_ = std::min({samples.count, most, fit});
  Engine engine;
  ConstantPool pool(engine.constants);
  TS_ASSIGN(const Plan plan, lower_in_f32(graph, pool));
  for (int64_t r = 0; r < divide_up(out.samples_, out.batch_); ++r) {
    Filled inputs = fill_inputs(plan, samples, r * out.batch_);
    out.runs_.emplace_back();
    for (size_t i = 0; i < graph.inputs.size(); ++i) out.runs_.back()[graph.inputs[i]] = std::move(inputs.buffers[i]);
  }
  return out;
}

Status PiecewiseRun::advance(const Graph& graph, size_t end) {
  if (end <= at_) return {};
  const std::vector<int> producers = graph.producers();
  Graph piece = graph;
  piece.nodes = with_views(graph, producers, at_, end);
  const std::set<ValueId> before = reads(graph, producers, at_, end);
  const std::set<ValueId> after = reads(graph, producers, end, graph.nodes.size());
  piece.inputs.assign(before.begin(), before.end());
  piece.states.clear();  // of the whole graph
  piece.outputs.clear();
  for (ValueId id : after) {
    const int maker = producers[static_cast<size_t>(id)];
    if (maker >= 0 && static_cast<size_t>(maker) >= at_) piece.outputs.push_back(id);
  }
  if (!piece.outputs.empty()) {
    Engine engine;
    ConstantPool pool(engine.constants);
    TS_ASSIGN(const Plan plan, lower_in_f32(piece, pool));
    TS_ASSIGN(const std::unique_ptr<Executor> executor, bind(engine, plan));
    for (std::map<ValueId, Buffer>& values : runs_) {
      std::vector<const void*> in;
      std::vector<void*> out;
      for (ValueId id : before) in.push_back(values.at(id).data());
      size_t port = 0;
      for (ValueId id : after) {
        const int maker = producers[static_cast<size_t>(id)];
        if (maker < 0 || static_cast<size_t>(maker) < at_) continue;
        Buffer made(static_cast<size_t>(port_bytes(plan, plan.outputs[port++])));
        out.push_back(made.data());
        values[id] = std::move(made);
      }
      TS_TRY(executor->run(in, out));
    }
  }
  for (std::map<ValueId, Buffer>& values : runs_) {
    std::erase_if(values, [&](const auto& entry) { return !after.contains(entry.first); });
  }
  at_ = end;
  return {};
}

Result<InputMoments> PiecewiseRun::moments(const Graph& graph, ValueId x, bool squares) const {
  const Placement placed = placement_of(graph, graph.producers(), x);
  const Shape& shape = graph.at(x).type.shape;
  const int64_t cols = shape.back(), rows = elements(shape) / std::max<int64_t>(cols, 1);
  if (graph.at(x).type.quant != QuantType(Element::f32)) return bad_input(cat("'", graph.at(x).name, "' is not f32"));
  // The last run may hold samples a second time, to fill its batch: those do not count.
  const bool by_sample = shape[0] % batch_ == 0;
  const int64_t real = by_sample ? rows / batch_ * samples_ : rows * static_cast<int64_t>(runs_.size());
  const int64_t step = std::max<int64_t>(1, divide_up(real, kMomentRows));
  MomentSum sum(cols, squares);
  std::vector<float> taken;
  const auto add = [&] {
    sum.add(taken.data(), static_cast<int64_t>(taken.size()) / cols);
    taken.clear();
  };
  for (size_t run = 0; run < runs_.size(); ++run) {
    const auto* base = reinterpret_cast<const float*>(runs_[run].at(placed.base).data()) + placed.offset;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = static_cast<int64_t>(run) * rows + r;
      if (row >= real) break;
      if (row % step != 0) continue;
      int64_t offset = 0, left = r;
      for (size_t axis = shape.size() - 1; axis-- > 0;) {
        offset += left % shape[axis] * placed.strides[axis];
        left /= shape[axis];
      }
      for (int64_t c = 0; c < cols; ++c) taken.push_back(base[offset + c * placed.strides.back()]);
      if (static_cast<int64_t>(taken.size()) == kChunk * cols) add();
    }
  }
  add();
  return std::move(sum).finish();
}

}  // namespace tessera
