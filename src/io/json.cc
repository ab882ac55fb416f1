// SPDX-License-Identifier: Apache-2.0
#include "io/json.h"

#include <vector>

namespace tessera {
namespace {

using Json = nlohmann::json;

// Builds the value from the parser's events; false stops the parser.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return add(Json(nullptr)); }
  bool boolean(bool v) override { return add(Json(v)); }
  bool number_integer(number_integer_t v) override { return add(Json(v)); }
  bool number_unsigned(number_unsigned_t v) override { return add(Json(v)); }
  bool number_float(number_float_t v, const string_t&) override { return add(Json(v)); }
  bool string(string_t& v) override { return add(Json(std::move(v))); }
  bool binary(binary_t&) override { return fail("holds binary data"); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& k) override {
    if (open_.back()->contains(k)) return fail(cat("repeats the key '", k.substr(0, 120), "'"));
    key_ = std::move(k);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail(cat("is not JSON at byte ", position));
  }

  Result<Json> take() {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }
  bool fail(std::string what) {
    if (status_.ok()) status_ = bad_input(std::move(what));
    return false;
  }

 private:
  bool add(Json value) {
    place(std::move(value));
    return count();
  }
  bool open(Json value) {
    if (open_.size() >= limits_.depth) return fail(cat("is nested deeper than ", limits_.depth, " levels"));
    open_.push_back(place(std::move(value)));
    return count();
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  bool count() { return ++values_ <= limits_.values || fail(cat("holds more than ", limits_.values, " values")); }
  Json* place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }

  const JsonLimits& limits_;
  Json root_;
  std::vector<Json*> open_;  // an array grows only at its end, where its last element is closed: pointers stay good
  std::string key_;
  size_t values_ = 0;
  Status status_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.text_bytes)
    return bad_input(cat("has ", text.size(), " bytes of JSON; at most ", limits.text_bytes, " are read"));
  Builder builder(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) builder.fail("is not JSON");
  return builder.take();
}

}  // namespace tessera
