// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <unordered_set>

#include "ir/text.h"

namespace tessera {
namespace {

bool plain_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '/' || c == ':' || c == '-';
}

std::string quoted(const std::string& text) {
  constexpr const char* kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += cat("\\x", kHex[byte >> 4], kHex[byte & 15]);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string word(const std::string& text) {
  bool plain = !text.empty() && text.back() != ':';  // a final colon would read as the one that ends a declared name
  for (const char c : text) plain &= plain_character(c);
  return plain ? text : quoted(text);
}

std::string text_of(const Attr& attr) {
  if (const auto* i = std::get_if<int64_t>(&attr)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&attr)) return number_text(*d);
  if (const auto* s = std::get_if<std::string>(&attr)) return quoted(*s);
  return to_string(std::get<std::vector<int64_t>>(attr));
}

class Printer {
 public:
  Printer(const Graph& graph, bool with_data) : g_(graph), with_data_(with_data) {
    std::unordered_set<std::string> taken;
    for (const Value& v : g_.values) {
      std::string name = v.name.empty() ? "v" : v.name;
      for (int copy = 2; !taken.insert(name).second; ++copy) name = cat(v.name.empty() ? "v" : v.name, ".", copy);
      names_.push_back(std::move(name));
    }
  }

  std::string run() {
    out_ = cat("graph ", word(g_.name), " {\n");
    for (ValueId id : g_.inputs) out_ += cat("  in ", declared(id), "\n");
    for (size_t i = 0; i < g_.values.size(); ++i) {
      if (g_.values[i].constant) out_ += cat("  const ", declared(static_cast<ValueId>(i)), data(g_.values[i]), "\n");
    }
    for (const Node& n : g_.nodes) node(n);
    for (ValueId id : g_.outputs) out_ += cat("  out ", read(id), "\n");
    for (const StatePair& s : g_.states)
      out_ += cat("  state ", read(g_.inputs[s.input]), s.output ? cat(" = ", read(g_.outputs[*s.output])) : "", "\n");
    return out_ + "}\n";
  }

 private:
  std::string read(ValueId id) const {
    return id == kNoValue ? std::string("_") : cat("%", word(names_[static_cast<size_t>(id)]));
  }

  std::string declared(ValueId id) const {
    const Value& v = g_.at(id);
    std::string out = cat(read(id), ": ", to_string(v.type.quant), to_string(v.type.shape));
    if (v.exact) out += " exact";
    if (v.scale != kNoValue) out += " scale=" + read(v.scale);
    if (v.scale2 != kNoValue) out += " scale2=" + read(v.scale2);
    return out;
  }

  std::string data(const Value& v) const {
    if (!with_data_) return "";
    const int64_t n = elements(v.type.shape);
    const Element e = v.type.quant.element;
    if (n <= 8) {  // small ones as numbers; decoding is exact and so is reading back
      std::vector<double> numbers(static_cast<size_t>(n));
      info(e).decode_f64(v.data.data(), 0, n, numbers.data());
      std::string list;
      bool exact = true;
      for (const double x : numbers) {
        exact &= std::isfinite(x) && (e != Element::i64 || std::fabs(x) < 0x1p53);
        const bool integer = std::fabs(x) < 1e15 && x == std::floor(x) && !std::signbit(x);
        list += cat(list.empty() ? "" : ", ", integer ? std::to_string(static_cast<int64_t>(x)) : number_text(x));
      }
      if (exact) return cat(" = {", list, "}");
    }
    constexpr const char* kHex = "0123456789abcdef";
    std::string hex;
    hex.reserve(2 * v.data.size());
    for (const uint8_t byte : v.data.span()) {
      hex += kHex[byte >> 4];
      hex += kHex[byte & 15];
    }
    return cat(" = data(", hex, ")");
  }

  void node(const Node& n) {
    std::string results;
    for (ValueId id : n.outputs) results += cat(results.empty() ? "" : ", ", declared(id));
    out_ += cat("  ", results, " = ", word(n.op), "(");
    for (size_t i = 0; i < n.inputs.size(); ++i) out_ += cat(i ? ", " : "", read(n.inputs[i]));
    out_ += ")";
    std::string attrs;
    for (const auto& [key, value] : n.attrs.all())
      attrs += cat(attrs.empty() ? "" : ", ", word(key), "=", text_of(value));
    if (!attrs.empty()) out_ += cat(" {", attrs, "}");
    if (!n.then.empty()) out_ += " then";
    for (const Step& s : n.then.steps) out_ += cat(" ", text_of(s));
    if (!n.name.empty()) out_ += cat(" @", quoted(n.name));
    if (!n.role.empty()) out_ += cat(" role ", word(n.role));
    if (!n.asked.empty()) out_ += cat(" asked ", word(n.asked));
    out_ += "\n";
  }

  const Graph& g_;
  const bool with_data_;
  std::vector<std::string> names_;
  std::string out_;
};

}  // namespace

std::string number_text(double x) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x).ptr;
  std::string out(buffer, end);
  if (std::isfinite(x) && out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

std::string print_graph(const Graph& graph, bool with_data) { return Printer(graph, with_data).run(); }

}  // namespace tessera
