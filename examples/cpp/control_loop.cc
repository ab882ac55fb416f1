// SPDX-License-Identifier: Apache-2.0
// A loop that asks an engine again and again, in two threads with a context each: `control_loop ENGINE PLAN RUNS`.
// Both threads must get the same numbers in every run.
#include <tessera/tessera.hpp>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

tessera::Status loop(const tessera::Engine& engine, const char* plan, int runs, std::vector<float>& answer) {
  auto context = engine.context({plan});
  if (!context.ok()) return context.status();
  auto input = context.value().input(0), output = context.value().output(0);
  if (!input.ok() || !output.ok()) return input.status();
  std::vector<float> x(static_cast<size_t>(count_of(input.value().shape))), y;
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) / 17;
  y.resize(static_cast<size_t>(count_of(output.value().shape)));
  auto in = tessera::view(x.data(), input.value().shape, tessera::f32);
  auto out = tessera::view(y.data(), output.value().shape, tessera::f32);
  for (int i = 0; i < runs; ++i) {
    y.assign(y.size(), -1);
    if (auto s = context.value().run({&in}, {&out}); !s.ok()) return s;
    if (answer.empty()) answer = y;
    if (y != answer) return {TESS_INTERNAL, "two runs gave different numbers"};
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: control_loop ENGINE PLAN RUNS\n"), 2;
  auto engine = tessera::Engine::open(argv[1]);
  if (!engine.ok()) return std::fprintf(stderr, "control_loop: %s\n", engine.status().message().c_str()), 1;
  std::vector<float> answers[2];
  tessera::Status ended[2];
  std::thread other([&] { ended[1] = loop(engine.value(), argv[2], std::atoi(argv[3]), answers[1]); });
  ended[0] = loop(engine.value(), argv[2], std::atoi(argv[3]), answers[0]);
  other.join();
  for (const tessera::Status& s : ended) {
    if (!s.ok()) return std::fprintf(stderr, "control_loop: %s\n", s.message().c_str()), 1;
  }
  if (answers[0] != answers[1]) return std::fprintf(stderr, "control_loop: the threads got different numbers\n"), 1;
  std::printf("%s runs in each of 2 threads, the same %zu numbers each time\n", argv[3], answers[0].size());
  return 0;
}
