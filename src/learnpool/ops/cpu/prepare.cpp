#include "prepare.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <sstream>
#include <string>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace learnpool {

const Kernels& choose_kernels(int64_t outputs) {
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

namespace {

Axis make_axis(const WindowNumbers& window, int64_t i, int64_t in) {
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

Type get_type(ScalarType type) {
  switch (type) {
    case ScalarType::Float: return Type::Float;
    case ScalarType::Double: return Type::Double;
    case ScalarType::Half: return Type::Half;
    case ScalarType::BFloat16: return Type::BFloat16;
    default: STD_TORCH_CHECK(false, "learnpool: input must be float16, bfloat16, float32 or float64, got dtype number ", int(type));
  }
}

std::string format_shape(const Tensor& t) {
  std::ostringstream text;
  for (int64_t i = 0; i < t.dim(); ++i) text << (i == 0 ? "[" : ", ") << t.size(i);
  text << (t.dim() == 0 ? "[]" : "]");
  return text.str();
}

Pooling make_pooling(const Tensor& x, const WindowNumbers& window) {
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

ParameterTensor check_parameter(const char* name, const Tensor& p, const Tensor& x, const Pooling& pool, int64_t rows,
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
  ParameterTensor given{p, rows, p.size(1), {1, 1, 1}, has_taps ? pool.taps() : 1, {}, {}};
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
int64_t choose_pitch(const Axis& axis, bool channels_last) {
  if (channels_last) return axis.out;
  int64_t pitch = std::max(axis.out, axis.position(axis.in - 1) + 1);
  for (int64_t k = axis.kernel - 1; k >= 0; --k) {
    if (axis.meets_cell(k)) return std::max(pitch, axis.out + k * axis.dilation / axis.stride);
  }
  return pitch;
}

// Cut the work by its shape alone. Gradients by region need a map per item, so there are fewer of them.
Items cut_items(const Pooling& pool, bool channels_last, const Sharing& sharing) {
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

void check_grad(const Tensor& grad, const Tensor& x, const Numbers& wanted) {
  STD_TORCH_CHECK(grad.is_cpu() && grad.scalar_type() == x.scalar_type(),
                  "learnpool: grad must be of the input's dtype on the CPU");
  const bool same = grad.dim() == x.dim() && std::equal(wanted.begin(), wanted.end(), grad.sizes().begin());
  STD_TORCH_CHECK(same, "learnpool: grad must have the output's shape, got shape ", format_shape(grad), " for input ",
                  format_shape(x));
}

}  // namespace

PreparedCall::PreparedCall(const Tensor& x, const WindowNumbers& window) : x_(x), slices_(nullptr, std::free) {
  call_.pool = make_pooling(x, window);
  Pooling& pool = call_.pool;
  Memory& memory = call_.memory;
  memory.channels_last = is_channels_last(pool.dims, x.dim(), x.sizes().data(), x.strides().data());
  memory.pitch = {choose_pitch(pool.d, memory.channels_last), choose_pitch(pool.h, memory.channels_last),
                  choose_pitch(pool.w, memory.channels_last)};
  x_ = make_dense(x, format());
  memory.x = x_.const_data_ptr();
  call_.items = cut_items(pool, memory.channels_last, sharing_);
}

void PreparedCall::set_tree(Program program, const Tensor& weight, const Tensor& mix) {
  Pooling& pool = call_.pool;
  pool.program = std::move(program);
  weight_ = check_parameter("weight", weight, x_, pool, pool.program.weights, true);
  mix_ = check_parameter("mix", mix, x_, pool, pool.program.mixes(), false);
  for (const std::vector<double>& filter : pool.program.filters) {
    STD_TORCH_CHECK(int64_t(filter.size()) == pool.taps(), "learnpool: a constant filter must have the window's ", pool.taps(),
                    " taps, got ", filter.size());
  }
  weight_.constants = pool.program.filters;
  for (double scalar : pool.program.scalars) mix_.constants.push_back({scalar});
  mix_.domains = pool.program.domains;
  sharing_ = {weight_.by_channel() || mix_.by_channel(), weight_.by_region() || mix_.by_region()};
  packed_weight_ = pack_parameter(weight_, call_, sharing_, call_.memory.weight);
  packed_mix_ = pack_parameter(mix_, call_, sharing_, call_.memory.mix);
  group_planes();
  call_.items = cut_items(pool, call_.memory.channels_last, sharing_);
}

void PreparedCall::set_picks(const std::optional<Tensor>& seed) {
  call_.pool.program = make_program(seed.has_value() ? Kind::Pick : Kind::Expect);
  if (!seed.has_value()) return;
  STD_TORCH_CHECK(
      seed->is_cpu() && seed->scalar_type() == ScalarType::Long && seed->dim() == 1 && seed->size(0) == call_.pool.batch,
      "learnpool: seed must have an int64 on the CPU for each of ", call_.pool.batch, " images, got shape ", format_shape(*seed),
      " and dtype number ", int(seed->scalar_type()));
  seeds_ = make_dense(*seed);
  call_.memory.seeds = static_cast<const int64_t*>(seeds_->const_data_ptr());
}

Tensor PreparedCall::set_grad(const Tensor& grad, bool input_grad) {
  check_grad(grad, x_, output_shape());
  grad_ = make_dense(grad, format());
  call_.pool.backward = true;
  call_.pool.input_grad = input_grad;
  call_.memory.grad = grad_->const_data_ptr();
  if (!input_grad) return make_tensor({0}, x_);
  Tensor dx = allocate(get_shape(x_));
  call_.memory.y = dx.mutable_data_ptr();
  return dx;
}

void PreparedCall::set_parameter_grads(bool weight_grad, bool mix_grad) {
  Pooling& pool = call_.pool;
  Memory& memory = call_.memory;
  pool.weight_grad = weight_grad && pool.program.weights > 0;
  pool.mix_grad = mix_grad && pool.program.mixes() > 0;
  const int64_t channels = call_.items.channel_step;
  if (pool.weight_grad) memory.dweight = make_strides(weight_.rows, weight_.taps, memory, sharing_, channels);
  if (pool.mix_grad) memory.dmix = make_strides(mix_.rows, 1, memory, sharing_, channels);
  memory.dmix_offset = pool.program.weights * memory.dweight.row;
  // Vectors may add zeros past the end, and items keep off each other's cache lines.
  memory.slice = memory.dmix_offset + pool.program.mixes() * memory.dmix.row + 64;
  const size_t bytes = pool.type == Type::Double ? sizeof(double) : sizeof(float);
  slices_.reset(std::calloc(call_.items.count() * memory.slice, bytes));
  if (slices_ == nullptr) throw std::bad_alloc();
  memory.slices = slices_.get();
}

Tensor PreparedCall::compute() {
  Tensor y = allocate(output_shape());
  call_.memory.y = y.mutable_data_ptr();
  run();
  return y;
}

void PreparedCall::run() const {
  if (call_.pool.batch == 0) return;
  const Kernels& kernels = choose_kernels(call_.memory.channels_last ? call_.pool.channels : call_.memory.pitch.size());
  torch::stable::parallel_for(0, call_.items.count(), choose_grain(),
                              [&](int64_t begin, int64_t end) { kernels.run(call_, begin, end); });
}

Tensor PreparedCall::make_weight_grad(const Tensor& like, bool wanted) const {
  return wanted ? make_gradient(weight_, call_, sharing_, call_.memory.dweight, 0, like) : make_tensor({0}, like);
}

Tensor PreparedCall::make_mix_grad(const Tensor& like, bool wanted) const {
  return wanted ? make_gradient(mix_, call_, sharing_, call_.memory.dmix, call_.memory.dmix_offset, like) : make_tensor({0}, like);
}

MemoryFormat PreparedCall::format() const {
  if (!call_.memory.channels_last) return MemoryFormat::Contiguous;
  return call_.pool.dims == 2 ? MemoryFormat::ChannelsLast : MemoryFormat::ChannelsLast3d;
}

Numbers PreparedCall::output_shape() const {
  Numbers shape = get_shape(x_);
  const Axis* axes[] = {&call_.pool.w, &call_.pool.h, &call_.pool.d};
  for (int64_t i = 0; i < call_.pool.dims; ++i) shape[shape.size() - 1 - i] = axes[i]->out;
  return shape;
}

Tensor PreparedCall::allocate(const Numbers& shape) const {
  Tensor fresh = make_tensor(shape, x_, format());
#if defined(__linux__)
  // Large new memory is paid for page by page on first touch, which costs more than the pooling; ask for large pages.
  const uintptr_t page = uintptr_t(1) << 21, address = reinterpret_cast<uintptr_t>(fresh.data_ptr());
  const uintptr_t begin = (address + page - 1) / page * page, end = (address + fresh.numel() * fresh.element_size()) / page * page;
  if (fresh.numel() > 0 && end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
  return fresh;
}

// How many items a thread takes at least: fewer would be done before it is awake.
int64_t PreparedCall::choose_grain() const {
  constexpr int64_t LEAST_STEPS = 1 << 16;  // about ten microseconds of a forward
  const Pooling& pool = call_.pool;
  const int64_t responses = int64_t(pool.program.responses.size());
  const int64_t steps = pool.batch * pool.channels * pool.cells() * (1 + responses) * (pool.backward ? 3 : 1);
  return divide_up(LEAST_STEPS * call_.items.count(), std::max(steps, LEAST_STEPS));
}

// Small planes with the same parameters are taken several at a time, one behind another: as the depth of one larger plane, over
// which no window reaches.
void PreparedCall::group_planes() {
  Pooling& pool = call_.pool;
  Pitch& pitch = call_.memory.pitch;
  if (call_.memory.channels_last || sharing_.by_channel || sharing_.by_region || pool.dims == 3) return;
  const int64_t planes = pool.batch * pool.channels;
  int64_t group = std::min(planes, PIECE_BYTES / (pool.type == Type::Double ? 8 : 4) / pitch.size());
  while (group > 1 && planes % group != 0) --group;
  if (group <= 1) return;
  pool.batch = 1;
  pool.channels = planes / group;
  pool.d.in = pool.d.out = pitch.d = group;
}

}  // namespace learnpool
