// SPDX-License-Identifier: Apache-2.0
#include "cli/build_flags.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "calibrate/calibrate.h"
#include "cli/help.h"
#include "cli/open_engine.h"
#include "io/images_prepare.h"
#include "io/mmap.h"
#include "models/family.h"
#include "precision/quantize.h"
#include "precision/read_recipe.h"

namespace tessera {
namespace {

constexpr const char* kArchNames[] = {
#define TS_ARCH(name, parent, device, nvcc, elements, what) #name,
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

Result<Refinements> parse_refinements(const BuildFlags& flags) {
  Refinements what;
  for (size_t at = 0; !flags.refine.empty() && at <= flags.refine.size();) {
    const size_t end = std::min(flags.refine.find(',', at), flags.refine.size());
    const std::string word = flags.refine.substr(at, end - at);
    bool* const known = word == "smooth"       ? &what.smooth
                        : word == "awq"        ? &what.awq
                        : word == "clip"       ? &what.clip
                        : word == "compensate" ? &what.compensate
                                               : nullptr;
    if (known == nullptr)
      return usage_error(
          cat("--refine '", word, "' is unknown; accepted: smooth, awq, clip, compensate, with commas between"));
    *known = true;
    at = end + 1;
  }
  if (what.smooth && what.awq)
    return usage_error("--refine: smooth and awq both choose the scale of a channel: give one of them");
  if (flags.sparsity.empty()) {
    if (!flags.sparsity_by.empty()) return usage_error("--sparsity-by says how, --sparsity which: give both");
    return what;
  }
  TS_ASSIGN(what.sparsity, parse_sparsity(flags.sparsity, flags.sparsity_by.empty() ? "magnitude" : flags.sparsity_by));
  if (flags.sparsity_by.empty()) {
    TS_ASSIGN(what.sparsity.method, default_sparsity_method(flags.calib));
  }
  return what;
}

}  // namespace

void add_build_flags(OptionList& options, BuildFlags& flags) {
  options.group("Precision and target");
  options.add("--precision", flags.precision, "NAME",
              "of the linear layers: " + join(precision_names()) +
                  ", or auto: per layer, as measured on the samples of --calib (default: types as the model states "
                  "them, else fp16)");
  options.add("--recipe", flags.recipe, "FILE|NAME",
              "precisions by layer and role: a JSON file (docs/precisions.md), or one that is shipped: " +
                  shipped_recipe_names());
  options.add("--attention", flags.attention, "NAME",
              "of q, k, v and the softmax output: " + join(attention_precision_names()) +
                  "; --precision is about linear layers alone. One without scales must be what the layers around it "
                  "are in (default: as recipe or model say, else fp16; with --precision bf16 or fp32 that)");
  options.add(
      "--accumulate", flags.accumulate, "NAME",
      "how FP8 products are summed on a GPU: fast, as its tensor cores do (Hopper: about 13 bits), or promoted: "
      "added to fp32 sums every 128 products; inspect shows it (default: fast)");
  options.add("--keep-norms", flags.keep_norms,
              "norms stay kernels of their own; in Hopper engines those of at most 256 rows (batch times tokens) "
              "between linear layers become a factor per row of the next layer");
  options.add("--chains", flags.chains,
              "neighbouring layers of at most 64 rows run as phases of one persistent kernel where they can (sm90; "
              "compiled, not run)");
  options.add("--sparsity", flags.sparsity, "PATTERN",
              "half of the weights of the blocks' layers: 2:4, or 4:8 in pairs, which satisfies 2:4 as well");
  options.add("--sparsity-by", flags.sparsity_by, "METHOD",
              "which weights stay: magnitude, or hessian: those that the calibration data would miss, the others "
              "making up for them (default: hessian where --calib gives samples)");
  options.add("--refine", flags.refine, "NAMES",
              "what calibration data may do for quantized weights, with commas between: smooth, awq, clip, "
              "compensate (docs/precisions.md)");
  options.add("--target", flags.target, "ARCH", "arch to build for: " + join(kArchNames) + " (default: cpu)");
  options.add("--calib", flags.calib, "FILE|DIR",
              "npz with inputs that the scales of activations are taken from, a folder of images, or a ranges.json "
              "of tessera calibrate; golden inputs and accuracy, too, are of its samples (default: seeded random "
              "inputs, which is said)");
  add_calibration_flags(options, flags.calibration, "--calib-method", "--calib-samples");
  options.add("--allow", flags.allow, "LAYER=NAME",
              "accept another precision for layers; * and ? match; repeatable: 'blocks.*.mlp.fc2=fp16'");
  add_model_flags(options, flags);
  options.add("--graph", flags.graphs, "NAME:SIZES",
              "one of several graphs of the model in one engine, over the same weights and states; SIZES as --shape "
              "or --size has them, with ; between; repeatable: 'prefill:input_ids=1,16'. run: "
              "the name of the graph that runs");
  options.add("--schedule", flags.schedule, "NAMES",
              "the order in which graphs run for one answer, with commas between, and *N for several times: "
              "'prefix,step*10'");
  options.group("Tuning");
  options.add(
      "--tune", flags.tune,
      "time every kernel and tile shape that may run a layer on the GPU here, keep the times in --tuning's file, "
      "and take the fastest; what the file holds is not timed again");
  options.add(
      "--tuning", flags.tuning, "FILE",
      cat("table of times that kernels are chosen by, made by --tune; none: by their order (default: the one that "
          "comes with the program; with --tune: ",
          kDefaultTuning, ")"));
  options.group("Golden values");
  options.add("--golden", flags.golden, "all|smallest",
              "of a model with buckets: make golden values for every plan, or for those of each graph's smallest sizes "
              "alone, which takes much less time (default: all; of a policy: smallest)");
  options.add("--no-verify", flags.no_verify, "make and check no golden values");
}

void add_model_flags(OptionList& options, ModelFlags& flags) {
  options.group("Model");
  options.add(
      "--shape", flags.shapes, "INPUT=N,...",
      "the whole shape of an input whose axes the model leaves open; repeatable: input_ids=1,128. build: an axis "
      "may be a range LO:HI (both, and the powers of two between) or a list 16/64/512, with a plan for each: "
      "input_ids=1:8,16:512; run takes the smallest that holds its arrays");
  options.add("--state", flags.states, "INPUT=OUTPUT",
              "an input that a session keeps: the next run finds this run's output there; * matches; repeatable: "
              "'past_key_values.*=present.*' makes a KV cache, and an input past_length");
  options.add("--io", flags.io, "NAME=TYPE",
              "an input or output whose arrays are fp16 or bf16 (default: floats are fp32 outside); * matches; "
              "repeatable: '*=fp16'. u8: an image as bytes [batch,height,width,channels], of which the engine makes "
              "(byte / 255 - mean) / std: image=u8,mean=0.485:0.456:0.406,std=0.229:0.224:0.225 (default: 0 and 1)");
  options.add("--family", flags.family, "NAME",
              "the model is a folder with a checkpoint (config.json, *.safetensors) of this family: " + family_list());
  options.add("--size", flags.sizes, "NAME=N",
              "a size that the family leaves open; repeatable: tokens=1; of some a plan for each: views=1,2,3. Of " +
                  family_sizes());
  options
      .add("--random", flags.random, "SEED",
           "seeded random weights of the family: MODEL is a config.json with its sizes, and holds no weights")
      .check = within(0, INT64_MAX);
}

void add_calibration_flags(OptionList& options, CalibrationFlags& flags, const std::string& method_flag,
                           const std::string& samples_flag, int64_t default_samples) {
  options.add(method_flag, flags.method, "NAME",
              "how scales follow from what was seen: amax, percentile[=99.99], mse (default: amax, or what the "
              "ranges.json says)");
  options.add(samples_flag, flags.samples, "N", cat("how many samples at most (default: ", default_samples, ")"))
      .check = within(1, 1 << 20);
  options.add(
      "--preprocess", flags.preprocess, "WORDS",
      "how images become inputs: size=224x224,mean=0.5:0.5:0.5,std=0.5:0.5:0.5,layout=nchw; also "
      "fit=crop|stretch, resize=256, filter=bilinear|bicubic. Of an input in bytes (--io NAME=u8) without mean, "
      "std and layout, which are the engine's");
}

Status check_calibration_flags(const CalibrationFlags& flags, const std::string& calib, const std::string& method_flag,
                               const std::string& samples_flag) {
  if (!flags.method.empty()) {
    if (const auto method = parse_range_method(flags.method); !method.ok()) return method.status().at(method_flag);
  }
  if (!flags.preprocess.empty()) {
    if (const auto preprocess = parse_preprocess(flags.preprocess); !preprocess.ok()) return preprocess.status();
  }
  std::error_code none;
  const bool folder = std::filesystem::is_directory(calib, none);
  if (!flags.preprocess.empty() && !folder)
    return usage_error("--preprocess is about a folder of images, which --calib does not give: leave it out");
  if (flags.samples == 0) return {};
  if (calib.empty()) return usage_error(cat(samples_flag, " counts samples of --calib, which is not given"));
  TS_ASSIGN(const bool ranges, is_ranges_file(calib));
  return ranges ? usage_error(cat(samples_flag, ": ", calib, " holds ranges and no samples; leave it out")) : Status();
}

namespace {

using NamedShape = std::pair<std::string, RangedShape>;

// "128", "16:512", "16/64/512": numbers of one axis. `where` begins the error.
Result<AxisNumbers> parse_axis(const std::string& word, const std::string& where) {
  constexpr int64_t kLargest = int64_t{1} << 40;
  const auto refuse = [&](const std::string& why) {
    return usage_error(cat(where, ": ", why,
                           "; wanted INPUT=N,..., for example input_ids=1,128, where an axis may have "
                           "a range 16:512 or a list 16/64/512, from 1 on"));
  };
  AxisNumbers numbers;
  const bool range = word.find(':') != std::string::npos;
  for (size_t at = 0; at <= word.size();) {
    const size_t end = std::min(word.find(range ? ':' : '/', at), word.size());
    const auto number = parse_list(word.substr(at, end - at), kLargest);
    if (!number || number->size() != 1) return refuse(cat("'", word, "' is no axis"));
    numbers.push_back((*number)[0]);
    at = end + 1;
  }
  if (range && numbers.size() != 2) return refuse(cat("'", word, "' is no axis"));
  if (range && numbers[0] > numbers[1]) return refuse(cat("'", word, "' begins above its end"));
  if (range) return numbers_from(numbers[0], numbers[1]);
  std::sort(numbers.begin(), numbers.end());
  if (std::adjacent_find(numbers.begin(), numbers.end()) != numbers.end())
    return refuse(cat("'", word, "' has a number twice"));
  return numbers;
}

// "input_ids=1,128", "input_ids=1:8,16:512"
Result<NamedShape> parse_shape(const std::string& text, const std::string& where) {
  const size_t equals = std::min(text.rfind('='), text.size());
  if (equals == 0 || equals + 1 >= text.size())
    return usage_error(cat(where, ": wanted INPUT=N,..., for example input_ids=1,128"));
  NamedShape shape{text.substr(0, equals), {}};
  for (size_t at = equals + 1; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    TS_ASSIGN(AxisNumbers numbers, parse_axis(text.substr(at, end - at), where));
    shape.second.push_back(std::move(numbers));
    at = end + 1;
  }
  return shape;
}

bool has_several(const RangedShape& shape) {
  return std::any_of(shape.begin(), shape.end(), [](const AxisNumbers& numbers) { return numbers.size() > 1; });
}

// Of one number per axis; `why` ends the error of another.
Result<Shape> one_shape(const RangedShape& ranged, const std::string& where, const std::string& why) {
  if (has_several(ranged)) return usage_error(cat(where, ": an axis has several numbers; ", why));
  Shape shape;
  for (const AxisNumbers& numbers : ranged) shape.push_back(numbers[0]);
  return shape;
}

using NamedSizes = std::pair<std::string, std::vector<int64_t>>;

// "tokens=1", "rope=jax", "views=1,2,3" of a family. `where` begins the error.
Result<NamedSizes> parse_sizes(const std::string& family, const std::string& text, const std::string& where) {
  const size_t equals = std::min(text.find('='), text.size());
  if (equals == 0 || equals + 1 >= text.size())
    return usage_error(cat(where, ": wanted NAME=N of a family's size, as tokens=1"));
  const std::string name = text.substr(0, equals);
  NamedSizes sizes{name, {}};
  for (size_t at = equals + 1; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const auto number = parse_family_size(family, name, text.substr(at, end - at));
    if (!number.ok()) return number.status().at(where);
    if (std::find(sizes.second.begin(), sizes.second.end(), *number) != sizes.second.end())
      return usage_error(cat(where, ": ", text.substr(at, end - at), " stands there twice"));
    sizes.second.push_back(*number);
    at = end + 1;
  }
  return sizes;
}

// The only one of a list; `why` ends the error.
Result<int64_t> single(const NamedSizes& sizes, const std::string& where, const char* why) {
  if (sizes.second.size() == 1) return sizes.second[0];
  return usage_error(cat(where, ": ", sizes.second.size(), " numbers; ", why));
}

// "prefill:input_ids=1,16;attention_mask=1,64", "decode:tokens=1"
Result<GraphOptions> parse_graph_flag(const std::string& text, const std::string& family) {
  const size_t colon = text.find(':');
  GraphOptions graph{.name = text.substr(0, colon), .shapes = {}};
  bool right = colon != std::string::npos && !graph.name.empty() &&
               graph.name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
                   std::string::npos;
  for (size_t at = colon + 1; right && at < text.size();) {
    const size_t end = std::min(text.find(';', at), text.size());
    const std::string word = text.substr(at, end - at), name = word.substr(0, word.find('='));
    at = end + 1;
    bool fresh = true;
    const std::string where = cat("--graph '", text, "'");
    if (family.empty()) {
      TS_ASSIGN(const NamedShape named, parse_shape(word, where));
      TS_ASSIGN(const Shape shape, one_shape(named.second, where, "a graph has one length"));
      fresh = graph.shapes.emplace(named.first, shape).second;
    } else {
      TS_ASSIGN(const NamedSizes sizes, parse_sizes(family, word, where));
      TS_ASSIGN(const int64_t size, single(sizes, where, "a graph that is named has one"));
      fresh = graph.sizes.emplace(sizes.first, size).second;
    }
    if (!fresh) return usage_error(cat("--graph '", text, "': '", name, "' stands there twice"));
  }
  if (right) return graph;
  return usage_error(cat("--graph '", text, "': wanted NAME:INPUT=N,...;INPUT=N,..., for example ",
                         "'decode:input_ids=1,1;attention_mask=1,64', or NAME:tokens=N of a family"));
}

Status check_graph_names(const std::vector<GraphOptions>& graphs) {
  std::set<std::string> names;
  for (const GraphOptions& g : graphs) {
    if (g.name == kGoldenPlan) return usage_error("--graph: 'golden' is the name of golden plans; choose another");
    if (!names.insert(g.name).second) return usage_error(cat("--graph: two graphs are called '", g.name, "'"));
  }
  return {};
}

// "prefix,step*10"
Result<std::vector<ScheduleItem>> parse_schedule(const std::string& text, const std::vector<GraphOptions>& graphs) {
  std::vector<ScheduleItem> schedule;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    const size_t star = word.find('*');
    ScheduleItem item{.graph = word.substr(0, star)};
    const bool known =
        std::any_of(graphs.begin(), graphs.end(), [&](const GraphOptions& g) { return g.name == item.graph; });
    if (!known) return usage_error(cat("--schedule '", text, "': no --graph is called '", item.graph, "'"));
    if (star != std::string::npos) {
      const auto times = parse_list(word.substr(star + 1), int64_t{1} << 20);
      if (!times || times->size() != 1)
        return usage_error(cat("--schedule '", text, "': wanted names with commas between, *N for several times"));
      item.times = (*times)[0];
    }
    schedule.push_back(std::move(item));
    at = end + 1;
    if (end + 1 == text.size()) return usage_error(cat("--schedule '", text, "': it ends with a comma"));
  }
  return schedule;
}

}  // namespace

Result<LoadOptions> load_options(const ModelFlags& flags, SeveralNumbers* several) {
  LoadOptions o{.exact = false, .shapes = {}, .states = {}, .family = flags.family, .graph = {}, .sizes = {}};
  if (flags.random >= 0) {
    if (flags.family.empty()) return usage_error("--random makes the weights of a family: name it with --family");
    o.random = static_cast<uint64_t>(flags.random);
  }
  std::map<std::string, RangedShape> shapes;
  bool ranged = false;
  for (const std::string& text : flags.shapes) {
    const std::string where = cat("--shape '", text, "'");
    TS_ASSIGN(NamedShape shape, parse_shape(text, where));
    ranged = ranged || has_several(shape.second);
    if (several == nullptr) TS_TRY(one_shape(shape.second, where, "only a build makes plans for several").status());
    if (!shapes.insert(std::move(shape)).second) return usage_error(cat(where, ": the input has a shape already"));
  }
  for (const auto& [name, shape] : shapes) {
    if (ranged) break;
    TS_ASSIGN(o.shapes[name], one_shape(shape, "--shape", ""));
  }
  if (ranged) several->ranges = std::move(shapes);
  for (const std::string& text : flags.states) {
    TS_ASSIGN(StatePattern pattern, parse_state_pattern(text));
    o.states.push_back(std::move(pattern));
  }
  for (const std::string& text : flags.io) {
    TS_ASSIGN(PortType port, parse_port_type(text));
    o.ports.push_back(std::move(port));
  }
  for (const std::string& text : flags.sizes) {
    if (flags.family.empty())
      return usage_error("--size is for models of a family (--family); an ONNX model takes --shape");
    const std::string where = cat("--size '", text, "'");
    TS_ASSIGN(const NamedSizes sizes, parse_sizes(flags.family, text, where));
    if (several == nullptr) TS_TRY(single(sizes, where, "only a build makes plans for several").status());
    if (sizes.second.size() > 1) several->buckets.insert(sizes);
    const int64_t largest = *std::max_element(sizes.second.begin(), sizes.second.end());
    if (!o.sizes.emplace(sizes.first, largest).second)
      return usage_error(cat("--size '", text, "': it has a number already"));
  }
  return o;
}

Result<BuildOptions> build_options(const BuildFlags& flags, const std::string& model, std::vector<int64_t> batches,
                                   bool quiet) {
  TS_ASSIGN(const Arch target, parse_arch(flags.target));
  TS_TRY(check_calibration_flags(flags.calibration, flags.calib, "--calib-method", "--calib-samples"));
  BuildOptions o;
  o.model_path = model;
  o.family = flags.family;
  o.precision = flags.precision;
  o.attention = flags.attention;
  if (!flags.accumulate.empty() && flags.accumulate != "fast" && flags.accumulate != "promoted")
    return usage_error(cat("--accumulate ", flags.accumulate, ": accepted are fast and promoted"));
  o.promoted = flags.accumulate == "promoted";
  if (!flags.golden.empty() && flags.golden != "all" && flags.golden != "smallest")
    return usage_error(cat("--golden ", flags.golden, ": accepted are all and smallest"));
  if (!flags.golden.empty() && flags.no_verify)
    return usage_error("--golden says which golden values are made, --no-verify makes none: give one of the two");
  if (flags.golden == "smallest") o.golden_of = BuildOptions::GoldenOf::kSmallest;
  o.keep_norms = flags.keep_norms;
  o.chains = flags.chains;
  if (o.chains && target != Arch::sm90)
    return usage_error(cat("--chains: chains are made for sm90 alone, not for ", info(target).name, "; leave it out"));
  o.tuning = flags.tuning;
  o.tune = flags.tune;
  if (!flags.recipe.empty()) {
    TS_ASSIGN(o.recipe, read_recipe(flags.recipe));
  }
  TS_ASSIGN(o.refine, parse_refinements(flags));
  o.batches = std::move(batches);
  o.target = target;
  o.calib_path = flags.calib;
  o.calib_method = flags.calibration.method;
  if (flags.calibration.samples > 0) o.calib_samples = flags.calibration.samples;
  o.preprocess = flags.calibration.preprocess;
  SeveralNumbers several;
  TS_ASSIGN(LoadOptions load, load_options(flags, &several));
  o.buckets = std::move(several.buckets), o.ranges = std::move(several.ranges);
  o.shapes = std::move(load.shapes), o.states = std::move(load.states);
  o.ports = std::move(load.ports);
  o.sizes = std::move(load.sizes);
  o.random = load.random;
  for (const std::string& text : flags.graphs) {
    TS_ASSIGN(GraphOptions graph, parse_graph_flag(text, flags.family));
    o.graphs.push_back(std::move(graph));
  }
  TS_TRY(check_graph_names(o.graphs));
  TS_ASSIGN(o.schedule, parse_schedule(flags.schedule, o.graphs));
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

std::string family_list() { return join(family_names()); }

std::string model_stem(const std::string& model, const std::string& family) {
  if (family.empty()) return std::filesystem::path(model).stem().string();
  std::error_code none;
  std::filesystem::path folder = std::filesystem::weakly_canonical(model, none);
  if (!folder.has_filename()) folder = folder.parent_path();
  return folder.filename().string();
}

Result<bool> is_engine_file(const std::string& path, const std::string& family) {
  if (!family.empty()) return false;
  const auto mapped = map_file(path);
  if (!mapped.ok()) return Status(mapped.status().code(), mapped.status().message() + hint_for_missing(path));
  const Bytes& file = *mapped;
  const bool engine = file.size() >= 7 && std::memcmp(file.data(), "TESSERA", 7) == 0;
  if (!engine && std::filesystem::path(path).extension() == ".tess")
    return bad_input(
        cat(path, ": is no engine, whatever its name: it does not begin as one; build it again with tessera build"));
  return engine;
}

}  // namespace tessera
