// SPDX-License-Identifier: Apache-2.0
// .npy and .npz: qk reads what NumPy writes, writes what NumPy would write, and reports every malformed file with a clear sentence.
#include "qk/graph/files/npy.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "qk/graph/files/file.hpp"
#include "qk/graph/files/zip.hpp"

using namespace qk::graph;
namespace fs = std::filesystem;

namespace {

std::string npy(std::string header, const std::string& data, char version = 1) {
    header.push_back('\n');
    std::string s("\x93NUMPY", 6);
    s.push_back(version);
    s.push_back('\0');
    s.push_back(static_cast<char>(header.size()));
    s.push_back(static_cast<char>(header.size() >> 8));
    if (version > 1) s.append(2, '\0');
    return s + header + data;
}

std::string message(const std::string& bytes) {
    try {
        parse_npy(bytes, "x.npy");
    } catch (const error& e) {
        return e.what();
    }
    return "";
}

fs::path scratch() {
    const fs::path folder = fs::temp_directory_path() / "qk_npy_test";
    fs::create_directories(folder);
    return folder;
}

}  // namespace

TEST_CASE("what is written is read back, for every type that NumPy has") {
    for (int code = 1; code <= 15; ++code) {
        const auto type = static_cast<data_type>(code);
        if (type == data_type::string) continue;
        tensor t(type, {3, 0});
        CHECK(parse_npy(to_npy(t), "x").shape() == dims{3, 0});
        t = tensor(type, {2, 3});
        for (std::size_t i = 0; i < t.size_bytes(); ++i) t.bytes()[i] = std::byte(type == data_type::boolean ? i & 1 : i * 37 + 5);
        const tensor back = parse_npy(to_npy(t), "x");
        CHECK(back.type() == type);
        CHECK(back.shape() == t.shape());
        CHECK(std::memcmp(back.bytes(), t.bytes(), t.size_bytes()) == 0);
    }
    CHECK(parse_npy(to_npy(tensor(data_type::float64, {})), "x").rank() == 0);
    CHECK(to_npy(tensor(data_type::float32, {5})).find("'shape': (5,), }") != std::string::npos);
    CHECK((to_npy(tensor(data_type::uint8, {1})).size() - 1) % 64 == 0);
}

TEST_CASE("types that NumPy lacks are written as their values") {
    tensor b(data_type::bfloat16, {2});
    b.as<brain>()[0].bits = 0x3fc0, b.as<brain>()[1].bits = 0xff80;
    CHECK(parse_npy(to_npy(b), "x").as<float>()[0] == 1.5f);
    CHECK(parse_npy(to_npy(b), "x").as<float>()[1] == -HUGE_VALF);
    tensor e(data_type::float8e4m3fn, {3});
    e.as<std::uint8_t>()[0] = 0x7e, e.as<std::uint8_t>()[1] = 0x01, e.as<std::uint8_t>()[2] = 0xff;
    const tensor v = parse_npy(to_npy(e), "x");
    CHECK(v.as<float>()[0] == 448.0f);
    CHECK(v.as<float>()[1] == 0x1p-9f);
    CHECK(std::isnan(v.as<float>()[2]));
    tensor i(data_type::int4, {1});
    i.as<std::int8_t>()[0] = -8;
    CHECK(parse_npy(to_npy(i), "x").as<std::int8_t>()[0] == -8);
}

TEST_CASE("orders, versions and spellings") {
    const std::string six("\1\2\3\4\5\6", 6);
    const tensor c = parse_npy(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", six), "x");
    const std::uint8_t expected[] = {1, 3, 5, 2, 4, 6};
    CHECK(std::equal(expected, expected + 6, c.as<std::uint8_t>().begin()));
    const tensor swapped = parse_npy(npy("{'descr': '>i2', 'fortran_order': False, 'shape': (3,), }", six), "x");
    CHECK(swapped.as<std::int16_t>()[2] == 0x0506);
    for (const char version : {char{2}, char{3}})
        CHECK(parse_npy(npy("{\"shape\":(6,),\"descr\":\"|i1\",\"fortran_order\":False}", six, version), "x").size() == 6);
    CHECK(parse_npy(npy("{'descr': '<u2', 'fortran_order': False, 'shape': (3L,)}", six), "x").size() == 3);
}

TEST_CASE("every malformed file is an error that names it") {
    const std::string good = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", std::string(8, 'a'));
    CHECK(message(good).empty());
    for (std::size_t n = 0; n < good.size(); ++n) {
        CAPTURE(n);
        CHECK(message(good.substr(0, n)).starts_with("x.npy: "));
    }
    CHECK(message(good + "x").starts_with("x.npy: holds 9 bytes"));
    CHECK(message(npy("{'descr': 'O', 'fortran_order': False, 'shape': (2,), }", "")).find("'O'") != std::string::npos);
    CHECK(message(npy("{'descr': '<V2', 'fortran_order': False, 'shape': (1,), }", "aa")).find("'<V2'") != std::string::npos);
    CHECK(message(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "")).find("structured") != std::string::npos);
    for (const char* shape :
         {"(-1,)", "(4611686018427387904, 4611686018427387904)", "(99999999999999999999,)", "(2.0,)", "(2", "2", "(1099511627776,)"})
        CHECK(message(npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + std::string(shape) + ", }", "")).starts_with("x.npy: "));
    CHECK(message(npy("{'descr': '<f4', 'shape': (2,), }", "")).find("lacks") != std::string::npos);
    CHECK(message(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0,), 'more': 1}", "")).find("'more'") != std::string::npos);

    std::mt19937 random(7);
    for (int i = 0; i < 20000; ++i) {  // changes one or two bytes; reading must succeed or throw an error, never crash
        std::string bytes = good;
        for (int k = 0; k < 2; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
        message(bytes);
    }
}

TEST_CASE("archives") {
    const fs::path file = fs::path(QK_SOURCE_DIR) / "tests/data/deflated.npz";
    const auto arrays = read_npz(file);
    REQUIRE(arrays.size() == 3);
    CHECK(arrays[0].name == "ramp");
    CHECK(arrays[0].value.as<float>()[599] == 599.0f);
    CHECK(arrays[1].value.type() == data_type::boolean);
    CHECK(arrays[2].value.as<std::int16_t>()[23] == 23);

    const fs::path copy = scratch() / "copy.npz";
    write_npz(copy, arrays);
    const auto again = read_npz(copy);
    REQUIRE(again.size() == 3);
    CHECK(std::memcmp(again[2].value.bytes(), arrays[2].value.bytes(), 48) == 0);

    const std::string bytes = read_file(file);
    for (std::size_t n = 0; n < bytes.size(); n += 7) CHECK_THROWS_AS(unzip(bytes.substr(0, n), "x"), error);
    std::mt19937 random(7);
    for (int i = 0; i < 5000; ++i) {
        std::string damaged = bytes;
        damaged[random() % damaged.size()] = static_cast<char>(random());
        try {
            unzip(damaged, "x");
        } catch (const error&) {
        }
    }
}

TEST_CASE("what cannot be read is named") {
    CHECK_THROWS_AS(read_file(scratch()), error);
    CHECK_THROWS_WITH(read_npy("no/such.npy"), "cannot read 'no/such.npy': No such file or directory");
    const fs::path file = scratch() / "out.npy";
    write_npy(file, make_tensor<float>({2}, std::vector<float>{1, 2}));
    CHECK(read_npy(file).as<float>()[1] == 2);
}
