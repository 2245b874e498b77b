// SPDX-License-Identifier: Apache-2.0
// What `requests::to` names: a system's scheme, as a checkpoint without data that says each tensor's name, type, shape and layout. write()
// plans by it as by any other checkpoint that the output is to be like.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parts.hpp"

namespace qk::checkpoint {

/// One part of a quantized weight: its name behind the module's, its type and its sides.
struct part_form {
    enum class kind { codes, scales, zeros, global, shape, order };
    /// `words`: so many codes as fill int32 words. `scale_rows` and `groups` are those of the layout.
    enum class side { none, rows, columns, groups, scale_rows, row_words, column_words, column_bytes, one, two };

    kind what;
    std::string_view name;
    std::string_view type;  ///< empty: that of the layout's scales
    side first = side::none, second = side::none;
};

/// A system and how it has its matrices.
struct scheme {
    std::string_view system;  ///< as checkpoint::system
    std::string name;         ///< "W4A16", "4,128"
    std::string format;       ///< of a weight, as weight::format
    layout how;
    bool scales_as_floats = false;  ///< scales have the type that the weight has as floats
    bool symmetric = true;
    std::string_view algorithm;    ///< how the system's config calls it
    std::string_view activations;  ///< compressed-tensors: "", or the strategy of 8-bit activations
    std::span<const part_form> parts;

    std::string text() const { return std::string(system) + ":" + name; }
};

/// Finds what "SYSTEM:SCHEME" names, upper or lower case. Throws error that lists all.
scheme scheme_named(std::string_view text);

struct scheme_template {
    checkpoint source;  ///< the checkpoint without the tensors that describe how it is quantized itself
    checkpoint like;    ///< its tensors have no data, but for shapes and orders; config.excluded: modules that stay floats
    std::deque<std::vector<std::byte>> made;  ///< what `like` points to
};
/// Decides what each weight of `c` becomes. `rules` of `asked` overrule the system's defaults. `notes` gets a sentence for what stays.
scheme_template template_of(const checkpoint& c, const scheme& s, const requests& asked, std::vector<std::string>& notes);

/// Configs that a reader needs beside `target`, with their contents: the source's config.json with what the scheme sets. Throws error where
/// one would replace a file of another model.
std::vector<std::pair<std::filesystem::path, std::string>> configs_of(const checkpoint& c, const scheme& s, const checkpoint& like,
                                                                      const std::filesystem::path& target);

}  // namespace qk::checkpoint
