// A call of an operator made ready for the kernels: its arguments checked, its memory laid out, its work cut for threads.
#pragma once

#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "call.h"
#include "parameters.h"
#include "tensors.h"

namespace learnpool {

// The widest instruction set this machine has; a narrower one where `outputs` would leave half a vector empty.
inline const Kernels& choose_kernels(int64_t outputs) {
  static const Kernels& widest = []() -> const Kernels& {
#if defined(__x86_64__)
    // LEARNPOOL_ISA holds back from the widest instructions, for tests and comparisons.
    const char* wanted = std::getenv("LEARNPOOL_ISA");
    const std::string limit = wanted == nullptr ? "avx512" : wanted;
    const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    unsigned eax, ebx, ecx = 0, edx;  // not every compiler can be asked for f16c by name
    const bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
    const bool has_avx2 = has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (limit == "avx512" && has_avx512) return avx512;
    if ((limit == "avx512" || limit == "avx2") && has_avx2) return avx2;
#endif
    return baseline;
  }();
#if defined(__x86_64__)
  if (outputs * 2 <= widest.lanes && widest.lanes > avx2.lanes) return avx2;
#endif
  return widest;
}

// The operator's arguments that are no tensors.
struct WindowNumbers {
  const Numbers &kernel, &stride, &padding, &dilation;
  bool ceil_mode, count_include_pad;
};

inline Axis make_axis(const WindowNumbers& window, int64_t i, int64_t in) {
  const Axis given{in, 1, window.kernel[i], window.stride[i], window.padding[i], window.dilation[i]};
  const auto& [n, out, k, s, p, d] = given;
  STD_TORCH_CHECK(n >= 1 && n <= LARGEST_NUMBER << 8, "learnpool: axis ", i, " of the input has ", n, " cells");
  STD_TORCH_CHECK(
      k >= 1 && s >= 1 && p >= 0 && d >= 1 && k <= MOST_TAPS && s <= LARGEST_NUMBER && d <= LARGEST_NUMBER && p <= k / 2,
      "learnpool: illegal window: kernel ", k, ", stride ", s, ", padding ", p, ", dilation ", d, " along axis ", i);
  Axis axis = given;
  axis.out = output_size(given, window.ceil_mode);
  STD_TORCH_CHECK(axis.out >= 1, "learnpool: window ", k, " with padding ", p, " and dilation ", d, " does not fit into ", n,
                  " cells along axis ", i);
  return axis;
}

inline Type get_type(ScalarType type) {
  switch (type) {
    case ScalarType::Float: return Type::Float;
    case ScalarType::Double: return Type::Double;
    case ScalarType::Half: return Type::Half;
    case ScalarType::BFloat16: return Type::BFloat16;
    default: STD_TORCH_CHECK(false, "learnpool: input must be float16, bfloat16, float32 or float64, got dtype number ", int(type));
  }
}

inline std::string format_shape(const Tensor& t) {
  std::ostringstream text;
  for (int64_t i = 0; i < t.dim(); ++i) text << (i == 0 ? "[" : ", ") << t.size(i);
  text << (t.dim() == 0 ? "[]" : "]");
  return text.str();
}

inline Pooling make_pooling(const Tensor& x, const WindowNumbers& window) {
  const int64_t dims = int64_t(window.kernel.size());
  STD_TORCH_CHECK(dims >= 1 && dims <= 3, "learnpool: kernel must have 1, 2 or 3 numbers, got ", dims);
  for (const Numbers* numbers : {&window.stride, &window.padding, &window.dilation}) {
    STD_TORCH_CHECK(int64_t(numbers->size()) == dims, "learnpool: stride, padding and dilation must have ", dims,
                    " numbers like the kernel, got ", numbers->size());
  }
  STD_TORCH_CHECK(x.dim() == dims + 1 || x.dim() == dims + 2, "learnpool: input must have ", dims + 1, " or ", dims + 2,
                  " dimensions, got shape ", format_shape(x));
  Pooling pool;
  pool.type = get_type(x.scalar_type());
  pool.dims = dims;
  pool.count_include_pad = window.count_include_pad;
  pool.batch = x.dim() == dims + 2 ? x.size(0) : 1;
  pool.channels = x.size(x.dim() - dims - 1);
  STD_TORCH_CHECK(pool.channels >= 1, "learnpool: only the batch may be empty, got shape ", format_shape(x));
  Axis* axes[] = {&pool.d, &pool.h, &pool.w};
  int64_t taps = 1;
  for (int64_t i = 0; i < dims; ++i) {
    *axes[3 - dims + i] = make_axis(window, i, x.size(x.dim() - dims + i));
    STD_TORCH_CHECK(window.kernel[i] <= MOST_TAPS / taps, "learnpool: a window has at most ", MOST_TAPS, " taps, got ", taps, " × ",
                    window.kernel[i]);
    taps *= window.kernel[i];
  }
  return pool;
}

inline ParameterTensor check_parameter(const char* name, const Tensor& p, const Tensor& x, const Pooling& pool, int64_t rows,
                                       bool has_taps) {
  const int64_t dims = pool.dims, lead = 2 + dims;
  STD_TORCH_CHECK(p.is_cpu(), "learnpool: ", name, " must be on the input's device, the CPU");
  STD_TORCH_CHECK(p.scalar_type() == ScalarType::Float || p.scalar_type() == x.scalar_type(), "learnpool: ", name,
                  " must be float32 or of the input's dtype, got dtype number ", int(p.scalar_type()));
  STD_TORCH_CHECK(p.dim() == lead + (has_taps ? dims : 0) && p.size(0) == rows, "learnpool: ", name, " must have ",
                  lead + (has_taps ? dims : 0), " dimensions and ", rows, " rows, got shape ", format_shape(p));
  STD_TORCH_CHECK(p.size(1) == 1 || p.size(1) == pool.channels, "learnpool: ", name, " must be for 1 or ", pool.channels,
                  " channels, got shape ", format_shape(p));
  const Axis* axes[] = {&pool.d, &pool.h, &pool.w};
  ParameterTensor given{p, rows, p.size(1), {1, 1, 1}, has_taps ? pool.taps() : 1};
  for (int64_t i = 0; i < dims; ++i) {
    const Axis& axis = *axes[3 - dims + i];
    STD_TORCH_CHECK(p.size(2 + i) == 1 || p.size(2 + i) == axis.out, "learnpool: ", name, " must be for 1 or ", axis.out,
                    " regions along axis ", i, ", got shape ", format_shape(p));
    STD_TORCH_CHECK(!has_taps || p.size(lead + i) == axis.kernel, "learnpool: ", name, " must have ", axis.kernel,
                    " taps along axis ", i, ", got shape ", format_shape(p));
    given.grid[3 - dims + i] = p.size(2 + i);
  }
  given.tensor = make_dense(convert(p, x.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float));
  return given;
}

// Room in every map for the last output's last tap that meets a cell, and for every cell.
inline int64_t choose_pitch(const Axis& axis, bool channels_last) {
  if (channels_last) return axis.out;
  int64_t pitch = std::max(axis.out, axis.position(axis.in - 1) + 1);
  for (int64_t k = axis.kernel - 1; k >= 0; --k) {
    if (axis.meets_cell(k)) return std::max(pitch, axis.out + k * axis.dilation / axis.stride);
  }
  return pitch;
}

// Cut the work by its shape alone. Gradients by region need a map per item, so there are fewer of them.
inline Items cut_items(const Pooling& pool, bool channels_last, const Sharing& sharing) {
  const int64_t target = sharing.by_region && (channels_last || !sharing.by_channel) ? 16 : 64;
  const int64_t batch = std::max<int64_t>(pool.batch, 1), channels = pool.channels;
  auto cut = [](int64_t n, int64_t pieces) { return divide_up(n, std::max<int64_t>(1, std::min(n, pieces))); };
  Items items{channels, pool.batch, 1, 1};
  if (channels_last) {
    // Whole images where there are enough of them: cells of all channels are neighbours in memory.
    items.channel_step = batch >= 8 ? channels : std::min<int64_t>(channels, 64);
    items.batch_step = cut(batch, divide_up(target, items.along_channels()));
  } else if (sharing.by_channel) {
    items.batch_step = cut(batch, divide_up(target, channels));
  } else {
    items.batch_step = cut(batch, target);
    items.channel_step = cut(channels, divide_up(target, divide_up(batch, items.batch_step)));
  }
  return items;
}

inline void check_grad(const Tensor& grad, const Tensor& x, const Numbers& wanted) {
  STD_TORCH_CHECK(grad.is_cpu() && grad.scalar_type() == x.scalar_type(),
                  "learnpool: grad must be of the input's dtype on the CPU");
  const bool same = grad.dim() == x.dim() && std::equal(wanted.begin(), wanted.end(), grad.sizes().begin());
  STD_TORCH_CHECK(same, "learnpool: grad must have the output's shape, got shape ", format_shape(grad), " for input ",
                  format_shape(x));
}

// One call and the memory behind it.
struct PreparedCall {
  Call call;
  Sharing sharing;
  ParameterTensor weight, mix;
  Tensor x;
  std::optional<Tensor> grad, seeds;
  std::vector<char> packed_weight, packed_mix;

