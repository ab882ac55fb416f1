// SPDX-License-Identifier: Apache-2.0
#include "ir/derived_constants.h"

#include <algorithm>

#include "io/mmap.h"
#include "ir/graph.h"

namespace tessera {
namespace {

// Below this a result is made again sooner than it is found: biases, tables, shape arithmetic.
constexpr size_t kLargeBytes = size_t{64} << 10;

std::string key_of(const std::string& recipe, std::span<const Bytes> from) {
  std::string key = recipe;
  for (const Bytes& b : from) {
    const bool large = b.size() >= kLargeBytes;
    key += cat(large ? "|at " : "|", large ? reinterpret_cast<uintptr_t>(b.data()) : uintptr_t{0}, " ", b.size(), " ");
    if (!large) key.append(reinterpret_cast<const char*>(b.data()), b.size());
  }
  return key;
}

}  // namespace

Result<std::vector<Bytes>> DerivedConstants::once(const std::string& recipe, std::span<const Bytes> from,
                                                  const Make& make) {
  const bool large = std::any_of(from.begin(), from.end(), [](const Bytes& b) { return b.size() >= kLargeBytes; });
  const std::string key = large ? key_of(recipe, from) : std::string();
  if (large) {
    const std::lock_guard lock(mutex_);
    if (const auto known = entries_.find(key); known != entries_.end()) return ++found_, known->second.result;
  }
  TS_ASSIGN(std::vector<Buffer> made, make());
  Entry entry;
  for (Buffer& b : made) entry.result.push_back(keep(std::move(b)));
  if (!large) return std::move(entry.result);
  for (const Bytes& b : from) give_back(b.data(), b.size());
  entry.from.assign(from.begin(), from.end());
  const std::lock_guard lock(mutex_);
  ++made_;
  return entries_.emplace(key, std::move(entry)).first->second.result;
}

Result<std::vector<Bytes>> derive(const Graph& graph, const std::string& recipe, std::span<const Bytes> from,
                                  const DerivedConstants::Make& make) {
  if (graph.derived != nullptr) return graph.derived->once(recipe, from, make);
  TS_ASSIGN(std::vector<Buffer> made, make());
  std::vector<Bytes> result;
  for (Buffer& b : made) result.push_back(Bytes::own(std::move(b)));
  return result;
}

}  // namespace tessera
