// SPDX-License-Identifier: Apache-2.0
// What the sources of qk::checkpoint share: mapped files (disk/input_file.hpp says what becomes of one that is cut short), readers of
// headers, and text for messages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "disk/input_file.hpp"
#include "qk/checkpoint.hpp"

namespace qk::checkpoint {

/// Throws error: "FILE: WHY".
void complain(const std::filesystem::path& file, const std::string& why);

/// A file mapped for reading.
class mapped_file {
  public:
    explicit mapped_file(const std::filesystem::path& file) : file_(file, complain), pages_(file_) {}
    std::span<const std::byte> bytes() const { return pages_.bytes(); }
    void release(std::span<const std::byte> part) const noexcept { pages_.release(part); }
    void check() const { pages_.check(); }

  private:
    disk::input_file file_;
    disk::mapping pages_;
};

/// A tensor's shape as "[4, 256]".
std::string text_of(const std::vector<std::uint64_t>& shape);
/// Names come from files: quoted and shortened for messages.
std::string shown(std::string_view name);

/// Product of a shape, or nullopt if it does not fit 63 bits.
std::optional<std::uint64_t> product_of(const std::vector<std::uint64_t>& shape);

/// Bits of one number of a safetensors type; 0: unknown.
unsigned bits_of_type(std::string_view type);
bool is_float_type(std::string_view type);

/// Adds a file's tensors to `c`. Throws error, whose text begins with `label`.
void read_safetensors(std::span<const std::byte> bytes, const std::string& label, checkpoint& c);
/// Number of this file among the parts of a split one; count 0: it is not split.
struct split_place {
    std::uint64_t number = 0, count = 0, tensors = 0;
};
split_place read_gguf(std::span<const std::byte> bytes, const std::string& label, checkpoint& c);

/// Parses JSON of limited depth. Throws error beginning with `label`.
nlohmann::json parse_json(std::string_view text, const std::string& label);
std::string read_text(const std::filesystem::path& file, std::uint64_t most);
/// Reads what lies beside a safetensors file: config.json, hf_quant_config.json, quantize_config.json.
quantization_config read_config(const std::filesystem::path& folder);
quantization_config parse_config(const nlohmann::json& config, const std::filesystem::path& file);

/// Fills weights and findings from tensors and config.
void find_weights(checkpoint& c);
void find_gguf_weights(checkpoint& c);
/// Links factors that lie beside weights, and adds a finding for each tensor beside one that no rule explains.
void find_neighbours(checkpoint& c);

/// Whether `name` fits a glob: * and ?.
bool fits(std::string_view pattern, std::string_view name);

/// Calls work(first, last) for parts of `count` things on up to `threads` threads. What they throw is thrown.
void in_parts(std::size_t count, int threads, const std::function<void(std::size_t, std::size_t)>& work);

/// The importance of a tensor's columns, row by row.
class importance_rows {
  public:
    importance_rows() = default;
    /// Throws error, which names the tensor, for numbers of another length, negative ones, NaN and infinities.
    importance_rows(const weight& w, std::vector<float> values);
    std::span<const float> of(std::uint64_t row) const {
        return values_.empty() ? std::span<const float>() : std::span(values_).subspan(row / rows_ % matrices_ * columns_, columns_);
    }

  private:
    std::vector<float> values_;
    std::uint64_t rows_ = 1, columns_ = 0, matrices_ = 1;
};

/// Finite numbers of a float64 tensor that float32, in which tensors are decoded, has only as Inf; 0 for other types.
std::uint64_t beyond_float32(const stored_tensor& t);
/// The parts of matrix `index` of a weight's stack.
matrix_planes planes_of(const checkpoint& c, const weight& w, std::uint64_t index);
/// checkpoint::check() for the files of one weight.
void check_files(const checkpoint& c, const weight& w);
/// The type of a GGUF tensor by the name that facts_of gives it.
std::optional<ggml_type> ggml_type_named(std::string_view name);

}  // namespace qk::checkpoint
