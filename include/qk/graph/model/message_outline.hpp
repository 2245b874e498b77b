// SPDX-License-Identifier: Apache-2.0
// A serialized model without the elements of its large initializers, and where they lie: what a look at a model needs, in little memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qk::graph::detail {

struct message_outline {
    struct place {
        std::uint64_t offset = 0, length = 0;  ///< of raw_data in the file; length 0: it is still in the message
    };
    std::string message;        ///< a ModelProto
    std::vector<place> places;  ///< of each initializer of the graph, in order
};

/// Nothing: not a well-formed message of one graph; the parser will say why. `smallest`: elements of so many bytes are left out.
std::optional<message_outline> outline_of(std::string_view model, std::size_t smallest);

/// The tag of a field of bytes and the number of them.
void put_header(std::string& to, unsigned field, std::uint64_t length);

}  // namespace qk::graph::detail
