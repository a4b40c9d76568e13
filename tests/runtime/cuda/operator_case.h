// One operator with operands. Parity tests run it on the cpu device and on another one, and compare.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/op.h"
#include "runtime/device.h"

namespace windtunnel::test {

// A buffer's content on the host. Written buffers begin as NaN (integers: -1), unless the operator also reads
// them.
struct Buffer {
  DType dtype = DType::kFloat32;
  std::vector<uint8_t> bytes;
  bool compared = true;  // false for a workspace, whose content after the kernel does not matter
  double tolerance = 0;  // if more than the type's: of sums whose terms nearly cancel

  int64_t elements() const { return static_cast<int64_t>(bytes.size()) / SizeOf(dtype).count(); }
};

struct OperatorCase {
  std::string name;
  OpKind kind;
  KernelContext context = {};
  std::vector<Buffer> buffers = {};
  std::vector<size_t> reads = {}, writes = {};  // indices of buffers
  // The elements by which each buffer is off a 16-byte boundary: kernels have a path for unaligned buffers.
  int64_t offset = 0;
  bool repeats_bits = true;  // whether every device gives the same bits each time

  // Add operands in the order of plan/ops.h. Values are standard normal times `scale`, drawn from a random
  // stream by the buffer's index.
  OperatorCase& Read(DType dtype, int64_t elements, double scale = 1.0);
  OperatorCase& ReadIndices(int64_t elements, int64_t bound);
  OperatorCase& ReadIntegers(const std::vector<int32_t>& values);
  OperatorCase& ReadValues(const Buffer& buffer);
  OperatorCase& Write(DType dtype, int64_t elements);
  OperatorCase& Workspace(int64_t elements);
  // A write to a buffer that has content: an accumulator, or a tensor that is updated in place.
  OperatorCase& Update(DType dtype, int64_t elements, double scale = 1.0);
  // A write to the buffer of the `read`-th read.
  OperatorCase& WriteToRead(size_t read);
};

// Where a case runs.
class Bench {
 public:
  virtual ~Bench() = default;
  virtual Device& device() = 0;
  // Memory in which the device computes, freed by Clear or with the bench.
  virtual void* Allocate(int64_t bytes) = 0;
  virtual void Clear() = 0;
  virtual void Upload(void* to, const std::vector<uint8_t>& bytes) = 0;
  // Waits for all launched work first.
  virtual void Download(const void* from, std::vector<uint8_t>& bytes) = 0;
};

// For devices that compute in the host's memory, and have finished when Launch returns.
class HostBench : public Bench {
 public:
  explicit HostBench(std::unique_ptr<Device> device) : device_(std::move(device)) {}
  Device& device() override { return *device_; }
  void* Allocate(int64_t bytes) override;
  void Clear() override { memory_.clear(); }
  void Upload(void* to, const std::vector<uint8_t>& bytes) override;
  void Download(const void* from, std::vector<uint8_t>& bytes) override;

 private:
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
};

// The contents of the case's written buffers after the operator; the error's message if it failed.
struct Outcome {
  std::string error;
  std::vector<Buffer> writes;
};
Outcome RunOn(Bench& bench, const OperatorCase& operator_case);

// ||got - expected|| / ||expected||, Euclidean. Integers: 0 if all are equal, else 1. NaN if an element is
// NaN.
double RelativeError(const Buffer& got, const Buffer& expected);

// Cases of every operator that the cuda device has kernels for, in one element type: rows that are multiples
// of 16 bytes and rows that are not, grids larger and smaller than the device, tails, accumulation, operands
// in place. `large` is for fast devices.
std::vector<OperatorCase> OperatorCases(DType dtype, bool large);

// Cases of matrix products, which the cuda device leaves to a library.
std::vector<OperatorCase> GemmCases(DType dtype, bool large);

// The tolerance for results in the type: an fp32 sum in another order, or one rounding to 16 bits.
double ToleranceOf(DType dtype);
double ToleranceOf(const Buffer& buffer);

}  // namespace windtunnel::test
