// SPDX-License-Identifier: Apache-2.0
// Builds an engine that takes images as bytes and says what it holds: `build_engine MODEL.onnx ENGINE INPUT`.
#include <tessera/tessera_build.hpp>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: build_engine MODEL.onnx ENGINE INPUT\n"), 2;
  tessera::BuildOptions options;
  options.precision = "fp16";
  options.batch = {1, 8};
  options.io = {std::string(argv[3]) + "=u8,mean=0.25,std=0.5"};
  std::string last;
  options.progress = [&](const std::string& what, int64_t, int64_t) {
    if (what != last) std::printf("%s\n", what.c_str());
    last = what;
    return true;  // false would end the build
  };
  if (auto s = tessera::build(argv[1], argv[2], options); !s.ok())
    return std::fprintf(stderr, "build_engine: %s\n", s.message().c_str()), 1;
  auto engine = tessera::Engine::open(argv[2]);
  if (!engine.ok()) return std::fprintf(stderr, "build_engine: %s\n", engine.status().message().c_str()), 1;
  for (size_t i = 0; i < engine.value().plan_count(); ++i) {
    auto plan = engine.value().plan(i);
    auto input = engine.value().input(i, 0);
    if (plan.ok() && input.ok())
      std::printf("plan %s takes %s\n", plan.value().name.c_str(), input.value().element.c_str());
  }
  return 0;
}
