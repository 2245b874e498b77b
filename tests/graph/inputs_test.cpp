// SPDX-License-Identifier: Apache-2.0
// Which file is read for which input of a model.
#include "qk/graph/evaluate/inputs.hpp"

#include <doctest/doctest.h>

#include "build_model.hpp"
#include "qk/graph/files/atomic_file.hpp"

using namespace qk::graph;
namespace fs = std::filesystem;

namespace {

fs::path scratch() {
    static const fs::path folder = [] {
        const fs::path f = fs::temp_directory_path() / "qk_inputs_test";
        fs::remove_all(f);
        fs::create_directories(f);
        return f;
    }();
    return folder;
}
tensor one(float v) { return make_tensor<float>({1, 1}, std::vector<float>{v}); }

std::string message(const model& m, const std::vector<std::string>& arguments) {
    try {
        read_inputs(m, arguments);
    } catch (const error& e) {
        return e.what();
    }
    return "";
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

model pair() {
    qk_test::builder b;
    b.input("a/x", {-1, 1}).input("b", {-1, 1}).output("y", {-1, 1});
    b.node("Add", {"a/x", "b"}, {"y"});
    return b.model();
}
model single() {
    qk_test::builder b;
    b.input("x", {-1, 1}).output("y", {-1, 1});
    b.node("Relu", {"x"}, {"y"});
    return b.model();
}

}  // namespace

TEST_CASE("one input takes one file, or a folder of samples in natural order") {
    fs::create_directories(scratch() / "samples");
    write_npy(scratch() / "samples/s10.npy", one(10));
    write_npy(scratch() / "samples/s9.npy", one(9));
    write_npz(scratch() / "samples/s11.npz", {{"p", one(11)}, {"q", one(12)}});
    const tensor x = read_inputs(single(), {(scratch() / "samples").string()}).at("x");
    REQUIRE(x.shape() == dims{4, 1});
    for (std::size_t i = 0; i < 4; ++i) CHECK(x.as<float>()[i] == 9 + static_cast<float>(i));
    write_npy(scratch() / "odd=name.npy", one(1));
    CHECK(read_inputs(single(), {(scratch() / "odd=name.npy").string()}).size() == 1);
    CHECK(read_inputs(single(), {"x=" + (scratch() / "odd=name.npy").string()}).size() == 1);
    write_npy(scratch() / "samples/s12.npy", make_tensor<float>({1, 2}, std::vector<float>{1, 2}));
    CHECK(has(message(single(), {(scratch() / "samples").string()}), "cannot be joined"));
}

TEST_CASE("several inputs go by name, else in order") {
    write_npz(scratch() / "both.npz", {{"b", one(2)}, {"a_x", one(1)}});
    CHECK(read_inputs(pair(), {(scratch() / "both.npz").string()}).at("a/x").as<float>()[0] == 1);
    write_npy(scratch() / "1.npy", one(1));
    write_npy(scratch() / "2.npy", one(2));
    CHECK(read_inputs(pair(), {"b=" + (scratch() / "2.npy").string(), (scratch() / "1.npy").string()}).at("a/x").as<float>()[0] == 1);
    CHECK(read_inputs(pair(), {(scratch() / "1.npy").string(), (scratch() / "2.npy").string()}).at("b").as<float>()[0] == 2);

    const fs::path data = scratch() / "test_data_set_0";
    fs::create_directories(data);
    for (const char* name : {"input_0", "input_1", "output_0"}) {
        onnx::TensorProto p;
        to_proto(one(static_cast<float>(name[6] - '0')), "", p);
        write_file(data / (std::string(name) + ".pb"), p.SerializeAsString());
    }
    CHECK(read_inputs(pair(), {data.string()}).at("b").as<float>()[0] == 1);
}

TEST_CASE("what does not fit is named") {
    const std::string file = (scratch() / "1.npy").string();
    CHECK(has(message(pair(), {file}), "no data for the model's input 'b' (float32 N,1)"));
    CHECK(has(message(pair(), {"c=" + file}), "no input 'c'; it has 'a/x' (float32 N,1), 'b'"));
    CHECK(has(message(pair(), {"b=" + file, "b=" + file}), "'b' is given twice"));
    write_npz(scratch() / "three.npz", {{"p", one(2)}, {"q", one(1)}, {"r", one(1)}});
    CHECK(has(message(pair(), {(scratch() / "three.npz").string()}), "holds 3 tensors, beginning with 'p'"));
    // An array that the model has no input for, such as a mask, is an error and not taken for a second sample.
    write_npz(scratch() / "more.npz", {{"x", one(2)}, {"mask", one(1)}});
    CHECK(has(message(single(), {(scratch() / "more.npz").string()}), "array 'mask' is no input of the model"));
    fs::create_directories(scratch() / "empty");
    CHECK(has(message(pair(), {(scratch() / "empty").string()}), "holds no .npy"));
    write_file(scratch() / "bad.pb", "\xff\xff\xff");
    CHECK(has(message(pair(), {(scratch() / "bad.pb").string()}), "not an ONNX tensor"));
}
