// SPDX-License-Identifier: Apache-2.0
// Images as data: how each kind of PNG and a JPEG decode, folders of images, and errors for bad files.
#include "qk/graph/files/images.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <iostream>

#include "qk/graph/evaluate/inputs.hpp"
#include "write_png.hpp"

using namespace qk::graph;
using qk_test::png;
using qk_test::save;
namespace fs = std::filesystem;

namespace {

/// A JPEG of 16 x 8 pixels: the left half is (200, 40, 30), the right half (20, 60, 220).
const unsigned char jpeg[] = {
    0xff, 0xd8, 0xff, 0xe0, 0x00, 0x10, 0x4a, 0x46, 0x49, 0x46, 0x00, 0x01, 0x01, 0x00, 0x00, 0x01, 0x00, 0x01, 0x00, 0x00, 0xff,
    0xdb, 0x00, 0x43, 0x00, 0x03, 0x02, 0x02, 0x03, 0x02, 0x02, 0x03, 0x03, 0x03, 0x03, 0x04, 0x03, 0x03, 0x04, 0x05, 0x08, 0x05,
    0x05, 0x04, 0x04, 0x05, 0x0a, 0x07, 0x07, 0x06, 0x08, 0x0c, 0x0a, 0x0c, 0x0c, 0x0b, 0x0a, 0x0b, 0x0b, 0x0d, 0x0e, 0x12, 0x10,
    0x0d, 0x0e, 0x11, 0x0e, 0x0b, 0x0b, 0x10, 0x16, 0x10, 0x11, 0x13, 0x14, 0x15, 0x15, 0x15, 0x0c, 0x0f, 0x17, 0x18, 0x16, 0x14,
    0x18, 0x12, 0x14, 0x15, 0x14, 0xff, 0xdb, 0x00, 0x43, 0x01, 0x03, 0x04, 0x04, 0x05, 0x04, 0x05, 0x09, 0x05, 0x05, 0x09, 0x14,
    0x0d, 0x0b, 0x0d, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14,
    0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14,
    0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0x14, 0xff, 0xc0, 0x00, 0x11, 0x08, 0x00, 0x08, 0x00, 0x10, 0x03,
    0x01, 0x11, 0x00, 0x02, 0x11, 0x01, 0x03, 0x11, 0x01, 0xff, 0xc4, 0x00, 0x15, 0x00, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x06, 0x07, 0xff, 0xc4, 0x00, 0x14, 0x10, 0x01, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xc4, 0x00, 0x16, 0x01, 0x01, 0x01, 0x01, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x09, 0x07, 0x08, 0xff, 0xc4, 0x00, 0x14, 0x11, 0x01,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xda, 0x00, 0x0c, 0x03,
    0x01, 0x00, 0x02, 0x11, 0x03, 0x11, 0x00, 0x3f, 0x00, 0x89, 0x25, 0x4d, 0xb0, 0x0e, 0x4f, 0x46, 0x7b, 0xff, 0xd9};

std::string place(const std::string& name) {
    static const fs::path folder = [] {
        const fs::path f = fs::temp_directory_path() / "qk_images_test";
        fs::remove_all(f);
        fs::create_directories(f);
        return f;
    }();
    return (folder / name).string();
}
std::vector<int> pixels(const tensor& t) {
    std::vector<int> v;
    for (const std::uint8_t b : t.as<std::uint8_t>()) v.push_back(b);
    return v;
}
template <class Call>
std::string message(const Call& call) {
    try {
        call();
    } catch (const error& e) {
        return e.what();
    }
    return "";
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool reads(const char* library, const std::string& bytes) {
    save(place("probe"), bytes);
    if (!has(message([] { read_image(place("probe")); }), "built without")) return true;
    std::cout << "skipped: qk was built without " << library << "\n";
    return false;
}

}  // namespace

TEST_CASE("every kind of PNG becomes bytes, grey or RGB") {
    if (!reads("libpng", png(1, {"a"}, 0))) return;
    const auto read = [](const std::string& bytes) {
        save(place("one.png"), bytes);
        return read_image(place("one.png"));
    };
    const tensor grey = read(png(3, {"\x01\x02\x03", "\x04\x05\xff"}, 0));
    CHECK(grey.type() == data_type::uint8);
    CHECK(grey.shape() == dims{1, 2, 3, 1});
    CHECK(pixels(grey) == std::vector<int>{1, 2, 3, 4, 5, 255});
    const tensor color = read(png(2, {"\x01\x02\x03\x04\x05\x06"}, 2));
    CHECK(color.shape() == dims{1, 1, 2, 3});
    CHECK(pixels(color) == std::vector<int>{1, 2, 3, 4, 5, 6});
    CHECK(pixels(read(png(1, {"\x01\x02\x03\x80"}, 6))) == std::vector<int>{1, 2, 3});  // alpha is dropped
    CHECK(pixels(read(png(1, {"\x07\x10"}, 4))) == std::vector<int>{7});
    CHECK(pixels(read(png(2, {std::string("\x12\xff\x34\x00", 4)}, 0, 16))) == std::vector<int>{0x12, 0x34});  // the upper byte is kept
    CHECK(pixels(read(png(8, {"\xa0"}, 0, 1))) == std::vector<int>{255, 0, 255, 0, 0, 0, 0, 0});               // one bit a pixel
    CHECK(pixels(read(png(2, {std::string("\x01\x00", 2)}, 3, 8, "\x0a\x0b\x0c\x14\x15\x16"))) == std::vector<int>{20, 21, 22, 10, 11, 12});
}

TEST_CASE("JPEG") {
    const std::string bytes(reinterpret_cast<const char*>(jpeg), sizeof jpeg);
    if (!reads("libjpeg", bytes)) return;
    save(place("two.JPEG"), bytes);
    const tensor t = read_image(place("two.JPEG"));
    REQUIRE(t.shape() == dims{1, 8, 16, 3});
    const int expected[2][3] = {{200, 40, 30}, {20, 60, 220}};
    for (std::size_t i = 0; i < t.size(); ++i) CHECK(std::abs(int(t.as<std::uint8_t>()[i]) - expected[i / 3 % 16 / 8][i % 3]) <= 3);
    save(place("cut.jpg"), bytes.substr(0, bytes.size() - 20));
    CHECK(has(message([] { read_image(place("cut.jpg")); }), "cut.jpg"));
}

TEST_CASE("a folder is samples in natural order, of one size; grey ones become RGB beside RGB") {
    if (!reads("libpng", png(1, {"a"}, 0))) return;
    fs::create_directories(place("flat"));
    save(place("flat/i10.png"), png(2, {"\x0a\x0a"}, 0));
    save(place("flat/i9.png"), png(2, {"\x09\x09\x09\x09\x09\x09"}, 2));
    save(place("flat/notes.txt"), "no image");
    const std::vector<named_tensor> found = read_tensors(place("flat"));
    REQUIRE(found.size() == 1);
    CHECK(found[0].value.shape() == dims{2, 1, 2, 3});
    CHECK(pixels(found[0].value) == std::vector<int>{9, 9, 9, 9, 9, 9, 10, 10, 10, 10, 10, 10});
    save(place("flat/i11.png"), png(1, {"\x0b", "\x0b"}, 0));
    const std::string why = message([] { read_tensors(place("flat")); });
    CHECK(has(why, "i11.png' is 2 x 1"));
    CHECK(has(why, "i9.png' 1 x 2"));
    CHECK(has(why, "resize=HxW"));
    CHECK(read_tensors(place("flat"), {2, 2})[0].value.shape() == dims{3, 2, 2, 3});
}

TEST_CASE("sub-folders are classes") {
    if (!reads("libpng", png(1, {"a"}, 0))) return;
    for (const char* name : {"classes/c2", "classes/c10", "classes/empty"}) fs::create_directories(place(name));
    save(place("classes/c10/a.png"), png(1, {"\x0a"}, 0));
    save(place("classes/c2/b.png"), png(1, {"\x02"}, 0));
    save(place("classes/c2/a.png"), png(1, {"\x01"}, 0));
    const image_folder all = list_images(place("classes"));
    CHECK(all.class_names == std::vector<std::string>{"c2", "c10"});
    CHECK(all.classes == std::vector<std::int64_t>{0, 0, 1});
    CHECK(pixels(read_images(all.files)) == std::vector<int>{1, 2, 10});
}

TEST_CASE("resizing: each new pixel is the mean of what it covers") {
    if (!reads("libpng", png(1, {"a"}, 0))) return;
    save(place("r.png"), png(4, {"\x10\x10\x50\x50", "\x10\x10\x50\x50"}, 0));
    CHECK(pixels(read_images({place("r.png")}, {2, 4})) == std::vector<int>{16, 16, 80, 80, 16, 16, 80, 80});  // unchanged size
    // The filter is a triangle four pixels wide. Over 16 16 80 80 it gives (3 16 + 3 16 + 1 80) / 7, since its first tap lies outside.
    CHECK(pixels(read_images({place("r.png")}, {1, 2})) == std::vector<int>{25, 71});
    CHECK(pixels(read_images({place("r.png")}, {1, 8})) == std::vector<int>{16, 16, 16, 32, 64, 80, 80, 80});
}

TEST_CASE("what is no whole image is an error that names it") {
    if (!reads("libpng", png(1, {"a"}, 0))) return;
    const std::string good = png(3, {"\x01\x02\x03", "\x04\x05\x06"}, 0);
    for (std::size_t size = 0; size + 12 < good.size(); size += 3) {  // any cut before the last chunk, IEND, which holds no data
        save(place("bad.png"), good.substr(0, size));
        CHECK(has(message([] { read_image(place("bad.png")); }), "bad.png"));
    }
    for (std::size_t at = 16; at < good.size() - 12; ++at) {
        std::string damaged = good;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
        save(place("bad.png"), damaged);
        CHECK(has(message([] { read_image(place("bad.png")); }), "bad.png"));  // a checksum covers each byte
    }
    CHECK(has(message([] { read_image(place("missing.png")); }), "missing.png"));
}
