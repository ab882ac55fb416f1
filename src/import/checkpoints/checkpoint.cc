// SPDX-License-Identifier: Apache-2.0
#include "import/checkpoints/checkpoint.h"

#include <algorithm>
#include <filesystem>

#include "import/checkpoints/layout.h"
#include "import/checkpoints/name_pattern.h"
#include "io/json.h"
#include "io/mmap.h"

namespace tessera {

#define TS_CHECKPOINT_LAYOUT(name) OpenedLayout name##_layout(const LayoutConfig& config);
#include "import/checkpoints/layouts.inc"
#undef TS_CHECKPOINT_LAYOUT

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class PlainLayout final : public CheckpointLayout {
 public:
  std::string describe() const override { return "plain"; }
  Result<LinearWeight> linear(CheckpointTensors& tensors, const std::string& module, int64_t outputs,
                              int64_t inputs) const override {
    return plain_linear(tensors, module, outputs, inputs);
  }
};

Status read_tensors(const fs::path& folder, CheckpointTensors& tensors) {
  std::error_code none;
  const fs::path index = folder / "model.safetensors.index.json";
  if (fs::exists(index, none)) return tensors.add_index(index.string());
  std::vector<fs::path> files;
  fs::directory_iterator it(folder, none);
  for (const fs::directory_iterator end; !none && it != end; it.increment(none)) {
    if (it->path().extension() == ".safetensors") files.push_back(it->path());
  }
  if (none) return machine_error(cat(folder.string(), ": cannot be listed: ", none.message()));
  if (files.empty()) return bad_input(cat(folder.string(), ": holds no *.safetensors"));
  std::sort(files.begin(), files.end());
  for (const fs::path& f : files) TS_TRY(tensors.add_file(f.string()));
  return {};
}

OpenedLayout open_layout(const LayoutConfig& config) {
  using Open = OpenedLayout (*)(const LayoutConfig&);
  constexpr Open kLayouts[] = {
#define TS_CHECKPOINT_LAYOUT(name) name##_layout,
#include "import/checkpoints/layouts.inc"
#undef TS_CHECKPOINT_LAYOUT
  };
  for (const Open open : kLayouts) {
    TS_ASSIGN(auto layout, open(config));
    if (layout != nullptr) return layout;
  }
  if (config.quantization.is_null()) return std::unique_ptr<CheckpointLayout>(std::make_unique<PlainLayout>());
  const Json method = config.quantization.is_object() ? config.quantization.value("quant_method", Json()) : Json();
  return bad_input(cat("config.json, quantization_config: quant_method '",
                       method.is_string() ? shown_name(method.get<std::string>()) : "",
                       "' is not read; modelopt and compressed-tensors are"));
}

}  // namespace

Result<Json> read_json_object(const std::string& path) {
  TS_ASSIGN(const Bytes file, map_file(path));
  auto json = parse_json({reinterpret_cast<const char*>(file.data()), file.size()});
  if (!json.ok()) return json.status().at(path);
  if (!json->is_object()) return bad_input(cat(path, ": is not a JSON object"));
  return json;
}

Checkpoint::Checkpoint() = default;
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  const fs::path folder(path);
  std::error_code none;
  if (!fs::is_directory(folder, none))
    return bad_input(cat(path, ": is no folder; a checkpoint is one with config.json and *.safetensors"));
  Checkpoint c;
  const fs::path whole = fs::weakly_canonical(folder, none);
  c.folder_ = whole.has_filename() ? whole.filename().string() : whole.parent_path().filename().string();
  TS_ASSIGN(c.config_, read_json_object((folder / "config.json").string()));
  LayoutConfig config;
  if (const auto q = c.config_.find("quantization_config"); q != c.config_.end()) config.quantization = *q;
  if (const fs::path hf = folder / "hf_quant_config.json"; fs::exists(hf, none)) {
    TS_ASSIGN(config.hf_quant, read_json_object(hf.string()));
  }
  auto layout = open_layout(config);
  if (!layout.ok()) return layout.status().at(path);
  c.layout_ = std::move(*layout);
  TS_TRY(read_tensors(folder, c.tensors_));
  return c;
}

Checkpoint Checkpoint::of(std::string name, Json config, CheckpointTensors tensors) {
  Checkpoint c;
  c.folder_ = std::move(name);
  c.config_ = std::move(config);
  c.tensors_ = std::move(tensors);
  c.layout_ = std::make_unique<PlainLayout>();
  return c;
}

Result<LinearWeight> Checkpoint::linear(const std::string& module, int64_t outputs, int64_t inputs) {
  return layout_->linear(tensors_, module, outputs, inputs);
}

Result<std::vector<std::string>> Checkpoint::finish(const std::vector<std::string>& harmless) const {
  std::vector<std::string> ignored, unknown;
  for (const std::string& name : tensors_.left()) {
    const bool known = std::any_of(harmless.begin(), harmless.end(),
                                   [&](const std::string& pattern) { return names_module(pattern, name); });
    (known ? ignored : unknown).push_back(name);
  }
  if (unknown.empty()) return ignored;
  std::string names;
  for (size_t i = 0; i < unknown.size() && i < 4; ++i) names += cat(i == 0 ? "'" : "', '", shown_name(unknown[i]));
  return bad_input(cat("nothing in this model reads ", unknown.size() == 1 ? "tensor " : "tensors ", names, "'",
                       unknown.size() > 4 ? cat(" and ", unknown.size() - 4, " more") : "",
                       "; a tensor that is left out would change the model silently"));
}

std::string Checkpoint::describe() const {
  const std::vector<std::string>& files = tensors_.files();
  if (files.empty()) return folder_;
  std::string text = cat(folder_, " (", layout_->describe(), ", ");
  for (size_t i = 0; i < files.size() && i < 3; ++i) text += cat(i == 0 ? "" : ", ", files[i]);
  return text + (files.size() > 3 ? cat(" and ", files.size() - 3, " more)") : ")");
}

}  // namespace tessera
