// Encoding by search: the ids that merge_by_rank gives, in linear time and without merging anything.
//
// A span between two token boundaries is merged as it would be alone, because a boundary, once gone, never
// comes back. From this follow, for tokens t1 .. tn whose bytes make the piece:
//
// (E1) They are its encoding exactly if each ti alone encodes to itself and each pair ti, ti+1 alone encodes
//      to itself: the first merge across a boundary would happen in the pair alone as well.
//
// (E2) A place in the piece is reached in one way only, by the encoding of what lies before it. So trying
//      tokens at a place, and taking back the last one at a dead end, comes to each place at most once.
//
// The search takes the longest token that may stand beside the last one; at a dead end it takes the last
// token back and tries the next shorter one in its place.
//
// (E3) Whether x and y stay apart is read off their derivations: the token that ends x and the token that
//      begins y at some moment are known from the ranks of the rules that made them. They merge across the
//      boundary if they have a rule of rank r with r < the rank of what x's token went into (at the same
//      rank the left place wins) and r <= the rank of what y's token went into.
//
// (E3) needs rules of the ordinary kind: each token is made by one rule, which is younger than the rules of
// its parts. For other rules, and for texts made to defeat the search, merge_by_rank does the work.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/bpe_alphabet.h"
#include "train/bpe_rules.h"
#include "train/bpe_trie.h"

namespace storytape {

class BpeEncoder {
 public:
  BpeEncoder() = default;
  // tokens: the bytes of each id. REQUIRES: each byte id's bytes are that byte; a merge's result has the
  // bytes of its parts; no pair stands twice.
  BpeEncoder(const std::array<int32_t, 256>& byte_ids, std::span<const BpeMerge> merges,
             const std::vector<std::string>& tokens);

  // Appends the ids of a piece of text. Safe from several threads at once.
  void encode(std::string_view piece, std::vector<int32_t>& ids) const;

  // False if the rules are not of the ordinary kind: encode() is then merge_by_rank.
  bool can_search() const { return can_search_; }

 private:
  // How a token came about. Bytes have the rank -1, tokens that no rule makes as well.
  struct Origin {
    int64_t rank = -1;
    int32_t left = -1;
    int32_t right = -1;
  };

  // False if x and y, side by side, are merged across their boundary by a rule of rank < `before`. Adds to
  // `steps`.
  bool stay_apart(int32_t x, int32_t y, uint32_t before, size_t& steps) const;
  // Nothing is appended and false is returned if the text takes too much work.
  bool search(std::string_view piece, std::vector<int32_t>& ids) const;

  std::array<int32_t, 256> byte_ids_{};
  BpeRules rules_;
  bool can_search_ = false;
  std::vector<Origin> origins_;    // by id
  std::vector<uint32_t> lengths_;  // by id, bytes
  std::vector<int32_t> shorter_;   // by id: the longest token that begins this one, -1 if none
  BpeTrie trie_;                   // tokens that encode to themselves
};

}  // namespace storytape
