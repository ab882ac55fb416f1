// SPDX-License-Identifier: Apache-2.0
#include "cli/build_flags.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "cli/help.h"
#include "cli/open_engine.h"
#include "io/mmap.h"
#include "models/family.h"
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

// Whole numbers from 1 on between commas; none where a word is no such list.
std::optional<std::vector<int64_t>> parse_list(const std::string& text, int64_t largest) {
  std::vector<int64_t> numbers;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    int64_t number = 0;
    const auto [rest, error] = std::from_chars(text.data() + at, text.data() + end, number);
    if (error != std::errc() || rest != text.data() + end || number < 1 || number > largest) return std::nullopt;
    numbers.push_back(number);
    at = end + 1;
  }
  return numbers;
}

}  // namespace

void add_build_flags(CLI::App& app, BuildFlags& flags) {
  constexpr const char* kGroup = "Precision and target";
  app.add_option("--precision", flags.precision,
                 "of the linear layers: " + join(precision_names()) + " (default: fp16)")
      ->type_name("NAME")
      ->group(kGroup);
  app.add_option("--target", flags.target, "arch to build for: " + join(kArchNames) + " (default: cpu)")
      ->type_name("ARCH")
      ->group(kGroup);
  app.add_option("--calib", flags.calib,
                 "npz with inputs that the scales of activations are taken from (precisions with static scales; "
                 "default: seeded random inputs, which is said)")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_option("--allow", flags.allow,
                 "accept another precision for layers; * and ? match; repeatable: 'blocks.*.mlp.fc2=fp16'")
      ->type_name("LAYER=NAME")
      ->allow_extra_args(false)
      ->group(kGroup);
  app.add_option("--shape", flags.shapes,
                 "the whole shape of an input whose axes the model leaves open; repeatable: input_ids=1,128")
      ->type_name("INPUT=N,...")
      ->allow_extra_args(false)
      ->group(kGroup);
  app.add_option("--family", flags.family,
                 "the model is a folder with a checkpoint (config.json, *.safetensors) of this family: " +
                     join(family_names()))
      ->type_name("NAME")
      ->group("Model");
  app.add_flag("--no-verify", flags.no_verify, "make and check no golden values")->group("Golden values");
}

Status check_build_flags(const BuildFlags& flags) {
  if (flags.calib.empty()) return {};
  const Precision* asked = find_precision(flags.precision);
  if (asked == nullptr) return {};  // the build says which there are
  bool needed = asked->needs_ranges();
  for (const std::string& text : flags.allow) {
    const auto a = parse_allowance(text);
    const Precision* p = a.ok() ? find_precision(a->precision) : nullptr;
    needed = needed || (p != nullptr && p->needs_ranges());
  }
  return needed ? Status()
                : usage_error(cat("--calib: ", flags.precision,
                                  " has no scales to calibrate; leave it out, or ask for another --precision"));
}

Result<BuildOptions> build_options(const BuildFlags& flags, const std::string& model, std::vector<int64_t> batches,
                                   bool quiet) {
  TS_ASSIGN(const Arch target, parse_arch(flags.target));
  BuildOptions o;
  o.model_path = model;
  o.family = flags.family;
  o.precision = flags.precision;
  o.batches = std::move(batches);
  o.target = target;
  o.calib_path = flags.calib;
  for (const std::string& text : flags.shapes) {
    const size_t equals = std::min(text.rfind('='), text.size());
    const auto sizes = parse_list(text.substr(std::min(equals + 1, text.size())), int64_t{1} << 40);
    if (equals == 0 || !sizes)
      return usage_error(cat("--shape '", text, "': wanted INPUT=N,..., for example input_ids=1,128"));
    if (!o.shapes.emplace(text.substr(0, equals), *sizes).second)
      return usage_error(cat("--shape '", text, "': the input has a shape already"));
  }
  o.allow = flags.allow;
  o.golden = !flags.no_verify;
  o.quiet = quiet;
  return o;
}

Result<std::vector<int64_t>> parse_batches(const std::vector<std::string>& words) {
  std::vector<int64_t> all;
  for (const std::string& word : words) {
    const auto sizes = parse_list(word, 1 << 20);
    if (!sizes)
      return usage_error(cat("--batch ", word, ": wanted sizes from 1 to 1048576 with commas between them, as 1,8,64"));
    for (const int64_t size : *sizes) {
      if (std::find(all.begin(), all.end(), size) != all.end())
        return usage_error(cat("--batch ", word, ": ", size, " stands there twice"));
      all.push_back(size);
    }
  }
  return all;
}

Result<Arch> parse_arch(const std::string& name) {
  if (const auto arch = find_arch(name)) return *arch;
  const std::vector<std::string> names(std::begin(kArchNames), std::end(kArchNames));
  return usage_error(cat("arch '", name, "' is unknown; there are ", join(names), did_you_mean(name, names)));
}

Result<bool> is_engine_file(const std::string& path) {
  const auto mapped = map_file(path);
  if (!mapped.ok()) return Status(mapped.status().code(), mapped.status().message() + hint_for_missing(path));
  const Bytes& file = *mapped;
  return file.size() >= 7 && std::memcmp(file.data(), "TESSERA", 7) == 0;
}

}  // namespace tessera
