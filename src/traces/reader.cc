// SPDX-License-Identifier: Apache-2.0
#include "traces/reader.h"

#include <algorithm>

#include "io/gzip.h"
#include "io/json.h"
#include "io/json_events.h"
#include "io/mmap.h"
#include "traces/format.h"

namespace tessera {

namespace {

constexpr size_t kHeadBytes = size_t{64} << 10;
constexpr size_t kKeys = 64;

constexpr Format kFormats[] = {
#define TS_PROFILE_READER(name, what) {what, looks_like_##name, read_##name},
#include "traces/readers.inc"
#undef TS_PROFILE_READER
};

// Collects what Opening says of JSON. The text may end anywhere.
class OpeningKeys : public JsonEvents {
 public:
  explicit OpeningKeys(Opening& opening) : opening_(opening) {}
  bool open(bool is_object) override {
    if (depth() == 1) (is_object ? opening_.is_object : opening_.is_list) = true;
    return true;
  }
  bool key(std::string& k) override {
    if (depth() != (opening_.is_list ? 2u : 1u)) return true;
    if (opening_.keys.size() >= kKeys) return stop(bad_input("enough is seen"));
    opening_.keys.push_back(k);
    return true;
  }
  bool text(std::string& v) override {
    if (depth() == 1 && !opening_.keys.empty() && opening_.keys.back() == "format") opening_.format = v;
    return true;
  }

 private:
  Opening& opening_;
};

std::string accepted() {
  std::string all;
  for (const Format& f : kFormats) {
    if (!all.empty()) all += &f == &std::end(kFormats)[-1] ? " or " : ", ";
    all += f.name;
  }
  return all;
}

Result<Source> open_source(const std::string& path) {
  auto bytes = map_file(path);
  if (!bytes.ok()) return bytes.status();
  return make_source(path, read_by_turns(std::move(bytes).value()));
}

}  // namespace

bool Opening::has(std::string_view key) const { return std::find(keys.begin(), keys.end(), key) != keys.end(); }

Source make_source(std::string path, Bytes bytes) {
  Source s{.path = std::move(path), .bytes = std::move(bytes), .opening = {}};
  if (is_gzip(s.bytes.span())) {
    GzipStream stream(s.bytes.span(), UINT64_MAX);
    s.opening.head.resize(kHeadBytes);
    s.opening.head.resize(static_cast<size_t>(stream.sgetn(s.opening.head.data(), kHeadBytes)));
  } else {
    s.opening.head.assign(reinterpret_cast<const char*>(s.bytes.data()), std::min(s.bytes.size(), kHeadBytes));
  }
  OpeningKeys keys(s.opening);
  const auto* head = reinterpret_cast<const uint8_t*>(s.opening.head.data());
  // Cut off as it is, it is no whole JSON; what was seen until then counts.
  (void)read_json_events({head, s.opening.head.size()}, keys);
  return s;
}

Result<std::string> Source::text() const {
  const JsonLimits limits;
  if (is_gzip(bytes.span())) return unpack_gzip(bytes.span(), limits.text_bytes);
  if (bytes.size() > limits.text_bytes)
    return bad_input(cat("has ", bytes.size(), " bytes; at most ", limits.text_bytes, " are read"));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::span<const Format> profile_formats() { return kFormats; }

Result<Profile> read_sources(const Input& input) {
  if (input.options.runs < 0) return usage_error(cat("a profile of ", input.options.runs, " runs cannot be"));
  for (const Format& f : kFormats) {
    if (!f.looks_like(input.main.opening)) continue;
    TS_ASSIGN(Profile profile, f.read(input));
    if (profile.kernels.empty()) return bad_input("holds no kernel");
    if (!(profile.kernel_us() > 0)) return bad_input("holds kernels that take no time at all");
    return profile;
  }
  if (input.main.opening.head.empty() && is_gzip(input.main.bytes.span()))
    return bad_input("begins as gzip does, but nothing can be unpacked from it");
  return bad_input(cat("is no profile that is read; it would have to be ", accepted(),
                       " (a .nsys-rep after `nsys export --type sqlite`)"));
}

Result<ProfileKind> kind_of_profile(const std::string& path) {
  TS_ASSIGN(const Source source, open_source(path));
  if (is_companion_of_trtexec(source.opening)) return ProfileKind::kCompanion;
  const bool fits = std::any_of(std::begin(kFormats), std::end(kFormats),
                                [&](const Format& f) { return f.looks_like(source.opening); });
  return fits ? ProfileKind::kProfile : ProfileKind::kNone;
}

Result<Profile> read_profile(const std::string& path, const Rules& rules, const ReadOptions& options) {
  TS_ASSIGN(const Source main, open_source(path));
  std::vector<Source> beside;
  for (const std::string& each : options.beside) {
    TS_ASSIGN(Source source, open_source(each));
    beside.push_back(std::move(source));
  }
  auto profile = read_sources({.main = main, .beside = beside, .rules = rules, .options = options});
  if (!profile.ok()) return profile.status().at(path);
  profile->path = path;
  return profile;
}

Result<Rules> read_rules(const std::string& path) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  TS_ASSIGN(const Bytes bytes, map_file(path));
  if (bytes.size() > kMostBytes)
    return bad_input(cat(path, ": has ", bytes.size(), " bytes; rules may have ", kMostBytes));
  TS_ASSIGN(Rules rules, parse_rules({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path));
  return with_built_in(std::move(rules));
}

}  // namespace tessera
