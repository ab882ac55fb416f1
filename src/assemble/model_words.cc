// SPDX-License-Identifier: Apache-2.0
#include "assemble/model_words.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "models/family.h"
#include "plan/golden_plans.h"

namespace tessera {

std::optional<std::vector<int64_t>> parse_numbers(const std::string& text, int64_t largest) {
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
    const auto number = parse_numbers(word.substr(at, end - at), kLargest);
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
Result<GraphOptions> parse_graph(const std::string& text, const std::string& family) {
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

}  // namespace

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
      const auto times = parse_numbers(word.substr(star + 1), int64_t{1} << 20);
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

Result<std::vector<GraphOptions>> parse_graphs(const std::vector<std::string>& words, const std::string& family) {
  std::vector<GraphOptions> graphs;
  for (const std::string& text : words) {
    TS_ASSIGN(GraphOptions graph, parse_graph(text, family));
    graphs.push_back(std::move(graph));
  }
  TS_TRY(check_graph_names(graphs));
  return graphs;
}

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

}  // namespace tessera
