// SPDX-License-Identifier: Apache-2.0
// Outputs appear together or not at all, and never replace an input.
#include <doctest/doctest.h>

#include <sys/file.h>
#include <sys/stat.h>

#include "../graph/build_model.hpp"
#include "qk/graph/base/error.hpp"
#include "qk/graph/files/output_set.hpp"
#include "qk/graph/model/model_files.hpp"
#include "run_tool.hpp"

using namespace qk::graph;
namespace fs = std::filesystem;
using qk_test::content;
using qk_test::scratch;

namespace {

/// Returns the error's message; empty if there is none.
template <class F>
std::string said(const F& f) {
    try {
        f();
    } catch (const error& e) {
        return e.what();
    }
    return {};
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
void put(const std::string& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

}  // namespace

TEST_CASE("all outputs appear at once") {
    const scratch place;
    put(place("b"), "old");
    {
        output_set files;
        files.output("-o", place("a")).output("--b", place("b"));
        files.write(place("a"), "new a");
        files.write(place("b"), "new b");
        CHECK(files.bytes(place("a")) == 5);
        CHECK_FALSE(fs::exists(place("a")));
        CHECK(content(place("b")) == "old");
        files.commit();
    }
    CHECK(content(place("a")) == "new a");
    CHECK(content(place("b")) == "new b");
    CHECK(place.files() == 2);
}

TEST_CASE("without commit nothing is left, folders included") {
    const scratch place;
    {
        output_set files;
        files.folder("--out", place("x/y/"));
        files.output("--out", place("x/y/a"));
        CHECK_FALSE(fs::exists(place("x")));
        files.write(place("x/y/a"), "a");
        CHECK(fs::exists(place("x/y")));
    }
    CHECK(place.files() == 0);
    put(place("file"), "");
    CHECK(has(said([&] { output_set().folder("--out", place("file")); }), "is a file"));
    CHECK(has(said([&] { output_set().folder("--out", place("file/below")); }), "cannot make the folder"));
}

TEST_CASE("a rename that fails in the middle is taken back") {
    const scratch place;
    put(place("a"), "old a");
    output_set files;
    files.output("-a", place("a")).output("-b", place("b")).output("-c", place("c"));
    for (const char* name : {"a", "b", "c"}) files.write(place(name), "new");
    fs::create_directory(place("c"));
    put(place("c/in the way"), "");
    const std::string sentence = said([&] { files.commit(); });
    CHECK(has(sentence, place("c")));
    CHECK(has(sentence, "nothing is written"));
    CHECK(content(place("a")) == "old a");
    CHECK_FALSE(fs::exists(place("b")));
}

TEST_CASE("what went into a device cannot be taken back, and the error says so") {
    const scratch place;
    output_set files;
    files.output("-o", "/dev/null").output("-b", place("b"));
    files.write("/dev/null", "gone");
    files.write(place("b"), "b");
    fs::create_directory(place("b"));
    put(place("b/in the way"), "");
    CHECK(has(said([&] { files.commit(); }), "cannot be taken back: /dev/null"));
    CHECK(fs::is_character_file("/dev/null"));

    output_set full;
    full.output("-a", place("a")).output("-o", "/dev/full");
    full.write(place("a"), "a");
    full.write("/dev/full", "more than fits");
    CHECK(has(said([&] { full.commit(); }), "/dev/full"));
    CHECK_FALSE(fs::exists(place("a")));
}

TEST_CASE("an output in the place of an input or of another output is an error, by whatever name") {
    const scratch place;
    put(place("in"), "input");
    fs::create_symlink("in", place("link"));
    fs::create_hard_link(place("in"), place("hard"));
    fs::create_directory(place("d"));
    for (const std::string& name : {place("in"), place("./in"), place("d/../in"), place("link"), place("hard")}) {
        CAPTURE(name);
        CHECK(has(said([&] { output_set().input("MODEL", place("in")).output("-o", name); }), "would replace MODEL"));
        CHECK(has(said([&] { output_set().output("-o", name).input("MODEL", place("in")); }), "would replace MODEL"));  // order is free
        CHECK(has(said([&] { output_set().output("-a", place("in")).output("-b", name); }), "two outputs"));
        CHECK(has(said([&] { output_set().input("MODEL", place("in")).appended("--cache", name); }), "would replace MODEL"));
        CHECK(has(said([&] { output_set().appended("--cache", place("in")).output("-o", name); }), "would replace --cache"));
        CHECK(said([&] { output_set(true).input("MODEL", place("in")).output("-o", name); }).empty());
        CHECK(has(said([&] { output_set(false, false).input("MODEL", place("in")).output("-o", name); }), "would replace"));
    }
    CHECK(has(said([&] { output_set().output("-a", place("new")).output("-b", place("d/../new")); }), "two outputs"));
    CHECK(said([&] { output_set().input("x", "/dev/null").output("-a", "/dev/null").output("-b", "/dev/null"); }).empty());
    CHECK(said([&] { output_set().input("MODEL", "").output("-o", "").output("-o", ""); }).empty());
    // A folder as input protects the files that are read from it, not the others.
    put(place("d/x.npy"), "");
    put(place("d/notes.txt"), "");
    CHECK(has(said([&] { output_set().input("--inputs", place("d")).output("-o", place("d/x.npy")); }), "would replace --inputs"));
    CHECK(said([&] { output_set().input("--inputs", place("d")).output("-o", place("d/notes.txt")); }).empty());
    CHECK(content(place("in")) == "input");
}

TEST_CASE("a link is written where it leads, and permissions stay") {
    const scratch place;
    put(place("real"), "old");
    ::chmod(place("real").c_str(), 0640);
    fs::create_symlink("real", place("link"));
    write_file(place("link"), "new");
    CHECK(fs::is_symlink(place("link")));
    CHECK(content(place("real")) == "new");
    struct ::stat found {};
    REQUIRE(::stat(place("real").c_str(), &found) == 0);
    CHECK((found.st_mode & 0777u) == 0640u);
    CHECK(place.files() == 2);
}

TEST_CASE("what a killed writer left goes away with the next one, what a living one writes does not") {
    const scratch place;
    put(place(".a.qk-999999-0.part"), "left");
    put(place(".a.qk-note.part"), "somebody's own");
    put(place(".ab.qk-1-0.part"), "of another target");
    const pending_file living(place("a"));
    CHECK_FALSE(fs::exists(place(".a.qk-999999-0.part")));
    write_file(place("a"), "a");
    CHECK(fs::exists(living.temporary()));
    CHECK(fs::exists(place(".a.qk-note.part")));
    CHECK(fs::exists(place(".ab.qk-1-0.part")));
    const std::string longest(250, 'n');
    write_file(place(longest), "n");
    CHECK(content(place(longest)) == "n");
}

TEST_CASE("a model too large for one file takes its data along: both or none, and not over what is read") {
    const scratch place;
    qk_test::builder b;
    std::vector<float> values(2048, 1.5f);
    b.input("x", {2048}).output("y", {2048}).constant("w", {2048}, values).node("Add", {"x", "w"}, {"y"}, "n");
    const model m = b.model();
    {
        output_set files;
        save(m, files, place("m.onnx"), 4096);
        CHECK(place.files() == 2);  // temporary files beside the outputs' places
        CHECK_FALSE(fs::exists(place("m.onnx")));
    }
    CHECK(place.files() == 0);
    {
        output_set files;
        save(m, files, place("m.onnx"), 4096);
        files.commit();
    }
    const model back = model::load(place("m.onnx"));
    CHECK(back.constant("w").as<float>()[2047] == 1.5f);
    const auto files_of_it = files_of_model(place("m.onnx")).all;
    REQUIRE(files_of_it.size() == 2);
    CHECK(fs::equivalent(files_of_it[1], place("m.onnx.data")));
    fs::rename(place("m.onnx.data"), place("n.onnx.data"));
    output_set other;
    other.input("MODEL", place("n.onnx.data"));
    CHECK(has(said([&] { save(m, other, place("n.onnx"), 4096); }), "n.onnx.data would replace MODEL"));
}
