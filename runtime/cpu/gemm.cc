#include "runtime/cpu/gemm.h"

#include <omp.h>

#include <dnnl_debug.h>
#include <algorithm>
#include <dnnl.hpp>
#include <string>
#include <unordered_map>
#include <utility>

#include "runtime/cpu/open_blas.h"
#include "runtime/cpu/pages.h"

namespace windtunnel::cpu {
namespace {

constexpr int kCblasRowMajor = 101, kCblasNoTranspose = 111, kCblasTranspose = 112;

// Largest number of multiply-adds for which OpenBLAS's small-matrix kernels, which read the operands in
// place, beat a primitive's fixed cost and its copies (README.md): with B as stored, and with B transposed.
// OpenBLAS itself stops using them at the first limit.
constexpr int64_t kSmallProduct = 1'000'000;
constexpr int64_t kSmallTransposedProduct = 32'000;
// Conditions under which oneDNN's sgemm beats its matmul: C has few rows, or B is large and not transposed.
constexpr int64_t kFewRows = 16;
constexpr int64_t kLargeB = 1'500'000;  // elements

struct ProblemHash {
  size_t operator()(const GemmProblem& p) const {
    uint64_t hash = 0;
    for (int64_t value : {p.m, p.n, p.k, p.lda, p.ldb, p.ldc}) {
      hash = (hash ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 32;
    }
    hash ^= std::hash<float>()(p.alpha) + 3 * std::hash<float>()(p.beta);
    const bool is_bf16 = p.dtype == DType::kBFloat16;
    return hash * 32 + is_bf16 * 16 + p.transpose_a * 8 + p.transpose_b * 4 + p.bias * 2 + p.accumulate;
  }
};

dnnl::memory::desc Matrix(DType dtype, int64_t rows, int64_t columns, bool transposed, int64_t stride) {
  using Type = dnnl::memory::data_type;
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, columns}, dtype == DType::kBFloat16 ? Type::bf16 : Type::f32, strides};
}

dnnl::matmul::primitive_desc Describe(const GemmProblem& p, const dnnl::engine& engine) {
  const dnnl::memory::desc a = Matrix(p.dtype, p.m, p.k, p.transpose_a, p.lda);
  const dnnl::memory::desc b = Matrix(p.dtype, p.k, p.n, p.transpose_b, p.ldb);
  const dnnl::memory::desc c = Matrix(p.dtype, p.m, p.n, false, p.ldc);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.accumulate) {
    dnnl::post_ops add_to_c;
    add_to_c.append_sum(p.beta);
    attributes.set_post_ops(add_to_c);
  }
  if (p.alpha != 1) attributes.set_output_scales(/*mask=*/0, {p.alpha});
  const dnnl::matmul::desc product =
      p.bias ? dnnl::matmul::desc(a, b, Matrix(p.dtype, 1, p.n, false, p.n), c) : dnnl::matmul::desc(a, b, c);
  return {product, attributes, engine};
}

std::string Describe(const GemmProblem& p) {
  return fmt::format("{} {}{} m={} n={} k={}", Name(p.dtype), p.transpose_a ? 't' : 'n',
                     p.transpose_b ? 't' : 'n', p.m, p.n, p.k);
}

// C += bias or C = bias, before the product is added.
void PutBias(const GemmProblem& p, const float* bias, float* c) {
  for (int64_t row = 0; row < p.m; ++row) {
    float* out = c + row * p.ldc;
    if (p.accumulate) {
      for (int64_t j = 0; j < p.n; ++j) out[j] += bias[j];
    } else {
      std::copy(bias, bias + p.n, out);
    }
  }
}

Status OneDnnSgemm(const GemmProblem& p, const float* a, const float* b, float beta, float* c) {
  const dnnl_status_t status = dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k,
                                          p.alpha, a, p.lda, b, p.ldb, beta, c, p.ldc);
  if (status != dnnl_success) {
    return Failed("oneDNN's sgemm {} failed: {}", Describe(p), dnnl_status2str(status));
  }
  return Ok();
}