  PreparedCall(const Tensor& given_x, const WindowNumbers& window) : x(given_x) {
    call.pool = make_pooling(x, window);
    Pooling& pool = call.pool;
    Memory& memory = call.memory;
    memory.channels_last = is_channels_last(pool.dims, x.dim(), x.sizes().data(), x.strides().data());
    memory.pitch = {choose_pitch(pool.d, memory.channels_last), choose_pitch(pool.h, memory.channels_last),
                    choose_pitch(pool.w, memory.channels_last)};
    x = make_dense(x, format());
    memory.x = x.const_data_ptr();
    call.items = cut_items(pool, memory.channels_last, sharing);
  }
  PreparedCall(const PreparedCall&) = delete;

  void set_tree(const Program& program, const Tensor& given_weight, const Tensor& given_mix, bool clamp) {
    Pooling& pool = call.pool;
    pool.program = program;
    weight = check_parameter("weight", given_weight, x, pool, pool.program.weights, true);
    mix = check_parameter("mix", given_mix, x, pool, pool.program.mixes, false);
    mix.clamped = clamp;
    sharing = {weight.by_channel() || mix.by_channel(), weight.by_region() || mix.by_region()};
    packed_weight = pack_parameter(weight, call.memory.weight);
    packed_mix = pack_parameter(mix, call.memory.mix);
    group_planes();
    call.items = cut_items(pool, call.memory.channels_last, sharing);
  }

