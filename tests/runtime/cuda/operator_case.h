// One operator with operands: what parity tests run on the cpu device and on another one, and compare.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/op.h"
#include "runtime/device.h"

namespace windtunnel::test {

// A buffer as the host has it. Writes begin as NaN (integers: -1), unless they are the buffer of a read.
struct Buffer {
  DType dtype = DType::kFloat32;
  std::vector<uint8_t> bytes;
  bool compared = true;  // what a kernel leaves in a workspace is nobody's business

  int64_t elements() const { return static_cast<int64_t>(bytes.size()) / SizeOf(dtype).count(); }
};

struct OperatorCase {
  std::string name;
  OpKind kind;
  KernelContext context = {};
  std::vector<Buffer> buffers = {};
  std::vector<size_t> reads = {}, writes = {};  // indices of buffers
  // By how many elements each buffer lies off 16 bytes: kernels have a path for that.
  int64_t offset = 0;
  bool repeats_bits = true;  // on every device

  // Operands in the order of plan/op.h. Values are standard normal times `scale`, drawn by the buffer's number.
  OperatorCase& Read(DType dtype, int64_t elements, double scale = 1.0);
  OperatorCase& ReadIndices(int64_t elements, int64_t bound);
  OperatorCase& ReadIntegers(const std::vector<int32_t>& values);
  OperatorCase& ReadValues(const Buffer& buffer);
  OperatorCase& Write(DType dtype, int64_t elements);
  OperatorCase& Workspace(int64_t elements);
  // A write with something in it before: an accumulator, or something updated in place.
  OperatorCase& Update(DType dtype, int64_t elements, double scale = 1.0);
  // A write that is the index-th read; a read that is the index-th write of the case so far.
  OperatorCase& WriteToRead(size_t read);
};

// Where a case runs.
class Bench {
 public:
  virtual ~Bench() = default;
  virtual Device& device() = 0;
  // Memory that the device computes in, freed by Clear or with the bench.
  virtual void* Allocate(int64_t bytes) = 0;
  virtual void Clear() = 0;
  virtual void Upload(void* to, const std::vector<uint8_t>& bytes) = 0;
  // After all launched work is done.
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

// What the case's writes hold after the operator; the error's message where it has one.
struct Outcome {
  std::string error;
  std::vector<Buffer> writes;
};
Outcome RunOn(Bench& bench, const OperatorCase& operator_case);

// ||got - expected|| / ||expected||, Euclidean; 0 or 1 for integers that are the same or not; NaN where one of them is.
double RelativeError(const Buffer& got, const Buffer& expected);

// Every operator that the cuda device has kernels for, in one element type: rows of whole 16-byte pieces and others, grids longer and
// shorter than the device, tails, accumulation, operands in place. `large` is for devices that are fast.
std::vector<OperatorCase> OperatorCases(DType dtype, bool large);

// And of matrix products, which are a library's there.
std::vector<OperatorCase> GemmCases(DType dtype, bool large);

// What results in the type may differ by: an fp32 sum in another order, or one rounding to 16 bits.
double ToleranceOf(DType dtype);

}  // namespace windtunnel::test
