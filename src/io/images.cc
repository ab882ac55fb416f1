// SPDX-License-Identifier: Apache-2.0
#include "io/images.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>

#include "base/memory.h"
#include "io/mmap.h"

namespace tessera {

Status check_image_size(int64_t height, int64_t width) {
  if (height < 1 || width < 1) return bad_input(cat("is an image of ", width, " x ", height, " pixels"));
  if (height > kImagePixels / width)
    return bad_input(cat("is an image of ", width, " x ", height, " pixels; at most ", kImagePixels / 1'000'000,
                         " million are read"));
  return check_memory(height * width * 3, cat("an image of ", width, " x ", height, " pixels"));
}

Result<Image> decode_image(std::span<const uint8_t> file) {
  constexpr uint8_t kJpeg[] = {0xff, 0xd8, 0xff}, kPng[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  const auto begins = [&](std::span<const uint8_t> magic) {
    return file.size() >= magic.size() && std::memcmp(file.data(), magic.data(), magic.size()) == 0;
  };
  if (begins(kJpeg)) return decode_jpeg(file);
  if (begins(kPng)) return decode_png(file);
  return bad_input("is neither a JPEG nor a PNG file");
}

Result<Image> read_image(const std::string& path) {
  TS_ASSIGN(const Bytes file, map_file(path));
  auto image = decode_image(file.span());
  if (!image.ok()) return image.status().at(path);
  return image;
}

Result<std::vector<std::string>> list_images(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error), end;
  if (error) return bad_input(cat(folder, ": ", error.message()));
  while (it != end) {
    std::error_code none;
    std::string extension = it->path().extension().string();
    std::transform(extension.begin(), extension.end(), extension.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const bool image = extension == ".jpg" || extension == ".jpeg" || extension == ".png";
    if (image && it->is_regular_file(none)) found.push_back(it->path().string());
    it.increment(error);
    if (error) return bad_input(cat(folder, ": ", error.message()));
  }
  if (found.empty()) return bad_input(cat(folder, ": holds no .jpg, .jpeg or .png file"));
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace tessera
