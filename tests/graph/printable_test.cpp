// SPDX-License-Identifier: Apache-2.0
// printable() makes text from files safe to show: without control characters, always UTF-8, and unchanged when it is applied twice.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "build_model.hpp"
#include "graph/model/utf8_names.hpp"
#include "qk/graph/base/printable.hpp"
#include "qk/graph/files/json_text.hpp"
#include "qk/graph/report/html.hpp"

using namespace qk::graph;

TEST_CASE("what a terminal obeys is shown instead") {
    CHECK(printable("conv1.weight") == "conv1.weight");
    CHECK(printable("\x1b[31mred\x1b[0m") == "\\x1b[31mred\\x1b[0m");
    CHECK(printable("a\nb\tc\rd\x7f") == "a\\nb\\tc\\rd\\x7f");
    CHECK(printable(std::string_view("nul\0end", 7)) == "nul\\x00end");
    CHECK(printable("\xc2\x9b") == "\\u009b");                   // the control sequence introducer in one character
    CHECK(printable("\xe2\x80\xae") == "\\u202e");               // right-to-left override
    CHECK(printable("a\nb\x1b", "\n") == "a\nb\\x1b");           // line ends are allowed here
    CHECK(printable("größe 層 😀 \\x1b") == "größe 層 😀 \\x1b");  // text in any language stays, and so does text that looks escaped
}

TEST_CASE("bytes that are not UTF-8 are shown as bytes") {
    CHECK(printable("w\xff\xfe") == "w\\xff\\xfe");
    CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");               // an overlong encoding
    CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");      // a surrogate
    CHECK(printable("\xf4\x90\x80\x80").starts_with("\\xf4"));  // above U+10FFFF
    CHECK(printable("cut \xe5\xb1") == "cut \\xe5\\xb1");
    CHECK(is_utf8("größe 層 😀"));
    CHECK_FALSE(is_utf8("\xff"));
    CHECK(as_utf8("\x1b\xff") == "\x1b\\xff");
}

TEST_CASE("every pair of bytes comes out printable, and the second time unchanged") {
    for (int a = 0; a < 256; ++a)
        for (int b = 0; b < 256; ++b) {
            const std::string text{static_cast<char>(a), static_cast<char>(b)};
            const std::string once = printable(text);
            bool safe = is_utf8(once);
            for (std::string_view rest = once; safe && !rest.empty(); rest.remove_prefix(first_code_point(rest).length))
                safe = !is_control(first_code_point(rest).value);
            if (!safe || printable(once) != once) FAIL("bytes ", a, " ", b);
        }
}

TEST_CASE("JSON is UTF-8, and holds no control character") {
    const nlohmann::ordered_json json{{"bad\xff", "\x1b[31m \xc2\x9b \xe2\x80\xae \xf3\xa0\x80\x81 \x7f"}};
    const std::string text = json_text(json);
    CHECK(is_utf8(text));
    CHECK(printable(text) == text);
    const auto back = nlohmann::json::parse(text);
    CHECK(back.begin().value() == "\x1b[31m \xc2\x9b \xe2\x80\xae \xf3\xa0\x80\x81 \x7f");  // reads back as the same string
}

TEST_CASE("messages leave out the middle of what is long, and what is not stays") {
    const std::string plain = "file.onnx: node 'a' (Conv): input 'b' is made by no node";
    CHECK(shortened(plain) == plain);
    const std::string cut = shortened("node '" + std::string(100000, 'n') + "' is\nthere twice");
    CHECK(cut.size() < 260);
    CHECK(cut.starts_with("node 'nnn"));
    CHECK(cut.find("...[") != std::string::npos);
    CHECK(cut.ends_with("nnn' is\nthere twice"));
    std::string words;
    for (int i = 0; i < 50000; ++i) words += "a ";
    CHECK(shortened(words).size() < 4000);
    std::string wide = "x";
    for (int i = 0; i < 1000; ++i) wide += "\u00e9";
    CHECK(is_utf8(shortened(wide)));
    CHECK(is_utf8(shortened(wide + "y")));
}

TEST_CASE("pages show control characters, too") {
    html_page page("\x1b[31m");
    page.code("one\ntwo\x1b").paragraph("a\nb\xff");
    const std::string text = page.text();
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find("\\x1b[31m") != std::string::npos);
    CHECK(text.find("one\ntwo\\x1b") != std::string::npos);
    CHECK(text.find("a\\nb\\xff") != std::string::npos);
    CHECK(is_utf8(text));
}

TEST_CASE("a model's names that are not UTF-8 become UTF-8, all different, wherever they stand") {
    qk_test::builder b;
    b.input("x", {1, 2}).output("y\xff", {1, 2}).constant("w\xff", {2}, {1, 2}).constant("w\\xff", {2}, {3, 4});
    b.node("Add", {"x", "w\xff"}, {"t\xfe"}, "n\xff");
    b.node("Add", {"t\xfe", "w\\xff"}, {"y\xff"}, "n\x1b");
    onnx::ModelProto copy = b.m;
    CHECK(names_to_utf8(copy) == 4);
    CHECK(names_to_utf8(copy) == 0);
    const model m = b.model();
    CHECK(m.outputs().at(0).name == "y\\xff");
    CHECK(m.graph().node(0).name() == "n\\xff");
    CHECK(m.graph().node(1).name() == "n\x1b");  // valid UTF-8 stays
    REQUIRE(m.is_constant("w\\xff"));
    CHECK(m.constant("w\\xff").as<float>()[0] == 3);  // the constant that had this name keeps it
    CHECK(m.constant("w\\xff_").as<float>()[0] == 1);
    CHECK(m.graph().node(0).input(1) == "w\\xff_");
}
