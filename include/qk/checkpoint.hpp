// SPDX-License-Identifier: Apache-2.0
// Checkpoints of language models: safetensors (ModelOpt, compressed-tensors, GPT-OSS, DeepSeek, MLX, GPTQ, AWQ; one file or an index of
// shards) and GGUF (one file or split). docs/guide/checkpoints.md is the user's page.
//
//   const auto c = qk::checkpoint::open("model.safetensors");       // reads config.json beside it
//   for (const auto& w : c.weights) c.decode(w, [&](std::span<const float> part) { ... });
//
// Files are mapped, never read whole. Every size and offset of a file is checked before anything is allocated by it; whatever is wrong
// with a file is an error that names it. Encoding is in two steps, so that other rules can be put in: a quantizer makes ggml's blocks, or
// codes and scales, of rows of floats (see `block_quantizer`), and qk/layout.hpp puts them where a system expects them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "qk/layout.hpp"

namespace qk::checkpoint {

/// What is wrong with a file or a request, in a sentence that names the file and the tensor.
class error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// A tensor as a file has it.
struct stored_tensor {
    std::string name;
    std::string type;                  ///< as the file spells it: "BF16", "F8_E4M3"; for GGUF "q4_k"
    std::vector<std::uint64_t> shape;  ///< slowest dimension first, as NumPy has it
    std::span<const std::byte> data;
    std::size_t file = 0;  ///< number of its file
    bool swapped = false;  ///< its numbers are big-endian

    std::uint64_t elements() const;
};

/// Something that a reader would stumble over. `kind` is one of missing_scale, reciprocal_scale, swizzled_scale, activation_mismatch,
/// nan_code, infinite_code, nan_scale, infinite_scale, negative_scale, zero_scale, wrong_zero_point, wrong_shape, wrong_type, unexplained,
/// config_mismatch.
struct finding {
    std::string tensor, kind, sentence;
};

/// A floating-point tensor as the model knows it: plain, or several stored tensors that together mean one matrix of floats.
struct weight {
    static constexpr int none = -1;

    std::string name;                  ///< "model.layers.0.mlp.down_proj.weight"
    std::vector<std::uint64_t> shape;  ///< of the floats
    std::string format;                ///< "bf16", "nvfp4", "q4_k", "int4"
    bool quantized = false;
    layout how;               ///< of a quantized weight
    std::uint64_t stack = 1;  ///< matrices of `matrix`, one after the other in every part
    matrix_shape matrix;      ///< as it is stored: rows share no scale (but for layouts with several rows to a scale)
    bool transposed = false;  ///< the floats have the matrix's columns first (GPT-OSS)
    bool floats_first = false;
    int codes = none, scales = none, zeros = none, global = none, group_of = none;  ///< numbers of stored tensors; `global` of a GGUF is
                                                                                    ///< NAME.scale, which multiplies
    int input_factor = none;  ///< ModelOpt's pre_quant_scale: by it the layer multiplies its input, column by column; a plain weight itself
    bool big_endian = false;
    std::optional<finding> problem;  ///< why it cannot be decoded

    std::uint64_t elements() const;
};

enum class container { safetensors, gguf };

/// A file of a checkpoint, mapped.
class mapped_file;

/// What the config beside a checkpoint says. Empty: there is none, or it says nothing about quantization.
struct quantization_config {
    std::filesystem::path file;
    std::string method;     ///< "modelopt", "compressed-tensors", "mxfp4", "fp8", "gptq", "awq", "mlx" ...; empty: not quantized
    std::string algorithm;  ///< ModelOpt's quant_algo, MLX's mode, compressed-tensors' format
    int bits = 0, group = 0;
    int block_rows = 0, block_columns = 0;  ///< of FP8 in blocks
    std::optional<bool> symmetric;          ///< false: there are zero points
    bool first_version = true;              ///< GPTQ's zero points are stored minus one
    bool gemm = true;                       ///< AWQ's words
    std::string unread;                     ///< why codes under this config are not read, behind the file's name; empty: they are
    std::vector<std::string> senseless;     ///< what stands in it and means nothing, behind the file's name: `bits` that are no number
    bool varies = false;                    ///< GPTQ's "dynamic": modules have widths and groups of their own
    std::optional<bool> quantizes_activations;
    bool activations_static = false;    ///< ... with a scale in the file
    std::vector<std::string> excluded;  ///< modules that stay as they are: names, globs, or "re:" with an expression
    struct override_of_layer {
        std::string module;
        int bits = 0, group = 0;
        std::string mode;
        bool off = false;
    };
    std::vector<override_of_layer> layers;  ///< MLX's and ModelOpt's own values for a module

