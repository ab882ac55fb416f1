// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <limits>

#include "base/checksum.h"
#include "io/json.h"
#include "plan/manifest.h"
#include "plan/storage_names.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// Reads fields and remembers the first thing that was wrong; what is read after that has no meaning, and the caller
// sees the error at the end.
class Reader {
 public:
  Reader(const Bytes& data, bool checksums) : data_(data), checksums_(checksums) {}
  const Status& status() const { return status_; }

  Engine engine(const Json& j) {
    Engine e;
    e.model = text(j, "model");
    if (j.contains("weights")) e.weights = text(j, "weights");
    e.precision = text(j, "precision");
    e.target = arch(j, "target");
    e.calibration = text(j, "calibration");
    if (j.contains("preprocess")) e.preprocess = text(j, "preprocess");
    each(j, "allowed", [&](const Json& a) { e.allowed.push_back(as_text(a, "allowed")); });
    if (j.contains("recipe")) e.recipe = text(j, "recipe");
    for (const auto& [key, into] : {std::pair{"refinements", &e.refinements},
                                    {"refined_weights", &e.refined_weights},
                                    {"divided_layers", &e.divided_layers}})
      if (j.contains(key)) each(j, key, [&, to = into, name = key](const Json& r) { to->push_back(as_text(r, name)); });
    e.producer = text(j, "producer");
    each(j, "constants", [&](const Json& c) { e.constants.push_back(constant(c)); });
    each(j, "states", [&](const Json& s) { e.states.push_back({text(s, "name"), integer(s, "bytes")}); });
    if (j.contains("schedule"))
      each(j, "schedule", [&](const Json& i) { e.schedule.push_back({text(i, "graph"), integer(i, "times")}); });
    if (j.contains("lengths")) e.lengths = lengths(object(j, "lengths"));
    const Json& golden = object(j, "golden");
    each(golden, "inputs", [&](const Json& t) { e.golden.inputs.push_back(golden_tensor(t)); });
    GoldenForm first = golden_form(golden);
    if (golden.contains("plan")) first.plan = text(golden, "plan");
    if (!first.outputs.empty() || !first.bounds.empty() || !first.values.empty())
      e.golden.forms.push_back(std::move(first));
    if (golden.contains("forms"))
      each(golden, "forms", [&](const Json& f) {
        e.golden.forms.push_back(golden_form(f));
        GoldenForm& form = e.golden.forms.back();
        form.plan = text(f, "plan");
        if (!f.is_object() || !f.contains("inputs")) return;
        each(f, "inputs", [&](const Json& t) { form.inputs.push_back(golden_tensor(t)); });
        each(f, "original", [&](const Json& t) { form.original.push_back(golden_tensor(t)); });
      });
    if (golden.contains("original"))  // engines that were built without the model's own outputs
      each(golden, "original", [&](const Json& t) { e.golden.original.push_back(golden_tensor(t)); });
    if (golden.contains("from")) e.golden.from = text(golden, "from");
    if (golden.contains("within_amax")) e.golden.within_amax = truth(golden, "within_amax");
    if (golden.contains("min_cosine")) e.golden.min_cosine = as_number(field(golden, "min_cosine"), "min_cosine");
    each(j, "plans", [&](const Json& p) { e.plans.push_back(plan(p)); });
    return e;
  }

 private:
  template <class... Parts>
  void fail(const Parts&... parts) {
    if (!status_.ok()) return;
    std::string where;
    for (const std::string& p : place_) where += p + ": ";
    status_ = bad_input(cat(where, parts...));
  }

  const Json& field(const Json& j, const char* key) {
    static const Json kNothing;
    if (!j.is_object()) {
      fail("an object with '", key, "' is missing");
      return kNothing;
    }
    const auto it = j.find(key);
    if (it == j.end()) {
      fail("'", key, "' is missing");
      return kNothing;
    }
    return *it;
  }
  const Json& object(const Json& j, const char* key) {
    const Json& f = field(j, key);
    if (!f.is_object()) fail("'", key, "' is not an object");
    return f;
  }
  template <class Body>
  void each(const Json& j, const char* key, Body body) {
    const Json& list = field(j, key);
    if (!list.is_array()) return fail("'", key, "' is not a list");
    place_.emplace_back();
    for (size_t i = 0; i < list.size() && status_.ok(); ++i) {
      place_.back() = cat(key, "[", i, "]");
      body(list[i]);
    }
    place_.pop_back();
  }

