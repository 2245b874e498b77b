// SPDX-License-Identifier: Apache-2.0
// Definitions of images.hpp. libpng and libjpeg report errors by a jump that runs no destructor: objects with one are made before setjmp.
#include "qk/graph/files/images.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "graph/files/natural_order.hpp"
#include "qk/graph/base/error.hpp"
#include "qk/graph/files/file.hpp"
#ifdef QK_HAVE_PNG
#include <png.h>
#endif
#ifdef QK_HAVE_JPEG
#include <jpeglib.h>
#endif

namespace qk::graph {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_pixels = std::size_t{1} << 28;

std::string ending(const fs::path& file) {
    std::string s = file.extension().string();
    for (char& c : s) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return s;
}

/// A decoded image: rows of `channels` bytes a pixel.
struct picture {
    std::size_t height = 0, width = 0, channels = 0;
    std::vector<std::uint8_t> pixels;
    std::vector<std::uint8_t*> rows;
    std::string problem;  ///< what the library reported

    /// Returns false with a problem if the image is too large or empty.
    bool allocate(std::size_t h, std::size_t w, std::size_t c) {
        height = h, width = w, channels = c;
        if (w == 0 || h == 0) return problem = "it has no pixels", false;
        if (h > most_pixels / w) return problem = "it has more than 2^28 pixels", false;
        pixels.resize(h * w * c);
        rows.resize(h);
        for (std::size_t y = 0; y < h; ++y) rows[y] = pixels.data() + y * w * c;
        return true;
    }
};

#ifdef QK_HAVE_PNG
struct png_source {
    const std::string* bytes;
    std::size_t at = 0;
};

void png_failed(png_structp png, png_const_charp what) {
    static_cast<picture*>(png_get_error_ptr(png))->problem = what;
    longjmp(png_jmpbuf(png), 1);
}
void png_warned(png_structp, png_const_charp) {}
void png_fetch(png_structp png, png_bytep to, std::size_t count) {
    auto* source = static_cast<png_source*>(png_get_io_ptr(png));
    if (count > source->bytes->size() - source->at) png_error(png, "the file ends too early");
    std::memcpy(to, source->bytes->data() + source->at, count);
    source->at += count;
}

bool decode_png(const std::string& bytes, picture& to) {
    png_source source{&bytes};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &to, png_failed, png_warned);
    png_infop info = png != nullptr ? png_create_info_struct(png) : nullptr;
    if (info == nullptr) {
        png_destroy_read_struct(&png, nullptr, nullptr);
        return to.problem = "out of memory", false;
    }
    bool done = false;
    if (setjmp(png_jmpbuf(png)) == 0) {
        png_set_read_fn(png, &source, png_fetch);
        png_read_info(png, info);
        png_set_strip_16(png);
        png_set_expand(png);  // palettes, and grey of fewer than 8 bits
        png_set_strip_alpha(png);
        png_set_interlace_handling(png);
        png_read_update_info(png, info);
        if (to.allocate(png_get_image_height(png, info), png_get_image_width(png, info), png_get_channels(png, info))) {
            png_read_image(png, to.rows.data());
            png_read_end(png, nullptr);
            done = true;
        }
    }
    png_destroy_read_struct(&png, &info, nullptr);
    return done;
}
#endif

#ifdef QK_HAVE_JPEG
struct jpeg_errors {
    jpeg_error_mgr manager;
    std::jmp_buf back;
    char what[JMSG_LENGTH_MAX] = {};
};

void jpeg_failed(j_common_ptr jpeg) {
    auto* errors = reinterpret_cast<jpeg_errors*>(jpeg->err);
    jpeg->err->format_message(jpeg, errors->what);
    longjmp(errors->back, 1);
}
/// Treats a warning as an error: libjpeg would fill the damage with grey.
void jpeg_warned(j_common_ptr jpeg, int level) {
    if (level < 0) jpeg_failed(jpeg);
}

