// Rows of a table by number, and copies that slice, join or transpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace storytape {

// Throws Error naming the first id that lies outside [0, count), its position, and `what`: "token 4096 at
// position 7 lies outside [0, 4096)".
void check_ids(std::span<const int32_t> ids, size_t count, const char* what = "id");

// [ids.size(), D]: row i is table[ids[i]], table [V, D]. Throws Error as check_ids.
template <class T>
Tensor<T> gather_rows(const Tensor<T>& table, std::span<const int32_t> ids);
// table[ids[i]] += rows[i], table [vocab, dim], rows [ids.size(), dim]; in the order of i, so that repeated
// ids give the same bits each time. Throws Error as check_ids, before anything is written.
template <class T>
void scatter_add_rows(T* table, size_t vocab, size_t dim, std::span<const int32_t> ids, const T* rows);

// A copy whose axis i is x's axis permutation[i]. Throws Error for what isn't a permutation of x's axes.
template <class T>
Tensor<T> transpose(const Tensor<T>& x, std::span<const size_t> permutation);
// The last two axes swapped.
template <class T>
Tensor<T> transpose(const Tensor<T>& x);
// to [columns, rows] = from [rows, columns], each row `from_stride` or `to_stride` values after the last.
template <class T>
void transpose_matrix(const T* from, size_t from_stride, T* to, size_t to_stride, size_t rows,
                      size_t columns);

// A copy of elements [first, last) of an axis.
template <class T>
Tensor<T> slice(const Tensor<T>& x, size_t axis, size_t first, size_t last);
// whole[first, first + part's size) of the axis += part: the gradient of slice. Other axes must be equal.
template <class T>
void add_to_slice(Tensor<T>& whole, size_t axis, size_t first, const Tensor<T>& part);
// Tensors one after another along an axis; their other axes must be equal.
template <class T>
Tensor<T> concat(std::span<const Tensor<T>> parts, size_t axis);

}  // namespace storytape
