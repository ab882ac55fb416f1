// SPDX-License-Identifier: Apache-2.0
// Calibration data: how large each value became on sample inputs. Made by calibrate/calibrate, kept by
// calibrate/ranges_file, read by precision/quantize through clip(). Plain data; a value is known by the name it has in
// the canonical graph.
//   clip  the magnitude that becomes the element's largest number; what lies beyond it saturates
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "types/element.h"

namespace tessera {

// Which of the recorded magnitudes is the clip.
struct RangeMethod {
  enum Kind : uint8_t { kAmax, kPercentile, kMse };
  Kind kind = kAmax;
  double percent = 99.99;  // kPercentile: this share of the numbers is not clipped
  bool operator==(const RangeMethod&) const = default;
};
std::string to_string(const RangeMethod& method);  // "amax", "percentile=99.99", "mse"
// Also "percentile", which is percentile=99.99.
Result<RangeMethod> parse_range_method(std::string_view text);

// Recorded whatever the method, so that a file of ranges serves any of them.
inline constexpr double kPercentiles[] = {99, 99.9, 99.99, 99.999};
// Elements that an activation with a static scale may have; e2m1 stands for nvfp4, whose static scale is the second
// one.
inline constexpr Element kClippedElements[] = {Element::e4m3, Element::i8, Element::e2m1};

struct ValueRange {
  float amax = 0;  // NaN or Inf where the value was not finite, which whoever needs a scale of it refuses
  std::map<double, float> percentiles;  // by percent: the least magnitude that so many of the numbers do not exceed
  std::map<Element, float> mse;         // the clip with the least mean square error, per element
  std::optional<float> by_hand;         // set in the file by its user: goes before every method

  ValueRange() = default;
  ValueRange(float largest) : amax(largest) {}  // NOLINT: a range of which only amax is known
  bool operator==(const ValueRange&) const = default;
};

struct Ranges {
  std::map<std::string, ValueRange> values;
  RangeMethod method;
  std::string how;                    // in words: "amax over 512 samples of calib.npz"
  std::vector<std::string> warnings;  // what the samples themselves show to be wrong with them, a sentence each
  std::string unread;  // arrays of the samples' file that no input reads, in a sentence; not kept in a file of ranges
  std::string preprocess;      // how images became inputs; empty where arrays were given
  std::string model, weights;  // name of the graph; checksum of its weights, 16 hex digits
  int64_t samples = 0;

  // Nothing where the value is unknown or was not recorded for the method in use.
  std::optional<float> clip(const std::string& value, Element element) const;
  bool operator==(const Ranges&) const = default;
};
// Warnings, and what is said once when samples are read.
inline std::vector<std::string> all_warnings(const Ranges& ranges) {
  std::vector<std::string> all = ranges.warnings;
  if (!ranges.unread.empty()) all.push_back(ranges.unread);
  return all;
}

}  // namespace tessera
