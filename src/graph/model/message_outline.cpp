// SPDX-License-Identifier: Apache-2.0
// Reads Protobuf's encoding as far as is needed to find raw_data. https://protobuf.dev/programming-guides/encoding/
#include "graph/model/message_outline.hpp"

namespace qk::graph::detail {
namespace {

// Numbers of fields in onnx.proto.
constexpr unsigned graph_of_model = 7, initializer_of_graph = 5, raw_data_of_tensor = 9;

struct field {
    unsigned number = 0;
    bool is_bytes = false;
    std::size_t start = 0, content = 0, end = 0;  ///< offsets of its tag, of its bytes, and behind it
};

/// Walks over the fields of a message at [at, end) of the file.
class field_reader {
  public:
    field_reader(std::string_view file, std::size_t at, std::size_t end) : file_(file), at_(at), end_(end) {}
    bool done() const { return at_ == end_; }
    /// Returns nullopt when the field is malformed.
    std::optional<field> next() {
        field f;
        f.start = at_;
        const auto tag = varint();
        if (!tag || *tag >> 3 == 0 || *tag >> 3 > 0x1fffffff) return std::nullopt;
        f.number = static_cast<unsigned>(*tag >> 3);
        const unsigned kind = *tag & 7;                  // 0: a varint, 1: 8 bytes, 2: as many bytes as a varint says, 5: 4 bytes
        if (kind > 2 && kind != 5) return std::nullopt;  // groups
        f.is_bytes = kind == 2;
        const auto number = kind == 0 || kind == 2 ? varint() : 0;
        if (!number) return std::nullopt;
        const std::uint64_t length = kind == 0 ? 0 : kind == 1 ? 8 : kind == 5 ? 4 : *number;
        if (length > end_ - at_) return std::nullopt;
        f.content = at_;
        f.end = at_ += length;
        return f;
    }

  private:
    std::optional<std::uint64_t> varint() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 70 && at_ < end_; shift += 7) {
            const auto byte = static_cast<unsigned char>(file_[at_++]);
            if (shift < 64) value |= std::uint64_t{byte & 0x7fu} << shift;
            if (byte < 0x80) return value;
        }
        return std::nullopt;
    }
    std::string_view file_;
    std::size_t at_, end_;
};

/// Returns a tensor without its raw data, if that is large; nullopt when it is malformed or has raw data twice.
std::optional<std::string> outline_of_tensor(std::string_view file, const field& tensor, std::size_t smallest,
                                             message_outline::place& place) {
    std::string kept;
    bool found = false;
    for (field_reader r(file, tensor.content, tensor.end); !r.done();) {
        const auto f = r.next();
        if (!f) return std::nullopt;
        if (f->number == raw_data_of_tensor) {
            if (found) return std::nullopt;  // of two, parsers take the last
            found = true;
        }
        if (f->number == raw_data_of_tensor && f->is_bytes && f->end - f->content >= smallest) {
            place = {f->content, f->end - f->content};
        } else {
            kept.append(file.substr(f->start, f->end - f->start));
        }
    }
    return kept;
}

void put_varint(std::string& to, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
    to.push_back(static_cast<char>(value));
}

}  // namespace

void put_header(std::string& to, unsigned field, std::uint64_t length) {
    put_varint(to, field << 3 | 2u);
    put_varint(to, length);
}

std::optional<message_outline> outline_of(std::string_view model, std::size_t smallest) {
    message_outline made;
    bool found = false;
    for (field_reader r(model, 0, model.size()); !r.done();) {
        const auto f = r.next();
        if (!f) return std::nullopt;
        if (f->number != graph_of_model || !f->is_bytes) {
            made.message.append(model.substr(f->start, f->end - f->start));
            continue;
        }
        if (found) return std::nullopt;
        found = true;
        std::string graph;
        for (field_reader in(model, f->content, f->end); !in.done();) {
            const auto part = in.next();
            if (!part) return std::nullopt;
            if (part->number != initializer_of_graph || !part->is_bytes || part->end - part->content < smallest) {
                if (part->number == initializer_of_graph && part->is_bytes) made.places.emplace_back();
                graph.append(model.substr(part->start, part->end - part->start));
                continue;
            }
            const auto tensor = outline_of_tensor(model, *part, smallest, made.places.emplace_back());
            if (!tensor) return std::nullopt;
            put_header(graph, initializer_of_graph, tensor->size());
            graph += *tensor;
        }
        put_header(made.message, graph_of_model, graph.size());
        made.message += graph;
    }
    return made;
}

}  // namespace qk::graph::detail
