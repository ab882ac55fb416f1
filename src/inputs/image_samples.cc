// SPDX-License-Identifier: Apache-2.0
#include "inputs/image_samples.h"

#include <algorithm>
#include <optional>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "inputs/pixel_bytes.h"
#include "io/images_prepare.h"

namespace tessera {
namespace {

Status check_input(const Plan& plan, const Preprocess& p, bool bytes, const std::string& folder) {
  if (plan.inputs.size() != 1) {
    return bad_input(cat(folder, ": a folder of images serves models with one input, this one has ", plan.inputs.size(),
                         "; give an npz with an array per input"));
  }
  const Operand& desc = plan.tensors[static_cast<size_t>(plan.inputs[0].tensor)].desc;
  const Shape one = p.channels_first ? Shape{3, p.height, p.width} : Shape{p.height, p.width, 3};
  if ((info(desc.type.element).kind != ElementKind::kFloat && !bytes) || desc.shape.size() != 4 ||
      !std::equal(one.begin(), one.end(), desc.shape.begin() + 1)) {
    return bad_input(cat("--preprocess gives images ", to_string(one), " to input '", plan.inputs[0].name,
                         "', which is ", to_string(desc.shape), ", the batch first"));
  }
  return {};
}

// The same words for an input in bytes: what becomes of them is the engine's, and is not said twice.
Result<Preprocess> of_bytes(Preprocess p, const std::string& text, const std::string& input, const Pixels& pixels) {
  if (says_numbers(text))
    return usage_error(cat("--preprocess '", text, "': '", input, "' takes bytes, and the engine normalises them by ",
                           to_string(pixels), ": leave mean=, std= and layout= out"));
  p.channels_first = false;
  return p;
}

// How the numbers of the model came about, in the words of a model that takes floats.
std::string say(Preprocess p, const Pixels& pixels) {
  const auto of = [](const std::vector<double>& all, size_t c) { return all[all.size() == 1 ? 0 : c]; };
  for (size_t c = 0; c < 3; ++c) p.mean[c] = of(pixels.mean, c), p.std[c] = of(pixels.std, c);
  p.channels_first = pixels.layout == ImageLayout::kChannelsFirst;
  return to_string(p);
}

}  // namespace

Result<ImageSamples> read_image_samples(const Plan& plan, const std::string& folder, const std::string& preprocess,
                                        int64_t most, bool quiet) {
  if (preprocess.empty()) {
    return usage_error(cat(folder,
                           " is a folder of images: --preprocess must say how they become inputs, as "
                           "size=224x224,mean=0.5:0.5:0.5,std=0.5:0.5:0.5,layout=nchw"));
  }
  TS_ASSIGN(Preprocess p, parse_preprocess(preprocess));
  const auto pixels = plan.inputs.size() == 1 ? pixels_of(plan, plan.inputs[0]) : std::nullopt;
  if (pixels) {
    TS_ASSIGN(p, of_bytes(p, preprocess, plan.inputs[0].name, *pixels));
  }
  TS_TRY(check_input(plan, p, pixels.has_value(), folder));
  TS_ASSIGN(const std::vector<std::string> paths, list_images(folder));
  ImageSamples out{.samples = {},
                   .found = static_cast<int64_t>(paths.size()),
                   .preprocess = pixels ? say(p, *pixels) : to_string(p)};
  const int64_t count = std::min(out.found, most), numbers = p.height * p.width * 3;
  const Element element = plan.tensors[static_cast<size_t>(plan.inputs[0].tensor)].desc.type.element;
  TS_ASSIGN(Buffer data, allocate(packed_bytes(element, numbers) * count, cat(count, " images")));
  std::optional<Progress> progress;
  if (!quiet) progress.emplace("reading images", count);
  std::vector<Status> status(static_cast<size_t>(count));
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::string& path = paths[static_cast<size_t>(i * out.found / count)];
      status[static_cast<size_t>(i)] = [&]() -> Status {
        TS_ASSIGN(const Image image, read_image(path));
        if (pixels) {
          const auto fitted = fit_image(image, p);
          if (!fitted.ok()) return fitted.status().at(path);
          std::copy(fitted->rgb.begin(), fitted->rgb.end(), data.data() + i * numbers);
          return {};
        }
        auto x = prepare_image(image, p);
        if (!x.ok()) return x.status().at(path);
        info(element).encode(x->data(), numbers, data.data(), i * numbers);
        return {};
      }();
      if (progress) progress->advance();
    }
  });
  for (const Status& s : status) TS_TRY(s);
  out.samples.count = count;
  out.samples.names = {plan.inputs[0].name};
  out.samples.data = {Bytes::own(std::move(data))};
  return out;
}

}  // namespace tessera
