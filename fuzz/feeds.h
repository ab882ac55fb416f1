// SPDX-License-Identifier: Apache-2.0
// What a fuzzer does with one input, per reader: read it, and where it is accepted go on as the program would. Any
// bytes must come back; an accepted input that breaks a promise (text that does not print as it was read, an engine
// that is written back otherwise) aborts. The same functions replay the corpus in a plain test.
#pragma once

#include <cstdint>
#include <span>

namespace tessera::fuzz {

#define TS_READER(name) void feed_##name(std::span<const uint8_t> input);
#include "fuzz/readers.inc"
#undef TS_READER

}  // namespace tessera::fuzz
