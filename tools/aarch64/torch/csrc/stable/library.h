// Stands in for PyTorch's header of this name: operators by name. A boxed operator reads its arguments from stdin, by their
// types, and writes what it returns to stdout; emulated_kernels.py is the other end.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace torch::stable {

inline void read_bytes(void* to, int64_t count) {
  if (count > 0 && std::fread(to, 1, count, stdin) != size_t(count)) std::exit(std::feof(stdin) ? 0 : 1);
}

inline void write_bytes(const void* from, int64_t count) {
  if (count > 0 && std::fwrite(from, 1, count, stdout) != size_t(count)) std::exit(1);
}

inline int64_t read_number() {
  int64_t number;
  read_bytes(&number, sizeof number);
  return number;
}

inline void write_number(int64_t number) { write_bytes(&number, sizeof number); }

template <class T>
struct Wire;  // how an argument of type T is read

template <>
struct Wire<bool> {
  static bool read() { return read_number() != 0; }
};

template <>
struct Wire<int64_t> {
  static int64_t read() { return read_number(); }
};

template <class E>
struct Wire<std::vector<E>> {
  static std::vector<E> read() {
    std::vector<E> numbers(read_number());
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = E(read_number());
    return numbers;
  }
};

template <>
struct Wire<std::string> {
  static std::string read() {
    std::string text(read_number(), ' ');
    read_bytes(text.data(), int64_t(text.size()));
    return text;
  }
};

template <>
struct Wire<Tensor> {
  static Tensor read() {
    const ScalarType type = ScalarType(read_number());
    const Numbers sizes = Wire<Numbers>::read(), strides = Wire<Numbers>::read();
    Tensor t(sizes, strides, type);
    read_bytes(t.data_ptr(), t.reach() * t.element_size());
    return t;
  }
};

template <class T>
struct Wire<std::optional<T>> {
  static std::optional<T> read() {
    if (read_number() == 0) return std::nullopt;
    return Wire<T>::read();
  }
};

inline void write(const std::string& text) {
  write_number(int64_t(text.size()));
  write_bytes(text.data(), int64_t(text.size()));
}

inline void write(const Tensor& t) {
  write_number(int64_t(t.scalar_type()));
  for (const Numbers* numbers : {&t.sizes(), &t.strides()}) {
    write_number(int64_t(numbers->size()));
    for (int64_t number : *numbers) write_number(number);
  }
  write_bytes(t.const_data_ptr(), t.reach() * t.element_size());
}

template <class... Results>
void write(const std::tuple<Results...>& results) {
  std::apply([](const auto&... each) { (write(each), ...); }, results);
}

// Read the arguments of a call, make it, and write an empty text and its results, or the text of its error.
template <class Result, class... Arguments>
void call_boxed(Result (*f)(Arguments...)) {
  std::tuple<std::decay_t<Arguments>...> arguments{Wire<std::decay_t<Arguments>>::read()...};
  try {
    const Result result = std::apply(f, arguments);
    write(std::string());
    write(result);
  } catch (const std::exception& error) {
    write(std::string(error.what()));
  }
}

template <auto FUNCTION>
void box() {
  call_boxed(FUNCTION);
}

struct Library {
  std::map<std::string, void (*)()> operators;

  void def(const char*) {}
  void impl(const char* name, void (*boxed)()) { operators[name] = boxed; }
};

inline Library& get_library() {
  static Library library;
  return library;
}

}  // namespace torch::stable

#define TORCH_BOX(function) torch::stable::box<function>

#define STABLE_TORCH_LIBRARY_FRAGMENT(name, m) [[maybe_unused]] static void define_operators(torch::stable::Library& m)

#define STABLE_TORCH_LIBRARY_IMPL(name, key, m)                                                       \
  static void add_kernels(torch::stable::Library& m);                                                 \
  [[maybe_unused]] static const bool has_kernels = (add_kernels(torch::stable::get_library()), true); \
  static void add_kernels(torch::stable::Library& m)
