// SPDX-License-Identifier: Apache-2.0
// A text file that the build put into the program (cmake/embed_texts.cmake): the program says and does the same
// wherever it lies.
#pragma once

#include <span>
#include <string>

namespace tessera {

struct EmbeddedText {
  const char* name;  // of the file, without folder and ending
  std::span<const char* const> lines;

  std::string text() const {
    std::string all;
    for (const char* line : lines) (all += line) += '\n';
    return all;
  }
};

}  // namespace tessera