    bool excludes(std::string_view module) const;
    const override_of_layer* of(std::string_view module) const;
};

/// A checkpoint that was opened.
struct checkpoint {
    std::filesystem::path path;
    container kind = container::safetensors;
    std::string system;  ///< "modelopt", "compressed-tensors", "gpt-oss", "deepseek", "mlx", "gptq", "awq", "gguf", or "plain"
    quantization_config config;
    std::vector<std::filesystem::path> paths;  ///< of its files
    std::vector<std::shared_ptr<const mapped_file>> files;
    std::vector<stored_tensor> tensors;
    std::vector<weight> weights;
    std::vector<finding> findings;  ///< what the names, types and shapes alone show; lint() looks at the data, too

    std::string metadata;                   ///< safetensors: the text of "__metadata__", "" if there is none
    std::span<const std::byte> key_values;  ///< GGUF: the first file's keys and values as they are stored
    std::uint64_t key_value_count = 0;
    std::uint32_t version = 3, alignment = 32;
    bool big_endian = false;

    const stored_tensor* find(std::string_view name) const;
    const weight* find_weight(std::string_view name) const;

    /// Throws error if a file was changed since it was opened. Where one is cut short, zeros stand in `data` in place of what is gone, so
    /// whoever reads `data` by himself calls this before he gives away what he made of it. The functions below do so themselves.
    void check() const;
    /// Calls `take` with the weight's floats in order, some millions at a time. Throws error where the weight has a problem.
    void decode(const weight& w, const std::function<void(std::span<const float>)>& take) const;
    std::vector<float> decode(const weight& w) const;
    /// The same floats times the factors of `input_factor`: what another system, whose layers do not multiply their input, must hold.
    void decode_with_factor(const weight& w, const std::function<void(std::span<const float>)>& take) const;
};

/// Opens a .safetensors, an index.json of shards, or a .gguf (with the other parts of a split one). Throws error.
checkpoint open(const std::filesystem::path& file);
/// Reads one file's bytes as they were a file; for tests and fuzzers. `name` decides what it is, `config` is the text of the config.json
/// beside it, or empty.
checkpoint read(std::span<const std::byte> bytes, const std::filesystem::path& name, std::string_view config = {});

/// Looks at every tensor's data and returns what is wrong, those of `findings` first.
std::vector<finding> lint(const checkpoint& c);
/// `findings` in few sentences, for whoever reads the weights all the same: of each kind the first three, and how many more there are.
std::vector<std::string> remarks_of(const checkpoint& c);

/// How one weight of two checkpoints differs.
struct difference {
    std::string name;
    std::string formats;  ///< "nvfp4" or "nvfp4, q4_k"
    bool only_first = false, only_second = false, shapes_differ = false;
    bool same_bits = false;  ///< the stored parts, in one layout, are the same
    std::uint64_t values = 0, codes_differ = 0, values_differ = 0;
    bool same_layout = false;
    double decibels = 0;  ///< of the first's power over that of the differences; infinite where no value differs
    std::string problem;
};
/// `take` gets one after the other, in the first's order, then what only the second has.
void compare(const checkpoint& a, const checkpoint& b, const std::function<void(const difference&)>& take);

/// What became of one weight in another file, and what that cost: the power of the floats that the first file's own reader gives, and of
/// what those of the second's reader differ by.
struct weight_change {
    /// Stored as it was; with the same codes, scales and zero points in another layout, or floats that the other type has; with scales,
    /// zero points times scales, or floats that were rounded; quantized anew.
    enum class kind : std::uint8_t { kept, moved, rounded, quantized };

