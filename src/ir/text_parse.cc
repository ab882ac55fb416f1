// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

#include "base/random.h"
#include "ir/check.h"
#include "ir/region.h"
#include "ir/text.h"

namespace tessera {
namespace {

// A reader of text must not be talked into gigabytes by three characters: seed(1) on a huge shape. Of all constants
// together.
constexpr int64_t kMaxMadeElements = int64_t{1} << 20;

uint64_t next_random(uint64_t* state) {
  const uint64_t made = mix64(*state);
  *state += kMixStep;
  return made;
}

double normal(uint64_t* state) {
  const double u = static_cast<double>((next_random(state) >> 11) + 1) * 0x1p-53;  // (0, 1]
  const double angle = static_cast<double>(next_random(state) >> 11) * 0x1p-53 * 2 * std::numbers::pi;
  return std::sqrt(-2 * std::log(u)) * std::cos(angle);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<std::vector<Graph>> run() {
    std::vector<Graph> graphs;
    for (skip(); at_ < text_.size(); skip()) {
      const Status status = graph();
      if (!status.ok()) return status.at(cat("line ", line_));
      TS_TRY(check(g_).at(cat("graph '", g_.name, "'")));
      graphs.push_back(std::move(g_));
    }
    return graphs;
  }

 private:
  void skip() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        line_ += c == '\n';
        ++at_;
      } else {
        break;
      }
    }
  }
  bool next_is(char c) {
    skip();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }
  Status want(char c) {
    if (take(c)) return {};
    return bad_input(at_ < text_.size() ? cat("expected '", c, "', found '", text_[at_], "'")
                                        : cat("expected '", c, "', found the end"));
  }
  static bool plain(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '/' || c == ':' || c == '-';
  }

  Result<std::string> quoted() {
    TS_TRY(want('"'));
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
      char c = text_[at_++];
      if (c == '\\' && at_ < text_.size()) {
        c = text_[at_++];
        if (c == 'x') {
          unsigned code = 0;
          if (at_ + 2 > text_.size() || std::from_chars(&text_[at_], &text_[at_] + 2, code, 16).ptr != &text_[at_] + 2)
            return bad_input("bad \\x in a word");
          at_ += 2;
          c = static_cast<char>(code);
        }
      }
      out += c;
    }
    if (!(at_ < text_.size() && text_[at_] == '"')) return bad_input("a quoted word does not end");
    ++at_;
    return out;
  }
  Result<std::string> word() {
    if (next_is('"')) return quoted();
    const size_t start = at_;
    while (at_ < text_.size() && plain(text_[at_])) ++at_;
    if (at_ == start) return bad_input("expected a word");
    return std::string(text_.substr(start, at_ - start));
  }
  // Takes the word if it comes next.
  bool take_word(std::string_view w) {
    skip();
    if (text_.substr(at_, w.size()) != w) return false;
    if (at_ + w.size() < text_.size() && plain(text_[at_ + w.size()])) return false;
    at_ += w.size();
    return true;
  }
  // An integer or a double, told apart by `.`, `e`, inf and nan.
  Result<Attr> number() {
    skip();
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    double d = 0;
    const auto read = std::from_chars(begin, end, d);
    if (read.ec != std::errc() && read.ec != std::errc::result_out_of_range) return bad_input("expected a number");
    const std::string_view token(begin, static_cast<size_t>(read.ptr - begin));
    at_ += token.size();
    int64_t i = 0;
    if (std::from_chars(begin, read.ptr, i).ptr == read.ptr && token.find_first_of(".eni") == std::string_view::npos)
      return Attr(i);
    return Attr(d);
  }
  Result<int64_t> integer() {
    TS_ASSIGN(const Attr attr, number());
    if (const auto* i = std::get_if<int64_t>(&attr)) return *i;
    return bad_input("expected an integer");
  }
  Result<double> real() {
    TS_ASSIGN(const Attr attr, number());
    if (const auto* i = std::get_if<int64_t>(&attr)) return static_cast<double>(*i);
    return std::get<double>(attr);
  }
  Result<Shape> list() {
    TS_TRY(want('['));
    Shape out;
    while (!take(']')) {
      if (!out.empty()) TS_TRY(want(','));
      TS_ASSIGN(const int64_t n, integer());
      out.push_back(n);
    }
    return out;
  }

  // %name: type[shape] exact scale=%s
  Result<ValueId> declare() {
    TS_TRY(want('%'));
    TS_ASSIGN(std::string name, name_token());
    if (ids_.contains(name)) return bad_input(cat("%", name, " is declared twice"));
    TS_TRY(want(':'));
    skip();
    const size_t open = text_.find('[', at_);
    if (open == std::string_view::npos) return bad_input("expected a type such as f32[2,3]");
    const std::string_view type_text = text_.substr(at_, open - at_);
    const auto quant = parse_quant_type(type_text);
    if (!quant) return bad_input(cat("unknown type '", type_text.substr(0, 40), "'"));
    at_ = open;
    TS_ASSIGN(Shape shape, list());
    if (!checked_elements(shape, kMaxElements))
      return bad_input(cat("%", name, ": shape ", to_string(shape), " is too large or negative"));
    const ValueId id = g_.add_value({.name = name, .type = {std::move(shape), *quant}, .constant = false, .data = {}});
    ids_[std::move(name)] = id;
    g_.at(id).exact = take_word("exact");
    for (const bool second : {false, true}) {
      if (!take_word(second ? "scale2" : "scale")) continue;
      TS_TRY(want('='));
      TS_TRY(want('%'));
      TS_ASSIGN(std::string scale, name_token());
      scales_.push_back({id, second, std::move(scale), line_});
    }
    return id;
  }
  // A value's name: as a word, but a ':' that ends it belongs to the declaration.
  Result<std::string> name_token() {
    TS_ASSIGN(std::string name, word());
    if (text_[at_ - 1] != '"' && name.back() == ':') {
      name.pop_back();
      --at_;
    }
    if (name.empty()) return bad_input("expected a name after %");
    return name;
  }
  Result<ValueId> read() {
    if (take('_')) return kNoValue;
    TS_TRY(want('%'));
    TS_ASSIGN(const std::string name, name_token());
    const auto it = ids_.find(name);
    if (it == ids_.end()) return bad_input(cat("%", name, " is not declared"));
    return it->second;
  }

  Status graph() {
    g_ = {};
    ids_.clear();
    scales_.clear();
    if (!take_word("graph")) return bad_input("expected `graph name {`");
    TS_ASSIGN(g_.name, word());
    TS_TRY(want('{'));
    while (!take('}')) {
      if (take_word("in")) {
        TS_ASSIGN(const ValueId id, declare());
        g_.inputs.push_back(id);
      } else if (take_word("const")) {
        TS_ASSIGN(const ValueId id, declare());
        TS_TRY(constant(id));
      } else if (take_word("out")) {
        TS_ASSIGN(const ValueId id, read());
        if (id == kNoValue) return bad_input("an output must be a value");
        g_.outputs.push_back(id);
      } else if (take_word("state")) {
        TS_TRY(state());
      } else if (next_is('%')) {
        TS_TRY(node());
      } else {
        return bad_input("expected in, const, out, state, %value or }");
      }
    }
    for (const Scale& s : scales_) {
      const auto it = ids_.find(s.name);
      if (it == ids_.end()) return bad_input(cat("the scale %", s.name, " of line ", s.line, " is not declared"));
      (s.second ? g_.at(s.of).scale2 : g_.at(s.of).scale) = it->second;
    }
    return {};
  }

  Status state() {
    const auto port = [&](const std::vector<ValueId>& ports, const char* what) -> Result<size_t> {
      TS_ASSIGN(const ValueId id, read());
      const auto it = std::find(ports.begin(), ports.end(), id);
      if (it == ports.end()) return bad_input(cat("a state names an ", what, " that is declared before it"));
      return static_cast<size_t>(it - ports.begin());
    };
    TS_ASSIGN(const size_t input, port(g_.inputs, "input"));
    g_.states.push_back({.input = input});
    if (!take('=')) return {};
    TS_ASSIGN(g_.states.back().output, port(g_.outputs, "output"));
    return {};
  }

  Status constant(ValueId id) {
    const Type& type = g_.at(id).type;
    const Element e = type.quant.element;
    const int64_t n = elements(type.shape);
    if (n > kMaxMadeElements - made_)
      return bad_input(cat("constants in text hold at most ", kMaxMadeElements, " elements, all together"));
    made_ += n;
    Buffer buffer(static_cast<size_t>(packed_bytes(e, n)));
    if (take('=')) {
      if (take_word("seed")) {
        TS_TRY(want('('));
        TS_ASSIGN(const int64_t seed, integer());
        TS_TRY(want(')'));
        uint64_t state = static_cast<uint64_t>(seed);
        std::vector<double> numbers(static_cast<size_t>(n));
        for (double& x : numbers) x = 0.05 * normal(&state);
        info(e).encode_f64(numbers.data(), n, buffer.data(), 0);
      } else if (take_word("data")) {
        TS_TRY(want('('));
        TS_TRY(hex(&buffer));
        TS_TRY(want(')'));
      } else {
        TS_TRY(want('{'));
        std::vector<double> numbers;
        while (!take('}')) {
          if (!numbers.empty()) TS_TRY(want(','));
          TS_ASSIGN(const double x, real());
          numbers.push_back(x);
        }
        if (static_cast<int64_t>(numbers.size()) != n)
          return bad_input(cat(numbers.size(), " numbers for ", n, " elements"));
        info(e).encode_f64(numbers.data(), n, buffer.data(), 0);
      }
    }
    g_.at(id).constant = true;
    g_.at(id).data = Bytes::own(std::move(buffer));
    return {};
  }

  Status hex(Buffer* buffer) {
    skip();
    for (size_t i = 0; i < buffer->size(); ++i, at_ += 2) {
      unsigned byte = 0;
      if (at_ + 2 > text_.size() ||
          std::from_chars(text_.data() + at_, text_.data() + at_ + 2, byte, 16).ptr != text_.data() + at_ + 2) {
        return bad_input(cat("expected ", buffer->size(), " bytes in hexadecimal"));
      }
      buffer->data()[i] = static_cast<uint8_t>(byte);
    }
    return {};
  }

  Status node() {
    Node n;
    do {
      TS_ASSIGN(const ValueId id, declare());
      n.outputs.push_back(id);
    } while (take(','));
    TS_TRY(want('='));
    TS_ASSIGN(n.op, word());
    TS_TRY(want('('));
    while (!take(')')) {
      if (!n.inputs.empty()) TS_TRY(want(','));
      TS_ASSIGN(const ValueId id, read());
      n.inputs.push_back(id);
    }
    if (take('{')) {
      bool first = true;
      while (!take('}')) {
        if (!first) TS_TRY(want(','));
        first = false;
        TS_ASSIGN(const std::string key, word());
        TS_TRY(want('='));
        TS_ASSIGN(Attr attr, attribute());
        n.attrs.set(key, std::move(attr));
      }
    }
    if (take_word("then")) TS_TRY(program(&n.then));
    if (take('@')) {
      TS_ASSIGN(n.name, quoted());
    }
    if (take_word("role")) {
      TS_ASSIGN(n.role, word());
    }
    if (take_word("asked")) {
      TS_ASSIGN(n.asked, word());
    }
    g_.nodes.push_back(std::move(n));
    return {};
  }

  Result<Attr> attribute() {
    if (next_is('"')) {
      TS_ASSIGN(std::string text, quoted());
      return Attr(std::move(text));
    }
    if (next_is('[')) {
      TS_ASSIGN(Shape numbers, list());
      return Attr(std::move(numbers));
    }
    return number();
  }

  Status program(Program* then) {
    while (true) {
      skip();
      const size_t start = at_;
      if (at_ >= text_.size() || !plain(text_[at_])) return {};
      TS_ASSIGN(const std::string name, word());
      const auto kind = find_step(name);
      if (!kind) {
        at_ = start;  // `role`, `asked` or the next line
        return {};
      }
      TS_ASSIGN(const Step step, arguments(*kind));
      then->steps.push_back(step);
    }
  }

  // (function, operand, numbers), as many of them as the step's form has.
  Result<Step> arguments(StepKind kind) {
    Step step{.kind = kind};
    const StepForm& form = form_of(kind);
    bool any = false;
    const auto next = [&] { return want(std::exchange(any, true) ? ',' : '('); };
    if (form.function) {
      TS_TRY(next());
      TS_ASSIGN(const std::string fn, word());
      const auto unary = find_unary(fn);
      if (!unary) return bad_input(cat("unknown function '", fn, "'"));
      step.fn = *unary;
    }
    if (form.operand != StepOperand::kNone) {
      TS_TRY(next());
      TS_ASSIGN(const int64_t operand, integer());
      if (operand < 0 || operand > 1000) return bad_input("a step's operand is an index into the node's operands");
      step.operand = static_cast<int>(operand);
    }
    for (size_t i = 0; i < form.numbers; ++i) {
      TS_TRY(next());
      TS_ASSIGN(step.numbers[i], real());
      if (!std::isfinite(step.numbers[i])) return bad_input(cat("a number of step ", form.name, " is not finite"));
    }
    if (any) TS_TRY(want(')'));
    return step;
  }

  struct Scale {
    ValueId of;
    bool second;
    std::string name;
    int line;
  };
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  int64_t made_ = 0;  // elements of constants so far
  Graph g_;
  std::map<std::string, ValueId> ids_;
  std::vector<Scale> scales_;
};

}  // namespace

Result<std::vector<Graph>> parse_graphs(std::string_view text) { return Parser(text).run(); }

Result<Graph> parse_graph(std::string_view text) {
  TS_ASSIGN(std::vector<Graph> graphs, parse_graphs(text));
  if (graphs.size() != 1) return bad_input(cat("expected one graph, found ", graphs.size()));
  return std::move(graphs[0]);
}

}  // namespace tessera
