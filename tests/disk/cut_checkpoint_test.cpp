// SPDX-License-Identifier: Apache-2.0
// A checkpoint that another process cuts short after it was opened: one sentence from everything that reads it, and no file.
#include <doctest/doctest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "../tool/run_tool.hpp"
#include "qk/checkpoint.hpp"

namespace fs = std::filesystem;
namespace checkpoint = qk::checkpoint;
using qk_test::content;
using qk_test::scratch;

namespace {

constexpr std::size_t rows = 256, columns = 1024;

void make(const std::string& file, float value) {
    std::string data;
    nlohmann::json head;
    for (int k = 0; k < 4; ++k) {
        const std::vector<float> x(rows * columns, value + static_cast<float>(k));
        head["w" + std::to_string(k)] = {
            {"dtype", "F32"}, {"shape", {rows, columns}}, {"data_offsets", {data.size(), data.size() + 4 * x.size()}}};
        data.append(reinterpret_cast<const char*>(x.data()), 4 * x.size());
    }
    std::string text = head.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    const std::uint64_t length = text.size();
    std::ofstream(file, std::ios::binary) << std::string(reinterpret_cast<const char*>(&length), 8) << text << data;
}

std::string said(const std::function<void()>& f) {
    try {
        f();
    } catch (const checkpoint::error& e) {
        return e.what();
    }
    return {};
}

}  // namespace

TEST_CASE("a file that is cut short while it is in use") {
    const scratch place;
    const std::string file = place("m.safetensors"), other = place("o.safetensors");
    make(other, 1);
    const auto plain = [](const checkpoint::weight&) { return std::vector<float>(); };
    const std::vector<std::pair<const char*, std::function<void(const checkpoint::checkpoint&)>>> readers{
        {"decode", [](const auto& c) { c.decode(c.weights.back()); }},
        {"lint", [](const auto& c) { checkpoint::lint(c); }},
        {"compare", [&](const auto& c) { checkpoint::compare(checkpoint::open(other), c, [](const auto&) {}); }},
        {"measure", [&](const auto& c) { checkpoint::measure_formats(c, {"f16"}, plain); }},
        {"npz", [&](const auto& c) { checkpoint::write_npz(c, place("out.npz")); }},
        {"gguf",
         [&](const auto& c) {
             std::vector<std::string> notes;
             checkpoint::write(c, place("out.gguf"), {.format = "f16"}, notes);
         }},
        {"the same bytes",
         [&](const auto& c) {
             std::vector<std::string> notes;
             checkpoint::write(c, place("out.safetensors"), {}, notes);
         }},
        {"shards",
         [&](const auto& c) {
             std::vector<std::string> notes;
             checkpoint::write(c, place("out.safetensors"), {.shard_bytes = 1000}, notes);
         }},
        {"check", [](const auto& c) { c.check(); }}};
    for (const std::size_t left : {std::size_t{0}, std::size_t{5000}, std::size_t{3 << 20}})
        for (const auto& [name, read] : readers) {
            CAPTURE(name);
            CAPTURE(left);
            make(file, 1);
            const checkpoint::checkpoint c = checkpoint::open(file);
            fs::resize_file(file, left);
            CHECK(said([&] { read(c); }) == file + ": it was changed while it was in use");
            CHECK(place.files() == 2);
        }
    // Written anew in its place, with the same size.
    make(file, 1);
    const checkpoint::checkpoint c = checkpoint::open(file);
    make(file, 2);
    CHECK(said([&] { c.decode(c.weights[0]); }) == file + ": it was changed while it was in use");
    // The other one of a pair.
    make(file, 1);
    const checkpoint::checkpoint a = checkpoint::open(file), b = checkpoint::open(other);
    fs::resize_file(other, 5000);
    CHECK(said([&] { checkpoint::compare(a, b, [](const auto&) {}); }) == other + ": it was changed while it was in use");
}

TEST_CASE("a file that is read while nobody touches it is as it was") {
    const scratch place;
    make(place("m.safetensors"), 3);
    const checkpoint::checkpoint c = checkpoint::open(place("m.safetensors"));
    CHECK(c.decode(c.weights[1])[7] == 4);
    std::vector<std::string> notes;
    checkpoint::write(c, place("n.safetensors"), {}, notes);
    CHECK(content(place("n.safetensors")).size() == content(place("m.safetensors")).size());
    c.check();
}

TEST_CASE("files and what else is written get their names together") {
    const scratch place;
    make(place("m.safetensors"), 1);
    const checkpoint::checkpoint c = checkpoint::open(place("m.safetensors"));
    std::ofstream(place("s-00002-of-00004.gguf")) << "what stood there before";
    std::vector<std::string> notes;
    checkpoint::requests asked{.format = "f16", .shard_bytes = 1000};
    asked.put_others = [&] {
        CHECK(place.files() > 4);
        throw checkpoint::error("the others cannot be written");
    };
    CHECK(said([&] { checkpoint::write(c, place("s.gguf"), asked, notes); }).find("the others cannot be written") == 0);
    CHECK(place.files() == 2);
    CHECK(content(place("s-00002-of-00004.gguf")) == "what stood there before");
    // A part whose name cannot be taken.
    fs::remove(place("s-00002-of-00004.gguf"));
    asked.put_others = nullptr;
    const fs::path folder = place("s-00004-of-00004.gguf");
    asked.check_output = [&](const fs::path& name) {
        if (name == folder) fs::create_directories(folder / "in the way");
    };
    CHECK(said([&] { checkpoint::write(c, place("s.gguf"), asked, notes); }).find("it is a folder") != std::string::npos);
    CHECK(place.files() == 2);
}
