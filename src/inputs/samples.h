// SPDX-License-Identifier: Apache-2.0
// Inputs for plans: seeded random ones, or arrays that a user gives (npz). A sample is one entry along the batch axis
// of every input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "io/npz.h"
#include "plan/engine.h"

namespace tessera {

// The largest number of an input that an element on its way cannot hold, so that it becomes that element's largest.
struct Clamped {
  std::string input;
  int64_t sample;
  double magnitude;
  Element element;
};

// Samples of all inputs of a model, each a dense array [count, ...] in the port's type.
struct Samples {
  int64_t count = 0;
  std::vector<std::string> names;
  std::vector<Bytes> data;  // per input, count * bytes_per_sample
  // Per input, the element that `data` is in: a state is f32 in the model and f16 in its engine. Empty: the ports' own.
  std::vector<Element> elements = {};
  std::vector<Clamped> clamped = {};  // where a file's numbers were converted to the port's type
  bool bare = false;                  // one sample, whose arrays came without the axis of the batch
  std::string unread = {};            // arrays of the file that no input has, in a sentence; empty: none

  Samples part(int64_t first, int64_t few) const;  // `few` of them from `first` on, without a copy
  Samples repeated(int64_t wanted) const;          // again and again until there are `wanted`
};

// What random inputs look like. Static scales are made for one kind of inputs; arithmetic must hold on all.
enum class InputKind : uint8_t {
  kNormal,   // deviation 1
  kUniform,  // -1 to 1
  kSmall,    // normal, deviation 2^-10
  kLarge,    // normal, deviation 2^5
};
inline constexpr InputKind kInputKinds[] = {InputKind::kNormal, InputKind::kUniform, InputKind::kSmall,
                                            InputKind::kLarge};
const char* name_of(InputKind kind);  // "normal" ...
std::optional<InputKind> find_input_kind(std::string_view name);

// Seeded random numbers (integers: rows of the tables that read them, else 0 or 1), the same on every machine.
Samples random_samples(const Plan& plan, int64_t count, uint64_t seed, InputKind kind = InputKind::kNormal);
// Lengths of caches from 0 to the longest, at random, in the place of the longest: plans hold at all of them.
void draw_lengths(const Plan& plan, Samples& samples, uint64_t seed);
// Lengths of caches beyond the longest become the longest, as kernels read them: those of arrays that were cut to their
// front, and of golden inputs that were made of such arrays.
void clamp_lengths(const Plan& plan, Samples& samples);
// What is wrong with a length of a cache, in a sentence; empty: nothing.
std::string misfit_lengths(const Plan& plan, const Samples& samples);
// How arrays may differ from the shapes of a plan's ports, beside the batch.
struct ArrayShapes {
  bool front =
      false;  // of more rows than the plan takes (the second axis) it takes the first, as one of a smaller bucket
  // Axes that go with a size: shorter ones are padded with zeros; with `front` longer ones are cut.
  const Lengths* lengths = nullptr;
};
// Arrays by input name from an npz file (a .npy: the only input), converted to the ports' types; shapes must be those
// of the plan but for the batch; one without that axis is one sample.
Result<Samples> read_samples(const Plan& plan, const std::string& path, const ArrayShapes& shapes = {});
// Shapes of the arrays of a file per input of the plan, with the axis of the batch.
Result<std::vector<Shape>> read_shapes(const Plan& plan, const std::string& path);

// The first input that holds NaN or Inf, in a sentence; empty where all are finite.
std::string non_finite_inputs(const Plan& plan, const Samples& samples);

// The first input that holds numbers which this engine clamps, in a sentence: beyond the port's element, or beyond that
// of the copy that brings it into the engine's own (f16 holds 65504). Empty where there is none. (Masks stay in f32.)
std::string clamped_inputs(const Plan& plan, const Samples& samples);

// numpy's word for an element ("<f2"); empty where numpy has none.
std::string numpy_dtype(Element element);

// The same numbers in another element.
Bytes converted(const Bytes& data, Element from, Element to);

// Buffers for one run: samples first, first + 1, ... (modulo count) fill the plan's batch.
struct Filled {
  std::vector<Buffer> buffers;
  std::vector<const void*> pointers;
};
Filled fill_inputs(const Plan& plan, const Samples& samples, int64_t first);
struct Outputs {
  std::vector<Buffer> buffers;
  std::vector<void*> pointers;
};
Outputs make_outputs(const Plan& plan);  // poisoned: every byte 0xA5

// Numbers of one output port, decoded.
std::vector<double> decode_output(const Plan& plan, size_t port, const void* data);

// Samples of one output port, as an array [samples, ...] in a type that numpy has: the port's, else f32. `shape`: the
// port's, or what results were cut to; its first axis does not count.
// Contract: `data` holds so many samples in the port's type.
Array output_array(const Plan& plan, size_t port, const Shape& shape, int64_t samples, Buffer data);

}  // namespace tessera
