// SPDX-License-Identifier: Apache-2.0
// Changes of a manifest that keep it JSON: a number becomes an awkward one or another one of the file, a word another
// word, lists grow and shrink. Half of the changes stay libFuzzer's own, on bytes.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using Json = nlohmann::json;

const char* const kWords[] = {"f32",
                              "f16",
                              "bf16",
                              "e4m3",
                              "f64",
                              "i64",
                              "i32",
                              "u8",
                              "e4m3:tensor(f32)",
                              "e4m3:channel(f32)",
                              "matmul",
                              "norm",
                              "attention",
                              "softmax",
                              "copy",
                              "map",
                              "concat",
                              "gather",
                              "reduce",
                              "write",
                              "main",
                              "arena",
                              "input",
                              "output",
                              "constant",
                              "state",
                              "panels16",
                              "rows",
                              "ref",
                              "cpu",
                              "sm90",
                              "view"};

class Mutator {
 public:
  Mutator(Json& root, unsigned seed) : random_(seed) { collect(root); }

  void change() {
    Json& j = *all_[pick(all_.size())];
    if (j.is_number()) return change_number(j);
    if (j.is_string()) return change_word(j);
    if (j.is_array()) return change_list(j);
    if (j.is_object()) return change_object(j);
    j = *all_[pick(all_.size())];
  }

 private:
  size_t pick(size_t n) { return n == 0 ? 0 : random_() % n; }

  void collect(Json& j) {
    all_.push_back(&j);
    if (j.is_string()) words_.push_back(j.get<std::string>());
    if (j.is_number_integer()) numbers_.push_back(j.get<int64_t>());
    if (j.is_structured()) {
      for (Json& child : j) collect(child);
    }
  }
  void change_number(Json& j) {
    const int64_t n = j.is_number_integer() ? j.get<int64_t>() : 1;
    const int64_t awkward[] = {0,
                               1,
                               -1,
                               2,
                               3,
                               16,
                               255,
                               256,
                               4096,
                               int64_t{1} << 31,
                               int64_t{1} << 40,
                               int64_t{1} << 48,
                               int64_t{1} << 62,
                               INT64_MAX,
                               INT64_MIN};
    switch (pick(4)) {
      case 0:
        j = awkward[pick(std::size(awkward))];
        break;
      case 1:
        j = static_cast<int64_t>(static_cast<uint64_t>(n) + (pick(2) ? 1u : ~uint64_t{0}));
        break;
      case 2:
        j = static_cast<int64_t>(static_cast<uint64_t>(n) * 2);
        break;
      default:
        if (!numbers_.empty()) j = numbers_[pick(numbers_.size())];
    }
  }
  void change_word(Json& j) {
    j = pick(2) && !words_.empty() ? words_[pick(words_.size())] : std::string(kWords[pick(std::size(kWords))]);
  }
  void change_list(Json& j) {
    const size_t at = pick(j.size());
    switch (pick(4)) {
      case 0:
        if (!j.empty()) j.erase(at);
        break;
      case 1:
        if (!j.empty()) j.push_back(Json(j[at]));
        break;
      case 2:
        if (!j.empty()) std::swap(j[at], j[pick(j.size())]);
        break;
      default:
        j.push_back(Json(*all_[pick(all_.size())]));
    }
  }
  void change_object(Json& j) {
    if (j.empty()) return;
    auto it = j.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(pick(j.size())));
    if (pick(4) == 0) {
      j.erase(it);
    } else {
      *it = Json(*all_[pick(all_.size())]);
    }
  }

  std::minstd_rand random_;
  std::vector<Json*> all_;  // one change per Mutator: pointers die with it
  std::vector<std::string> words_;
  std::vector<int64_t> numbers_;
};

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  const uint8_t* zero = std::find(data, data + size, 0);
  Json manifest = seed % 2 == 0 || size == 0 || data[0] != '{'
                      ? Json()
                      : Json::parse(static_cast<const uint8_t*>(data), zero, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object()) return LLVMFuzzerMutate(data, size, max_size);
  for (unsigned i = 0; i < 1 + seed / 2 % 3; ++i) Mutator(manifest, seed + i).change();
  const std::string text = manifest.dump(-1, ' ', false, Json::error_handler_t::replace) +
                           std::string(zero, static_cast<const uint8_t*>(data + size));
  if (text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