    std::string name, from, to;  ///< formats, as in weight::format
    kind how = kind::kept;
    bool measured = true;          ///< false: a run that was stopped has made it
    bool differs = false;          ///< some value does; of a weight that was moved it is the readers' own rounding
    std::uint64_t not_finite = 0;  ///< finite values that became Inf or NaN; they count as lost
    double power = 0, error = 0;

    bool without_loss() const { return how <= kind::moved || !differs; }
    double decibels() const;  ///< infinite where no value differs
};
/// The sums of a conversion. Weights whose values did not change count among those without loss; decibels are of those that differ.
struct change_summary {
    std::size_t weights = 0, without_loss = 0, rounded = 0, quantized = 0, unmeasured = 0, differing = 0;
    std::uint64_t not_finite = 0;
    std::string worst;
    double worst_decibels = 0, mean_decibels = 0;
};
change_summary summary_of(std::span<const weight_change> changes);
/// One line without its end: "5 weights: 3 without loss, 0 rounded, 2 quantized anew; worst 20.13 dB (m.w.weight), mean 22.40 dB".
std::string words_of(const change_summary& s);

/// Called with what is done and what there is to do, in bytes.
using progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Writes every floating-point tensor as float32 under its weight's name, one after the other. A run that was killed is taken up by the
/// next: its part is .NAME.qk-HASH.part beside `target`, where HASH stands for the files that are read, with their sizes and dates.
/// Returns how many tensors an earlier run had done. `notes` gets a sentence for each tensor whose numbers float32 does not have, `changes`
/// what became of each weight.
std::size_t write_npz(const checkpoint& c, const std::filesystem::path& target, const progress& told = {},
                      std::vector<std::string>* notes = nullptr, std::vector<weight_change>* changes = nullptr);

/// Quantizes whole rows into a type of ggml's blocks, as ggml's quantize_row_*_ref does. `importance` has a weight for each value of a
/// row, or is empty. This is the place of qk::systems::ggml::block_type::quantize.
using block_quantizer = std::function<void(std::span<const float> row, std::span<const float> importance, std::span<std::byte> blocks)>;
/// Returns the quantizer of a type, or an empty function: f32, f16 and bf16 are built in; use_block_quantizers adds others.
block_quantizer quantizer_of(ggml_type type);
void use_block_quantizers(std::function<block_quantizer(ggml_type)> more);

/// The parts of one matrix as a system's own quantizer makes them, in the order and types of a layout.
struct quantized_parts {
    std::vector<std::byte> codes, scales, zeros;
    float global = 1;
};
/// Quantizes rows x columns floats into the layout of `model`, a weight of `system`; nullopt if there is no rule for it. The place of
/// qk::systems::rule::convert.
using matrix_quantizer =
    std::function<std::optional<quantized_parts>(std::string_view system, const weight& model, std::span<const float> values)>;
void use_matrix_quantizer(matrix_quantizer rule);

/// What a format of ggml's blocks would make of one weight.
struct format_error {
    std::string tensor, format;
    std::uint64_t values = 0, bytes = 0;
    double power = 0, error = 0;  ///< sums of squares of the weight and of what changes
    double relative() const { return power == 0 ? 0 : error / power; }
};
/// Quantizes every matrix to every format and measures the error, without a network. Matrices whose rows are no whole blocks of a format
/// have no entry for it. `columns` gives the weights of a tensor's columns (the mean squares of what is multiplied by them), or is empty.
std::vector<format_error> measure_formats(const checkpoint& c, const std::vector<std::string>& formats,
                                          const std::function<std::vector<float>(const weight&)>& columns = {}, const progress& told = {},
                                          int threads = 1);
/// A format that is none of ggml's, for measuring alone: it rounds rows of whole groups to what the format has.
struct row_format {
    std::size_t multiple = 1;
    std::function<std::uint64_t(std::uint64_t rows, std::uint64_t columns)> bytes;
    std::function<void(std::span<const float> row, std::span<float> rounded)> round;
};
/// Gives measure_formats formats by names that are none of ggml's; nullopt for unknown ones.
void use_row_formats(std::function<std::optional<row_format>(const std::string&)> more);

/// Returns the groups of weights that fit one of the globs and have the same layer: what stands in a name up to its first whole number
/// ("model.layers.3" of "model.layers.3.mlp.experts.17.up_proj.weight"); names without one have one group. Throws error for a glob that
/// none fits.
std::vector<std::vector<std::string>> groups_by_layer(const checkpoint& c, const std::vector<std::string>& globs);
/// Chooses a format for each tensor of `errors` so that the sum of relative errors is small and the sum of bytes is at most `budget`: from
/// the smallest formats on, the step that saves most error for a byte is taken while it fits. Tensors of one of `groups`, and those of
/// groups that have a tensor in common, get one format. Returns numbers of `errors`; empty if even the smallest do not fit. Throws error
/// where a group has no format in common.
std::vector<std::size_t> choose_formats(const std::vector<format_error>& errors, std::uint64_t budget,
                                        const std::vector<std::vector<std::string>>& groups = {});

/// What becomes of a checkpoint's weights.
struct requests {
    std::string format;                                      ///< of every matrix that no rule names; empty: as it is stored
    std::vector<std::pair<std::string, std::string>> rules;  ///< glob of names, format; the last that fits counts
    std::optional<std::filesystem::path> like;               ///< another checkpoint, which gives each weight its layout
    std::string to;           ///< "SYSTEM:SCHEME", one of scheme_words(): as that system has it, with the config that its reader needs
    bool lossless = false;    ///< a weight that would be rounded or quantized anew is an error
    bool requantize = false;  ///< what is not moved without loss is quantized anew, also where codes could stay with rounded scales
    /// Weights of the columns of a tensor that is quantized to a type: as many as columns, or those of each matrix of a stack one after
    /// the other; empty: none.
    std::function<std::vector<float>(const weight&, ggml_type)> importance;
    std::filesystem::path importance_file;  ///< where they come from, so that a stopped run is taken up with the same
    int threads = 1;                        ///< that quantize the rows of a tensor; bytes do not depend on it
    bool names_as_they_are = false;         ///< allows what check_names refuses
    std::uint64_t shard_bytes = 0;  ///< tensors that are more come in NAME-00001-of-00003.safetensors, ... and an index, or a split .gguf
    std::function<void(const std::filesystem::path&)> check_output;  ///< called with the name of each file before any is written
    std::function<void()> put_others;  ///< called when every file has its name; what it throws takes all of them back
};
/// What requests::to takes: every scheme, and the form of those that take numbers, as "mlx:BITS,GROUP".
std::vector<std::string> scheme_words();
/// Throws error if a .gguf of `c` would be no model: beside a .safetensors lies a config.json with "architectures", and its names are those
/// of Hugging Face's layers. llama.cpp's own converter makes the names, the permuted rows and the tokenizer.
void check_names(const checkpoint& c);
/// Writes a .safetensors or .gguf, or the parts of one. Codes are moved, not decoded, where the layouts hold the same numbers, or where
/// only scales and biases are rounded and by little; else floats are quantized anew. `notes` gets a sentence for whatever else changes,
/// `changes` what became of each weight. Resumes like write_npz.
std::size_t write(const checkpoint& c, const std::filesystem::path& target, const requests& asked, std::vector<std::string>& notes,
                  const progress& told = {}, std::vector<weight_change>* changes = nullptr);

}  // namespace qk::checkpoint