  std::string as_text(const Json& j, const char* key) {
    if (!j.is_string()) {
      fail("'", key, "' is not text");
      return {};
    }
    return j.get_ref<const std::string&>();
  }
  int64_t as_integer(const Json& j, const char* key) {
    const bool fits = j.is_number_integer() &&
                      (!j.is_number_unsigned() || j.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
    if (!fits) {
      fail("'", key, "' is not a whole number");
      return 0;
    }
    return j.get<int64_t>();
  }
  int as_index(const Json& j, const char* key) {
    const int64_t i = as_integer(j, key);
    if (i < -1 || i > std::numeric_limits<int>::max()) fail("'", key, "' is not an index: ", i);
    return static_cast<int>(i);
  }
  double as_number(const Json& j, const char* key) {
    if (j.is_number()) return j.get<double>();
    if (j == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (j == "inf") return std::numeric_limits<double>::infinity();
    if (j == "-inf") return -std::numeric_limits<double>::infinity();
    fail("'", key, "' is not a number");
    return 0;
  }

  bool truth(const Json& j, const char* key) {
    const Json& value = field(j, key);
    if (!value.is_boolean()) fail("'", key, "' is not true or false");
    return value == true;
  }

  std::string text(const Json& j, const char* key) { return as_text(field(j, key), key); }
  int64_t integer(const Json& j, const char* key) { return as_integer(field(j, key), key); }
  int index_or_none(const Json& j, const char* key) {
    return j.is_object() && j.contains(key) ? as_index(j[key], key) : -1;
  }
  std::vector<int64_t> integers(const Json& j, const char* key) {
    std::vector<int64_t> out;
    each(j, key, [&](const Json& i) { out.push_back(as_integer(i, key)); });
    return out;
  }
  std::vector<int> indices(const Json& j, const char* key) {
    std::vector<int> out;
    each(j, key, [&](const Json& i) { out.push_back(as_index(i, key)); });
    return out;
  }

  // A name and what it stands for; `find` gives an optional.
  template <class Find>
  auto named(const std::string& name, const char* what, Find find) {
    const auto found = find(name);
    if (!found) fail(what, " '", name, "' is not known");
    return found.value_or(typename decltype(find(name))::value_type{});
  }
  Arch arch(const Json& j, const char* key) {
    return named(text(j, key), "arch", [](const std::string& n) { return find_arch(n); });
  }
  QuantType type(const Json& j) {
    return named(text(j, "type"), "type", [](const std::string& n) { return parse_quant_type(n); });
  }

  Bytes piece(const Json& j) {
    const Json& place = object(j, "data");
    const int64_t offset = integer(place, "offset"), bytes = integer(place, "bytes"),
                  have = static_cast<int64_t>(data_.size());
    if (offset < 0 || bytes < 0 || offset > have || bytes > have - offset || offset % kDataAlign != 0) {
      fail("its ", bytes, " bytes at offset ", offset, " are not in the data section of ", have, " bytes");
      return {};
    }
    return bytes == 0 ? Bytes() : data_.slice(static_cast<size_t>(offset), static_cast<size_t>(bytes));
  }

  // The checksum of a piece that is there; nothing in files that have none.
  std::optional<uint64_t> checksum(const Json& j) {
    if (!checksums_) return std::nullopt;
    const std::string digits = text(object(j, "data"), "checksum");
    uint64_t value = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 16 || read.ptr != digits.data() + digits.size())
      fail("its checksum '", digits.substr(0, 40), "' is not 16 hexadecimal digits");
    return value;
  }

  // A piece that is held against its checksum at once.
  Bytes checked_piece(const Json& j, const std::string& name) {
    Bytes bytes = piece(j);
    if (const auto sum = checksum(j); status_.ok() && sum && checksum64(bytes.span()) != *sum)
      fail("'", name, "' does not match its checksum: the file is damaged");
    return bytes;
  }

  EngineConstant constant(const Json& j) {
    EngineConstant c{.name = text(j, "name"), .data = piece(j)};
    if (c.data.size() <= kSmallConstant) {
      c.data = checked_piece(j, c.name);
    } else {
      c.checksum = checksum(j);
    }
    return c;
  }

  GoldenTensor golden_tensor(const Json& j) {
    GoldenTensor t{.name = text(j, "name"), .shape = integers(j, "shape"), .type = type(j), .data = {}};
    t.data = checked_piece(j, t.name);
    return t;
  }
  GoldenForm golden_form(const Json& j) {
    GoldenForm form;
    each(j, "outputs", [&](const Json& t) { form.outputs.push_back(golden_tensor(t)); });
    each(j, "bounds", [&](const Json& b) { form.bounds.push_back(as_number(b, "bounds")); });
    if (j.is_object() && j.contains("values"))
      each(j, "values", [&](const Json& t) {
        form.values.push_back({golden_tensor(t), as_number(field(t, "bound"), "bound")});
      });
    return form;
  }

  LengthAxis length_axis(const Json& j) {
    LengthAxis a{.port = text(j, "port"), .axis = integer(j, "axis"), .per = {}, .plus = integer(j, "plus")};
    for (const auto& [size, times] : object(j, "per").items()) a.per[size] = as_integer(times, size.c_str());
    return a;
  }
  Lengths lengths(const Json& j) {
    Lengths l;
    each(j, "sizes", [&](const Json& s) {
      const std::string name = text(s, "name");
      const bool padded = truth(s, "padded");
      const bool fresh = l.why_exact.emplace(name, padded ? "" : text(s, "why")).second;
      if (!fresh) fail("size '", name, "' stands there twice");
      if (!padded && l.why_exact[name].empty()) fail("size '", name, "' is not padded, and nothing says why");
    });
    each(j, "inputs", [&](const Json& a) { l.inputs.push_back(length_axis(a)); });
    each(j, "outputs", [&](const Json& a) { l.outputs.push_back(length_axis(a)); });
    return l;
  }

  PlanTensor tensor(const Json& j) {
    PlanTensor t;
    t.name = text(j, "name");
    t.desc.present = true;
    t.desc.shape = integers(j, "shape");
    t.desc.strides = integers(j, "strides");
    t.desc.type = type(j);
    const auto layout = [&](const char* key) {
      if (!j.is_object() || !j.contains(key)) return Layout::kRows;
      return named(text(j, key), "layout", [](const std::string& n) { return find_layout(n); });
    };
    t.desc.layout = {layout("layout"), layout("scales_layout")};
    if (j.is_object() && j.contains("constant")) t.desc.constant = j["constant"] == true;
    t.storage = named(text(j, "storage"), "storage", [](const std::string& n) -> std::optional<Storage> {
      for (size_t i = 0; i < std::size(kStorageNames); ++i) {
        if (n == kStorageNames[i]) return static_cast<Storage>(i);
      }
      return std::nullopt;
    });
    t.index = integer(j, "index");
    t.offset_bytes = integer(j, "offset");
    t.scale = index_or_none(j, "scale");
    t.scale2 = index_or_none(j, "scale2");
    return t;
  }

  Attr attr(const Json& j) {
    if (!j.is_object() || j.size() != 1) {
      fail("an attribute is not one value with its kind");
      return int64_t{0};
    }
    const std::string kind = j.begin().key();
    if (kind == "int") return integer(j, "int");
    if (kind == "float") return as_number(field(j, "float"), "float");
    if (kind == "word") return text(j, "word");
    if (kind == "list") return integers(j, "list");
    fail("kind of attribute '", kind, "' is not known");
    return int64_t{0};
  }

  Step program_step(const Json& j) {
    Step s{.kind = named(text(j, "step"), "program step", [](const std::string& n) { return find_step(n); })};
    if (j.is_object() && j.contains("fn"))
      s.fn = named(text(j, "fn"), "function", [](const std::string& n) { return find_unary(n); });
    s.operand = index_or_none(j, "operand");
    const StepForm& form = form_of(s.kind);
    if (form.numbers == 0) return s;
    size_t count = 0;
    each(j, "numbers", [&](const Json& n) {
      if (count < form.numbers) s.numbers[count] = as_number(n, "numbers");
      ++count;
    });
    if (count != form.numbers) fail("program step ", form.name, " has ", count, " numbers and takes ", form.numbers);
    return s;
  }

  PlanStep step(const Json& j) {
    PlanStep s;
    s.layer = text(j, "layer");
    s.op = text(j, "op");
    s.variant = text(j, "variant");
    if (j.is_object() && j.contains("config")) s.config = text(j, "config");
    if (j.is_object() && j.contains("slow")) s.slow = text(j, "slow");
    if (j.is_object() && j.contains("chain")) s.chain = static_cast<int>(integer(j, "chain"));
    s.role = text(j, "role");
    s.asked = text(j, "asked");
    s.stored = text(j, "stored");
    s.computed = text(j, "computed");
    s.arithmetic = text(j, "arithmetic");
    s.in = indices(j, "in");
    s.out = indices(j, "out");
    for (const auto& [key, value] : object(j, "attrs").items()) s.attrs.set(key, attr(value));
    each(j, "then", [&](const Json& p) { s.then.steps.push_back(program_step(p)); });
    const Json& workspace = object(j, "workspace");
    s.workspace_offset = integer(workspace, "offset");
    s.workspace_bytes = integer(workspace, "bytes");
    each(j, "refusals", [&](const Json& r) { s.refusals.push_back({text(r, "variant"), text(r, "reason")}); });
    return s;
  }

  Plan plan(const Json& j) {
    Plan p;
    p.name = text(j, "name");
    p.arch = arch(j, "arch");
    p.batch = integer(j, "batch");
    p.arena_bytes = integer(j, "arena_bytes");
    if (j.is_object() && j.contains("graph")) p.graph = text(j, "graph");
    if (j.is_object() && j.contains("sizes")) {
      for (const auto& [name, size] : object(j, "sizes").items()) p.sizes[name] = as_integer(size, name.c_str());
    }
    if (j.is_object() && j.contains("tuning")) p.tuning = text(j, "tuning");
    if (j.is_object() && j.contains("golden")) p.golden = text(j, "golden");
    each(j, "inputs", [&](const Json& i) {
      p.inputs.push_back({text(i, "name"), as_index(field(i, "tensor"), "tensor")});
    });
    each(j, "outputs", [&](const Json& o) {
      p.outputs.push_back({text(o, "name"), as_index(field(o, "tensor"), "tensor")});
    });
    each(j, "tensors", [&](const Json& t) { p.tensors.push_back(tensor(t)); });
    each(j, "steps", [&](const Json& s) { p.steps.push_back(step(s)); });
    return p;
  }

  const Bytes& data_;
  const bool checksums_;
  Status status_;
  std::vector<std::string> place_;
};

}  // namespace

Result<Engine> read_manifest(std::string_view text, const Bytes& data, bool checksums) {
  TS_ASSIGN(const Json json, parse_json(text));
  if (!json.is_object()) return bad_input("is not a JSON object");
  Reader reader(data, checksums);
  Engine engine = reader.engine(json);
  TS_TRY(reader.status());
  return engine;
}

std::string producer_of(std::string_view text) {
  const auto json = parse_json(text);
  if (!json.ok() || !json->is_object()) return "";
  const auto it = json->find("producer");
  return it == json->end() || !it->is_string() ? std::string() : it->get<std::string>().substr(0, 80);
}

}  // namespace tessera
