// SPDX-License-Identifier: Apache-2.0
#include "onnxruntime/model_functions.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "disk/input_file.hpp"
#include "onnxruntime/api.hpp"
#include "qk/portable/function.hpp"

namespace qk::onnxruntime {
namespace {

[[noreturn]] void refuse_file(const std::filesystem::path& file, const std::string& why) {
    throw refusal("'" + file.string() + "': " + why);
}

/// Returns the payload of the last field of that number; "" where there is none.
std::string_view field(std::string_view message, std::uint64_t number) {
    std::string_view found;
    for (portable::wire_field f = portable::next_field(message); f.number != 0; f = portable::next_field(message))
        if (f.number == number) found = f.payload;
    return found;
}

void expect_as_written(const std::filesystem::path& model, std::string_view function, std::string_view name) {
    const std::string_view text = field(function, 8);  // doc_string
    const std::size_t at = text.rfind(portable::body_mark);
    if (at == std::string_view::npos)
        refuse_file(model,
                    "function 'qk:" + std::string(name) +
                        "' does not say which body it was written with: the file is of a qk of before this library; write it again with "
                        "this qk, or run it without the library");
    const auto digits = portable::fingerprint(function);
    if (text.substr(at + portable::body_mark.size()) != std::string_view(digits.data(), digits.size()))
        refuse_file(model, "function 'qk:" + std::string(name) +
                               "' was changed since qk wrote it, and the library would compute what qk wrote; run the file without the "
                               "library, or give the function a name of its own");
}

}  // namespace

bool is_computed(std::string_view function) {
    return !function.starts_with(portable::decodes) || function.find(portable::in_each_run) != std::string_view::npos;
}

std::vector<std::string> functions_of(const std::filesystem::path& model) {
    constexpr std::uint64_t functions_field = 25, longest = 1 << 26;  // of a ModelProto; of one function
    const disk::input_file file(model, refuse_file);
    std::vector<std::string> names;
    std::string bytes;
    for (std::uint64_t at = 0; at < file.size();) {
        std::array<char, 20> start{};
        const std::size_t got = file.read_some(at, std::as_writable_bytes(std::span(start)));
        const portable::field_head h = portable::head_of({start.data(), std::min(got, start.size())});
        if (h.number == 0 || h.payload > file.size() - at - h.bytes) refuse_file(model, "this is no ONNX model");
        if (h.number == functions_field) {
            if (h.payload > longest) refuse_file(model, "a function has more than 64 MiB");
            bytes.resize(h.payload);
            file.read(at + h.bytes, std::as_writable_bytes(std::span(bytes)));
            const std::string_view domain = field(bytes, 10), name = field(bytes, 1);
            if (domain == "qk") {
                expect_as_written(model, bytes, name);
                if (is_computed(name)) names.emplace_back(name);
            }
        }
        at += h.bytes + h.payload;
    }
    return names;
}

}  // namespace qk::onnxruntime
