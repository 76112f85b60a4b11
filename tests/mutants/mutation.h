// What mutated copies of the sources call: every mutation site carries a number, and the mutant whose number
// is `active` takes the changed expression there. mutate.py writes the calls; sites are kMutantsPerSite
// numbers apart.
#pragma once

#include <type_traits>
#include <utility>

namespace mutation {

inline constexpr int kMaxMutants = 1 << 19;

inline int active = -1;          // the mutant that is switched on
inline bool hit = false;         // whether its place was reached
inline bool known[kMaxMutants];  // the mutants that the types at their place allow

template <int ID>
struct Known {
  static inline const bool registered = known[ID] = true;
};

// Whether mutant ID is switched on. Where this is instantiated, the mutant exists.
template <int ID>
inline bool on() {
  static_cast<void>(&Known<ID>::registered);
  if (active != ID) return false;
  hit = true;
  return true;
}

// 0: the opposite sign. 1: nothing, for numbers; a tensor's sign alone is changed.
template <int ID, class T>
inline std::decay_t<T> value(T&& x) {
  using V = std::decay_t<T>;
  if constexpr (std::is_floating_point_v<V>) {
    if (on<ID>()) return -x;
    if (on<ID + 1>()) return V{0};
  } else if constexpr (requires(V t) { t.clone().values(); }) {
    if (on<ID>()) {
      V y = x.clone();
      for (auto& v : y.values()) v = -v;
      return y;
    }
  }
  return std::forward<T>(x);
}

// 0: the other answer.
template <int ID>
inline bool flip(bool x) {
  return on<ID>() ? !x : x;
}

// 0: set instead of added to, and the reverse.
template <int ID, class T>
inline T beta(T x) {
  return on<ID>() ? T{1} - x : x;
}

// 0: element 0.
template <int ID, class I>
inline I index(I i) {
  if constexpr (std::is_integral_v<I>) {
    if (on<ID>()) return I{0};
  }
  return i;
}

// 0: the other one, where both have one type.
template <int ID, class A, class B>
inline decltype(auto) either(A&& a, [[maybe_unused]] B&& b) {
  if constexpr (std::is_same_v<A&&, B&&>) {
    if constexpr (std::is_lvalue_reference_v<A>) {
      return on<ID>() ? static_cast<A>(b) : static_cast<A>(a);
    } else {
      return std::decay_t<A>(on<ID>() ? std::forward<B>(b) : std::forward<A>(a));
    }
  } else if constexpr (std::is_same_v<std::decay_t<A>, std::decay_t<B>> &&
                       std::is_scalar_v<std::decay_t<A>>) {
    return std::decay_t<A>(on<ID>() ? b : a);
  } else if constexpr (std::is_lvalue_reference_v<A>) {
    return static_cast<A>(a);
  } else {
    return std::decay_t<A>(std::forward<A>(a));
  }
}

// to = x.  0: added.
template <int ID, class A, class B>
inline void assign(A&& to, B&& x) {
  if constexpr (std::is_floating_point_v<std::decay_t<A>>) {
    if (on<ID>()) {
      to += x;
      return;
    }
  }
  to = std::forward<B>(x);
}
// to += x.  0: subtracted, 1: set.
template <int ID, class A, class B>
inline void add_assign(A&& to, B&& x) {
  if constexpr (std::is_floating_point_v<std::decay_t<A>>) {
    if (on<ID>()) {
      to -= x;
      return;
    }
    if (on<ID + 1>()) {
      to = x;
      return;
    }
  }
  to += std::forward<B>(x);
}
// to -= x.  0: added, 1: set.
template <int ID, class A, class B>
inline void sub_assign(A&& to, B&& x) {
  if constexpr (std::is_floating_point_v<std::decay_t<A>>) {
    if (on<ID>()) {
      to += x;
      return;
    }
    if (on<ID + 1>()) {
      to = x;
      return;
    }
  }
  to -= std::forward<B>(x);
}

// a * op<ID> * b stands for a * b, and likewise for +, - and /; so no operand has to be delimited.
// 0: the opposite sign (of a product or quotient; of b in a sum). 1: a alone. 2: b alone. Of addresses: 1
// alone, the first element.
template <int ID>
struct Op {};
template <int ID>
inline constexpr Op<ID> op{};

template <int ID, class A>
struct Left {
  A a;
};

template <int ID, class A>
inline Left<ID, A> operator*(const A& a, Op<ID>) {
  return {a};
}
template <int ID, class A>
inline Left<ID, A> operator/(const A& a, Op<ID>) {
  return {a};
}
template <int ID, class A>
inline Left<ID, A> operator+(const A& a, Op<ID>) {
  return {a};
}
template <int ID, class A>
inline Left<ID, A> operator-(const A& a, Op<ID>) {
  return {a};
}

template <class A, class B>
inline constexpr bool kNumbers = std::is_floating_point_v<A>&& std::is_same_v<A, B>;

template <int ID, class A, class B>
inline auto operator*(const Left<ID, A>& left, const B& b) {
  if constexpr (kNumbers<A, B>) {
    if (on<ID>()) return -(left.a * b);
    if (on<ID + 1>()) return left.a;
    if (on<ID + 2>()) return b;
  }
  return left.a * b;
}
template <int ID, class A, class B>
inline auto operator/(const Left<ID, A>& left, const B& b) {
  if constexpr (kNumbers<A, B>) {
    if (on<ID>()) return -(left.a / b);
    if (on<ID + 1>()) return left.a;
    if (on<ID + 2>()) return left.a * b;
  }
  return left.a / b;
}
template <int ID, class A, class B>
inline auto operator+(const Left<ID, A>& left, const B& b) {
  if constexpr (kNumbers<A, B>) {
    if (on<ID>()) return left.a - b;
    if (on<ID + 1>()) return left.a;
    if (on<ID + 2>()) return b;
  } else if constexpr (std::is_pointer_v<A>) {
    if (on<ID + 1>()) return left.a;
  }
  return left.a + b;
}
template <int ID, class A, class B>
inline auto operator-(const Left<ID, A>& left, const B& b) {
  if constexpr (kNumbers<A, B>) {
    if (on<ID>()) return left.a + b;
    if (on<ID + 1>()) return left.a;
    if (on<ID + 2>()) return b - left.a;
  }
  return left.a - b;
}

// -x is written minus<ID> * x.  0: x.
template <int ID>
struct Minus {};
template <int ID>
inline constexpr Minus<ID> minus{};
template <int ID, class T>
inline T operator*(Minus<ID>, const T& x) {
  return on<ID>() ? x : -x;
}

}  // namespace mutation