Status OpenBlasSgemm(const GemmProblem& p, const float* a, const float* b, float beta, float* c) {
  const Result<OpenBlas>& blas = OpenBlas::Get();
  if (!blas) return tl::unexpected(blas.error());
  blas->sgemm(kCblasRowMajor, p.transpose_a ? kCblasTranspose : kCblasNoTranspose,
              p.transpose_b ? kCblasTranspose : kCblasNoTranspose, static_cast<int>(p.m),
              static_cast<int>(p.n), static_cast<int>(p.k), p.alpha, a, static_cast<int>(p.lda), b,
              static_cast<int>(p.ldb), beta, c, static_cast<int>(p.ldc));
  return Ok();
}

}  // namespace

// A matmul primitive with the memory objects that pass its arguments. Their addresses change with every call.
struct GemmEngine::Prepared {
  dnnl::matmul primitive;
  dnnl::memory a, b, bias, c, scratchpad;
  size_t scratchpad_bytes = 0;
};

struct GemmEngine::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  bool generates_fp32 = false, generates_bf16 = false;  // AVX-512, AVX-512 BF16
  std::unordered_map<GemmProblem, Prepared, ProblemHash> prepared;
  PageRegion scratchpad;
};

namespace {

// Whether oneDNN's matmul generates code for AVX-512 ("brg:…"). Otherwise it runs the same code as its sgemm
// call, with a primitive's cost on top, and has nothing fast for bf16.
bool Generates(DType dtype, const dnnl::engine& engine) {
  try {
    GemmProblem probe = GemmProblem::Dense(64, 64, 64, false, false);
    probe.dtype = dtype;
    return std::string_view(Describe(probe, engine).impl_info_str()).starts_with("brg");
  } catch (const dnnl::error&) {
    return false;
  }
}

}  // namespace

GemmEngine::GemmEngine() : state_(std::make_unique<State>()) {
  if (const Result<OpenBlas>& blas = OpenBlas::Get()) blas->set_threads(1);
  UseOneThread();
  state_->generates_fp32 = Generates(DType::kFloat32, state_->engine);
  state_->generates_bf16 = Generates(DType::kBFloat16, state_->engine);
}

GemmEngine::~GemmEngine() = default;

GemmLibrary GemmEngine::Choose(const GemmProblem& p) const {
  const int64_t size = p.m * p.n * p.k;
  if (size <= kSmallTransposedProduct) return GemmLibrary::kOpenBlas;
#if defined(__x86_64__)
  if (!state_->generates_fp32) return GemmLibrary::kOneDnnSgemm;
  if (!p.transpose_b && size <= kSmallProduct) return GemmLibrary::kOpenBlas;
  if (p.m <= kFewRows || (!p.transpose_b && p.n * p.k > kLargeB)) return GemmLibrary::kOneDnnSgemm;
  return GemmLibrary::kOneDnnMatmul;
#else
  return GemmLibrary::kOpenBlas;  // on other processors oneDNN's sgemm is portable C++
#endif
}

// Makes the problem's primitive on first use; generating its code takes 15 us to 1 ms.
Result<GemmEngine::Prepared*> GemmEngine::Prepare(const GemmProblem& problem) {
  const auto found = state_->prepared.find(problem);
  if (found != state_->prepared.end()) return &found->second;
  Prepared prepared;
  try {
    const dnnl::matmul::primitive_desc description = Describe(problem, state_->engine);
    prepared.primitive = dnnl::matmul(description);
    prepared.a = dnnl::memory(description.src_desc(), state_->engine, nullptr);
    prepared.b = dnnl::memory(description.weights_desc(), state_->engine, nullptr);
    if (problem.bias) prepared.bias = dnnl::memory(description.bias_desc(), state_->engine, nullptr);
    prepared.c = dnnl::memory(description.dst_desc(), state_->engine, nullptr);
    prepared.scratchpad = dnnl::memory(description.scratchpad_desc(), state_->engine, nullptr);
    prepared.scratchpad_bytes = description.scratchpad_desc().get_size();
  } catch (const dnnl::error& error) {
    return Failed("oneDNN cannot make a matmul {}: {}", Describe(problem), error.what());
  }
  return &state_->prepared.emplace(problem, std::move(prepared)).first->second;
}

