// SPDX-License-Identifier: Apache-2.0
// Regions of an array: properties of values (the result is subnormal, the input is a tie, the block is the last of its row), and the
// smallest description of a set of values by one property or by up to three that hold together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model.hpp"

namespace qk::compare {

/// A set of values, by position.
class value_set {
  public:
    explicit value_set(std::size_t size = 0) : size_(size), words_((size + 63) / 64) {}
    std::size_t size() const { return size_; }
    void insert(std::size_t i) { words_[i / 64] |= std::uint64_t{1} << (i % 64); }
    bool contains(std::size_t i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }
    std::size_t count() const;
    std::size_t count_with(const value_set& other) const;  ///< values in both
    friend value_set operator&(value_set a, const value_set& b);
    value_set without(const value_set& other) const;
    /// Returns the set of those k for which at[k] is in this set.
    value_set among(std::span<const std::size_t> at) const;

  private:
    std::size_t size_ = 0;
    std::vector<std::uint64_t> words_;
};

struct property {
    std::string words;
    value_set values;
    bool of_blocks() const { return words.starts_with("the block"); }  ///< it holds for whole blocks
};

/// The values for which all of these properties hold; none: everywhere.
struct region {
    std::vector<int> properties;
    friend bool operator==(const region&, const region&) = default;
};

class properties {
  public:
    /// Finds the properties of every value of the problem. `unit` as units_of gives it.
    properties(const problem& p, std::span<const float> unit);
    std::size_t size() const { return all_.size(); }
    const property& operator[](int k) const { return all_[static_cast<std::size_t>(k)]; }
    std::string words(const region& r) const;
    value_set values(const region& r) const;
    std::size_t count() const { return count_; }
    /// Returns the same properties of the values at these positions, which are then numbered from 0.
    properties among(std::span<const std::size_t> at) const;
    /// Returns the region with which `target` can be told in the fewest bits, its own description included, among those that hold
    /// `least_share` of the target; everywhere if none helps.
    region describe(const value_set& target, double least_share) const;
    /// Returns the region, of two properties at most, that holds `wanted` and keeps out `not_wanted` at the least cost; an unwanted value
    /// that is taken in costs `weight` times as much as a wanted one that is left out. `blocks`: the region consists of whole blocks.
    region separate(const value_set& wanted, const value_set& not_wanted, double weight = 1, bool blocks = false) const;

  private:
    properties() = default;
    void add(std::string words, value_set v);
    void add_every_nth(const problem& p);
    template <class Place>
    void add_outliers(const problem& p, const char* words, std::size_t count, Place place);
    std::vector<property> all_;
    std::size_t count_ = 0;
};

}  // namespace qk::compare