bool decode_jpeg(const std::string& bytes, picture& to) {
    jpeg_decompress_struct jpeg;
    jpeg_errors errors;
    jpeg.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = jpeg_failed;
    errors.manager.emit_message = jpeg_warned;
    if (setjmp(errors.back) != 0) {
        to.problem = errors.what;
        jpeg_destroy_decompress(&jpeg);
        return false;
    }
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<unsigned long>(bytes.size()));
    jpeg_read_header(&jpeg, TRUE);
    if (jpeg.num_components == 4) {
        to.problem = "it is CMYK; convert it to RGB";
    } else {
        jpeg.out_color_space = jpeg.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
        jpeg_start_decompress(&jpeg);
        if (to.allocate(jpeg.output_height, jpeg.output_width, static_cast<std::size_t>(jpeg.output_components))) {
            while (jpeg.output_scanline < jpeg.output_height)
                jpeg_read_scanlines(&jpeg, to.rows.data() + jpeg.output_scanline, jpeg.output_height - jpeg.output_scanline);
            jpeg_finish_decompress(&jpeg);
        }
    }
    jpeg_destroy_decompress(&jpeg);
    return to.problem.empty();
}
#endif

picture decode(const fs::path& file) {
    const std::string bytes = read_file(file);
    picture p;
    bool done = false;
    if (bytes.starts_with("\x89PNG")) {
#ifdef QK_HAVE_PNG
        done = decode_png(bytes, p);
#else
        p.problem = "this qk was built without libpng (Debian's libpng-dev)";
#endif
    } else if (bytes.starts_with("\xff\xd8")) {
#ifdef QK_HAVE_JPEG
        done = decode_jpeg(bytes, p);
#else
        p.problem = "this qk was built without libjpeg (Debian's libjpeg-dev)";
#endif
    } else {
        p.problem = "it is neither PNG nor JPEG";
    }
    if (!done) throw error("cannot read the image '" + file.string() + "': " + p.problem);
    return p;
}

picture as_rgb(picture grey) {
    picture p;
    p.allocate(grey.height, grey.width, 3);
    for (std::size_t i = 0; i < grey.pixels.size(); ++i)
        std::fill_n(p.pixels.begin() + static_cast<std::ptrdiff_t>(3 * i), 3, grey.pixels[i]);
    return p;
}

/// For a new place along one axis: the first old place that it covers, and the weight of each old place from there on.
struct mean_of {
    std::size_t first = 0;
    std::vector<double> weights;
};
std::vector<mean_of> bilinear(std::size_t from, std::size_t to) {
    const double scale = static_cast<double>(from) / static_cast<double>(to), reach = std::max(scale, 1.0);
    std::vector<mean_of> all(to);
    for (std::size_t i = 0; i < to; ++i) {
        const double center = (static_cast<double>(i) + 0.5) * scale;
        all[i].first = static_cast<std::size_t>(std::max(0.0, std::floor(center - reach + 0.5)));
        const auto end = static_cast<std::size_t>(std::min(static_cast<double>(from), std::floor(center + reach + 0.5)));
        double sum = 0;
        for (std::size_t k = all[i].first; k < end; ++k) {
            all[i].weights.push_back(std::max(0.0, 1 - std::abs((static_cast<double>(k) + 0.5 - center) / reach)));
            sum += all[i].weights.back();
        }
        for (double& w : all[i].weights) w /= sum;
    }
    return all;
}

picture resized(const picture& from, image_size size) {
    picture to;
    if (!to.allocate(static_cast<std::size_t>(size.height), static_cast<std::size_t>(size.width), from.channels))
        throw error("resize: " + to.problem);
    const auto rows = bilinear(from.height, to.height), columns = bilinear(from.width, to.width);
    const std::size_t c = from.channels;
    std::vector<double> wide(from.height * to.width * c);  // the new width, the old height
    for (std::size_t y = 0; y < from.height; ++y)
        for (std::size_t x = 0; x < to.width; ++x)
            for (std::size_t k = 0; k < columns[x].weights.size(); ++k)
                for (std::size_t i = 0; i < c; ++i)
                    wide[(y * to.width + x) * c + i] +=
                        columns[x].weights[k] * from.pixels[(y * from.width + columns[x].first + k) * c + i];
    for (std::size_t y = 0; y < to.height; ++y)
        for (std::size_t x = 0; x < to.width * c; ++x) {
            double sum = 0;
            for (std::size_t k = 0; k < rows[y].weights.size(); ++k)
                sum += rows[y].weights[k] * wide[(rows[y].first + k) * to.width * c + x];
            to.pixels[y * to.width * c + x] = static_cast<std::uint8_t>(std::clamp(std::floor(sum + 0.5), 0.0, 255.0));
        }
    return to;
}