  // A random cell of each region, or the expected one if there is no seed.
  void set_picks(const std::optional<Tensor>& seed) {
    call.pool.rule = seed.has_value() ? Rule::Pick : Rule::Expect;
    if (!seed.has_value()) return;
    STD_TORCH_CHECK(
        seed->is_cpu() && seed->scalar_type() == ScalarType::Long && seed->dim() == 1 && seed->size(0) == call.pool.batch,
        "learnpool: seed must have an int64 on the CPU for each of ", call.pool.batch, " images, got shape ", format_shape(*seed),
        " and dtype number ", int(seed->scalar_type()));
    seeds = make_dense(*seed);
    call.memory.seeds = static_cast<const int64_t*>(seeds->const_data_ptr());
  }

  // The gradient of the output, from here on; returns that of x, to be filled.
  Tensor set_grad(const Tensor& given_grad, bool input_grad) {
    check_grad(given_grad, x, output_shape());
    grad = make_dense(given_grad, format());
    call.pool.backward = true;
    call.pool.input_grad = input_grad;
    call.memory.grad = grad->const_data_ptr();
    if (!input_grad) return make_tensor({0}, x);
    Tensor dx = allocate(get_shape(x));
    call.memory.y = dx.mutable_data_ptr();
    return dx;
  }

