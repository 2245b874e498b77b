// SPDX-License-Identifier: Apache-2.0
// Reads pictures from PNG and JPEG files: 8 bits a channel, RGB or grey, as they are stored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "qk/graph/base/tensor.hpp"

namespace qk::graph {

/// Returns whether the name ends as that of an image does: .png, .jpg, .jpeg, in any case.
bool is_image_name(const std::filesystem::path& file);
/// Throws error if the name ends as that of an image of a kind that is not read: .bmp, .webp, .gif, .tif and others.
void refuse_other_image(const std::filesystem::path& file);

/// The image files of a folder in natural order ("x2" before "x10"). A folder without images whose sub-folders hold some is a set of
/// classes: the files come class by class, and `classes` has for each file the index of its sub-folder in `class_names`, which lists those
/// with images in natural order. An image of a kind that is not read is an error: samples must not get lost in silence.
struct image_folder {
    std::vector<std::filesystem::path> files;
    std::vector<std::int64_t> classes;  ///< one per file; empty without sub-folders
    std::vector<std::string> class_names;
    std::vector<std::filesystem::path> passed_over;  ///< everything else beside the images, in natural order
};
image_folder list_images(const std::filesystem::path& folder);

/// The size to which every image is resized; 0 by 0 leaves it as it is.
struct image_size {
    int height = 0, width = 0;
};

/// Returns uint8 [1, height, width, channels], channels 3 (RGB) or 1 (grey). Transparency is dropped, 16 bits lose their lower half,
/// palettes are looked up. Throws error naming the file if it is no whole image, has more than 2^28 pixels, or qk was built without the
/// library that reads it.
tensor read_image(const std::filesystem::path& file);

/// Returns all images as one tensor [N, height, width, channels]; grey ones become RGB where any is RGB. Without `size` all must have the
/// first one's height and width; the error names the one that differs. With `size` each image is resized: bilinear, each pixel the weighted
/// mean of those that it covers.
tensor read_images(const std::vector<std::filesystem::path>& files, image_size size = {});

}  // namespace qk::graph