/// What stands in a folder, each list in natural order.
struct folder_content {
    std::vector<fs::path> images, folders, others;
};
folder_content content_of(const fs::path& folder) {
    folder_content all;
    std::error_code failed;
    for (const auto& e : fs::directory_iterator(folder, failed))
        (e.is_directory(failed) ? all.folders : is_image_name(e.path()) ? all.images : all.others).push_back(e.path());
    if (failed) throw error("cannot read the folder '" + folder.string() + "': " + failed.message());
    for (auto* list : {&all.images, &all.folders, &all.others})
        std::ranges::sort(*list, [](const fs::path& a, const fs::path& b) { return natural_less(a.filename(), b.filename()); });
    return all;
}

}  // namespace

bool is_image_name(const fs::path& file) {
    const std::string kind = ending(file);
    return kind == ".png" || kind == ".jpg" || kind == ".jpeg";
}

void refuse_other_image(const fs::path& file) {
    const std::string kind = ending(file);
    for (const char* other :
         {".bmp", ".webp", ".gif", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2", ".jxl", ".ppm", ".pgm", ".pnm", ".tga", ".ico"})
        if (kind == other)
            throw error("'" + file.string() + "' is an image that qk does not read (" + kind + "): convert it to .png or .jpg");
}

image_folder list_images(const fs::path& folder) {
    image_folder all;
    const folder_content top = content_of(folder);
    const auto pass_over = [&](const std::vector<fs::path>& list) {
        for (const fs::path& f : list) refuse_other_image(f);
        all.passed_over.insert(all.passed_over.end(), list.begin(), list.end());
    };
    pass_over(top.others);
    if (!top.images.empty()) {
        all.files = top.images;
        pass_over(top.folders);
        return all;
    }
    for (const fs::path& f : top.folders) {
        const folder_content inner = content_of(f);
        pass_over(inner.others), pass_over(inner.folders);
        if (inner.images.empty()) {
            if (inner.others.empty() && inner.folders.empty()) pass_over({f});
            continue;
        }
        all.classes.insert(all.classes.end(), inner.images.size(), static_cast<std::int64_t>(all.class_names.size()));
        all.class_names.push_back(f.filename().string());
        all.files.insert(all.files.end(), inner.images.begin(), inner.images.end());
    }
    return all;
}

tensor read_image(const fs::path& file) { return read_images({file}); }

tensor read_images(const std::vector<fs::path>& files, image_size size) {
    std::vector<picture> all;
    std::size_t channels = 1;
    for (const fs::path& file : files) {
        picture p = decode(file);
        if (size.height > 0) p = resized(p, size);
        if (!all.empty() && (p.height != all[0].height || p.width != all[0].width))
            throw error("image '" + file.string() + "' is " + std::to_string(p.height) + " x " + std::to_string(p.width) +
                        " (height x width), '" + files[0].string() + "' " + std::to_string(all[0].height) + " x " +
                        std::to_string(all[0].width) + ": give images of one size, or --preprocess resize=HxW");
        channels = std::max(channels, p.channels);
        p.rows = {};
        all.push_back(std::move(p));
    }
    if (all.empty()) throw error("there are no images to read");
    const auto whole = [](std::size_t n) { return static_cast<std::int64_t>(n); };
    tensor t(data_type::uint8, {whole(all.size()), whole(all[0].height), whole(all[0].width), whole(channels)});
    std::byte* at = t.bytes();
    for (picture& p : all) {
        if (p.channels < channels) p = as_rgb(std::move(p));
        std::memcpy(at, p.pixels.data(), p.pixels.size());
        at += p.pixels.size();
        p.pixels = {};
    }
    return t;
}

}  // namespace qk::graph
