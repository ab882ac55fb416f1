// SPDX-License-Identifier: Apache-2.0
// Attributes of a node: a few named numbers, words and lists, kept in the order of their names so that printing is
// reproducible.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace tessera {

using Attr = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, Attr>> list) : map_(list) {}
  bool has(const std::string& key) const { return map_.contains(key); }
  void set(const std::string& key, Attr value) { map_[key] = std::move(value); }
  void erase(const std::string& key) { map_.erase(key); }
  // The value, or `fallback` where the key is absent or of another kind.
  template <class T>
  T get(const std::string& key, T fallback) const {
    const auto it = map_.find(key);
    if (it == map_.end()) return fallback;
    const T* value = std::get_if<T>(&it->second);
    return value ? *value : fallback;
  }
  int64_t integer(const std::string& key, int64_t fallback = 0) const { return get<int64_t>(key, fallback); }
  double number(const std::string& key, double fallback = 0) const { return get<double>(key, fallback); }
  std::string word(const std::string& key, std::string fallback = "") const {
    return get<std::string>(key, std::move(fallback));
  }
  std::vector<int64_t> list(const std::string& key) const { return get<std::vector<int64_t>>(key, {}); }
  const std::map<std::string, Attr>& all() const { return map_; }
  bool operator==(const Attrs&) const = default;

 private:
  std::map<std::string, Attr> map_;
};

}  // namespace tessera
