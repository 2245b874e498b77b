// SPDX-License-Identifier: Apache-2.0
// A serialized model without the elements of its large initializers, and where those lie: enough to inspect a model in little memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qk::graph::detail {

struct message_outline {
    struct place {
        std::uint64_t offset = 0, length = 0;  ///< of raw_data in the file; length 0: raw_data is still in the message
    };
    std::string message;        ///< a ModelProto
    std::vector<place> places;  ///< one per initializer of the graph, in order
};

/// Leaves out elements of at least `smallest` bytes. Returns nullopt for no well-formed message of one graph; the parser will say why.
std::optional<message_outline> outline_of(std::string_view model, std::size_t smallest);

/// Appends the tag and the length of a field that holds bytes.
void put_header(std::string& to, unsigned field, std::uint64_t length);

}  // namespace qk::graph::detail