  // The output of a forward call.
  Tensor compute() {
    Tensor y = allocate(output_shape());
    call.memory.y = y.mutable_data_ptr();
    run();
    return y;
  }

  MemoryFormat format() const {
    if (!call.memory.channels_last) return MemoryFormat::Contiguous;
    return call.pool.dims == 2 ? MemoryFormat::ChannelsLast : MemoryFormat::ChannelsLast3d;
  }

  Numbers output_shape() const {
    Numbers shape = get_shape(x);
    const Axis* axes[] = {&call.pool.w, &call.pool.h, &call.pool.d};
    for (int64_t i = 0; i < call.pool.dims; ++i) shape[shape.size() - 1 - i] = axes[i]->out;
    return shape;
  }

  Tensor allocate(const Numbers& shape) const {
    Tensor fresh = make_tensor(shape, x, format());
#if defined(__linux__)
    // Large new memory is paid for page by page on first touch, which costs more than the pooling; ask for large pages.
    const uintptr_t page = uintptr_t(1) << 21, address = reinterpret_cast<uintptr_t>(fresh.data_ptr());
    const uintptr_t begin = (address + page - 1) / page * page,
                    end = (address + fresh.numel() * fresh.element_size()) / page * page;
    if (fresh.numel() > 0 && end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
    return fresh;
  }

  void run() const {
    if (call.pool.batch == 0) return;
    const Kernels& kernels = choose_kernels(call.memory.channels_last ? call.pool.channels : call.memory.pitch.size());
    const auto kernel = call.pool.backward ? kernels.backward : kernels.forward;
    torch::stable::parallel_for(0, call.items.count(), choose_grain(),
                                [&](int64_t begin, int64_t end) { kernel(call, begin, end); });
  }

  Tensor make_grad(const ParameterTensor& given, const Parameter& strides, int64_t offset, const Tensor& like) const {
    if (given.rows == 0) return make_tensor(get_shape(like), like);
    Tensor sums = call.pool.type == Type::Double ? add_slices<double>(given, call, sharing, strides, offset)
                                                 : add_slices<float>(given, call, sharing, strides, offset);
    const Tensor grad = convert(sums, like.scalar_type());
    if (!given.clamped) return grad;
    const Tensor rounded = convert(grad, sums.scalar_type());  // what is infinite then is not dropped
    if (call.pool.type == Type::Double) drop_outward<double>(given, rounded, sums);
    else drop_outward<float>(given, rounded, sums);
    return convert(sums, like.scalar_type());
  }

 private:
  // How many items a thread takes at least: fewer would be done before it is awake.
  int64_t choose_grain() const {
    constexpr int64_t LEAST_STEPS = 1 << 16;  // about ten microseconds of a forward
    const Pooling& pool = call.pool;
    const int64_t steps = pool.batch * pool.channels * pool.cells() * (1 + pool.program.weights) * (pool.backward ? 3 : 1);
    return divide_up(LEAST_STEPS * call.items.count(), std::max(steps, LEAST_STEPS));
  }

  // Small planes with the same parameters are taken several at a time, one behind another: as the depth of one larger plane, over
  // which no window reaches.
  void group_planes() {
    Pooling& pool = call.pool;
    Pitch& pitch = call.memory.pitch;
    if (call.memory.channels_last || sharing.by_channel || sharing.by_region || pool.dims == 3) return;
    const int64_t planes = pool.batch * pool.channels;
    int64_t group = std::min(planes, PIECE_BYTES / (pool.type == Type::Double ? 8 : 4) / pitch.size());
    while (group > 1 && planes % group != 0) --group;
    if (group <= 1) return;
    pool.batch = 1;
    pool.channels = planes / group;
    pool.d.in = pool.d.out = pitch.d = group;
  }

  std::vector<char> pack_parameter(const ParameterTensor& given, Parameter& strides) {
    return call.pool.type == Type::Double ? pack<double>(given, call, sharing, strides)
                                          : pack<float>(given, call, sharing, strides);
  }
};

}  // namespace learnpool
