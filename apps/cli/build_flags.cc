// SPDX-License-Identifier: Apache-2.0
#include "cli/build_flags.h"

#include <cstring>

#include "io/mmap.h"
#include "passes/quantize.h"

namespace tessera {
namespace {

constexpr const char* kArchNames[] = {
#define TS_ARCH(name, parent, device, what) #name,
#include "archs/archs.inc"
#undef TS_ARCH
};

template <class List>
std::string join(const List& words) {
  std::string out;
  for (const auto& w : words) out += (out.empty() ? "" : ", ") + std::string(w);
  return out;
}

}  // namespace

void add_build_flags(CLI::App& app, BuildFlags& flags) {
  app.add_option("--precision", flags.precision,
                 "of the linear layers: " + join(precision_names()) + " (default: fp16)")
      ->type_name("NAME");
  app.add_option("--target", flags.target, "arch to build for: " + join(kArchNames) + " (default: cpu)")
      ->type_name("ARCH");
  app.add_option("--calib", flags.calib, "npz with inputs that the scales of activations are taken from")
      ->type_name("FILE");
  app.add_option("--allow", flags.allow, "accept another precision for layers; * and ? match; repeatable")
      ->type_name("LAYER=PRECISION")
      ->allow_extra_args(false);
  app.add_flag("--no-verify", flags.no_verify, "make and check no golden values");
}

Result<BuildOptions> build_options(const BuildFlags& flags, const std::string& model, std::vector<int64_t> batches,
                                   bool quiet) {
  TS_ASSIGN(const Arch target, parse_arch(flags.target));
  BuildOptions o;
  o.model_path = model;
  o.precision = flags.precision;
  o.batches = std::move(batches);
  o.target = target;
  o.calib_path = flags.calib;
  o.allow = flags.allow;
  o.golden = !flags.no_verify;
  o.quiet = quiet;
  return o;
}

Result<Arch> parse_arch(const std::string& name) {
  if (const auto arch = find_arch(name)) return *arch;
  return usage_error(cat("arch '", name, "' is unknown; there are ", join(kArchNames)));
}

Result<bool> is_engine_file(const std::string& path) {
  TS_ASSIGN(const Bytes file, map_file(path));
  return file.size() >= 7 && std::memcmp(file.data(), "TESSERA", 7) == 0;
}

}  // namespace tessera