Status GemmEngine::RunMatmul(const GemmProblem& problem, const void* a, const void* b, const void* bias,
                             void* c) {
  WT_ASSIGN_OR_RETURN(Prepared * found, Prepare(problem));
  Prepared& prepared = *found;
  if (static_cast<int64_t>(prepared.scratchpad_bytes) > state_->scratchpad.bytes().count()) {
    WT_ASSIGN_OR_RETURN(state_->scratchpad,
                        PageRegion::Map(Bytes(static_cast<int64_t>(prepared.scratchpad_bytes))));
  }
  int count = 0;
  dnnl_exec_arg_t arguments[5];
  const auto pass = [&](int name, dnnl::memory& memory, const void* address) {
    dnnl_memory_set_data_handle(memory.get(), const_cast<void*>(address));
    arguments[count++] = {name, memory.get()};
  };
  pass(DNNL_ARG_SRC, prepared.a, a);
  pass(DNNL_ARG_WEIGHTS, prepared.b, b);
  if (problem.bias) pass(DNNL_ARG_BIAS, prepared.bias, bias);
  pass(DNNL_ARG_DST, prepared.c, c);
  pass(DNNL_ARG_SCRATCHPAD, prepared.scratchpad, state_->scratchpad.data());
  // The C call: the C++ one builds a hash map of the arguments each time.
  const dnnl_status_t status =
      dnnl_primitive_execute(prepared.primitive.get(), state_->stream.get(), count, arguments);
  if (status != dnnl_success) {
    return Failed("oneDNN's matmul {} failed: {}", Describe(problem), dnnl_status2str(status));
  }
  return Ok();
}

Status GemmEngine::Run(const GemmProblem& problem, const float* a, const float* b, const float* bias,
                       float* c) {
  return RunWith(Choose(problem), problem, a, b, bias, c);
}

bool GemmEngine::MultipliesBFloat16() const { return state_->generates_bf16; }

Status GemmEngine::Run(const GemmProblem& problem, const BFloat16* a, const BFloat16* b, const BFloat16* bias,
                       BFloat16* c) {
  WT_CHECK(problem.dtype == DType::kBFloat16);
  return RunMatmul(problem, a, b, bias, c);
}

Status GemmEngine::RunWith(GemmLibrary library, const GemmProblem& problem, const float* a, const float* b,
                           const float* bias, float* c) {
  if (library == GemmLibrary::kOneDnnMatmul) return RunMatmul(problem, a, b, bias, c);
  WT_CHECK(!problem.bias || (problem.alpha == 1 && problem.beta == 1));
  if (problem.bias) PutBias(problem, bias, c);
  const float beta = problem.bias ? 1.0f : problem.accumulate ? problem.beta : 0.0f;
  if (library == GemmLibrary::kOneDnnSgemm) return OneDnnSgemm(problem, a, b, beta, c);
  return OpenBlasSgemm(problem, a, b, beta, c);
}

void UseOneThread() { omp_set_num_threads(1); }

std::string OneDnnVersion() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

std::string OpenBlasVersion() {
  const Result<OpenBlas>& blas = OpenBlas::Get();
  return blas ? fmt::format("{} ({})", blas->config(), blas->core_name()) : "none";
}

std::string_view Name(GemmLibrary library) {
  switch (library) {
    case GemmLibrary::kOneDnnMatmul:
      return "onednn_matmul";
    case GemmLibrary::kOneDnnSgemm:
      return "onednn_sgemm";
    case GemmLibrary::kOpenBlas:
      return "openblas";
  }
  return "?";
}

}  // namespace windtunnel::cpu
