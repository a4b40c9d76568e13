#include "runtime/checkpoint/checkpoint.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/format.h"
#include "base/json_numbers.h"
#include "base/parsing_notes.h"
#include "runtime/checkpoint/files.h"

namespace windtunnel {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr const char* kSchema = "windtunnel/checkpoint/1";
constexpr const char* kMetadataFile = "metadata.json";
constexpr const char* kLatestFile = "latest";
constexpr const char* kStepPrefix = "step_";
constexpr const char* kUnfinished = ".unfinished_";
constexpr const char* kRemoved = ".removed_";
constexpr const char* kReplaced = ".replaced_";  // whole, unlike those that are removed
constexpr int64_t kMaxMetadata = int64_t{1} << 30;

std::string FileOf(int rank) { return fmt::format("rank_{:05}.safetensors", rank); }
// The file in which a rank describes its pieces to rank 0.
std::string PiecesFileOf(int rank) { return fmt::format("rank_{:05}.pieces.json", rank); }

uint32_t Crc32(const void* data, size_t bytes) {
  return static_cast<uint32_t>(crc32_z(0, static_cast<const unsigned char*>(data), bytes));
}
uint32_t Crc32(const std::vector<float>& values) {
  return Crc32(values.data(), values.size() * sizeof(float));
}

std::string NameOf(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

// Parses the step from a directory's name, "step_00000040".
std::optional<int64_t> StepOf(const std::string& name) {
  const std::string_view prefix = kStepPrefix;
  if (!name.starts_with(prefix) || name.size() == prefix.size()) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || stopped != end || step < 0) return std::nullopt;
  return name == NameOf(step) ? std::optional(step) : std::nullopt;  // as this program writes it
}

// Gives a checkpoint that was to be replaced its name back, if the job was interrupted before the other had
// it. Returns whether that was so.
bool Restore(const fs::path& replaced) {
  std::error_code ignored;
  const std::string number = replaced.filename().string().substr(std::string_view(kReplaced).size());
  const fs::path own = replaced.parent_path() / (kStepPrefix + number);
  if (fs::exists(own, ignored)) return false;
  fs::rename(replaced, own, ignored);
  return true;
}

Json ToJson(const std::vector<StridedRuns>& runs) {
  Json json = Json::array();
  for (const StridedRuns& run : runs) json.push_back({run.first, run.length, run.count, run.stride});
  return json;
}

std::vector<StridedRuns> ToRuns(const Json& json) {
  std::vector<StridedRuns> runs;
  for (const Json& run : json) {
    runs.push_back({WholeNumber<int64_t>(run.at(0)), WholeNumber<int64_t>(run.at(1)),
                    WholeNumber<int64_t>(run.at(2)), WholeNumber<int64_t>(run.at(3))});
  }
  return runs;
}

// The metadata are a JSON object; its "crc32" covers everything else in it.
std::string Seal(Json metadata) {
  metadata.erase("crc32");
  const std::string text = metadata.dump();
  metadata["crc32"] = Crc32(text.data(), text.size());
  return metadata.dump(1) + "\n";
}

bool IsSealed(Json metadata) {
  const Json seal = metadata.value("crc32", Json());
  metadata.erase("crc32");
  const std::string text = metadata.dump();
  return seal == Json(Crc32(text.data(), text.size()));
}

Json ToJson(const CheckpointInfo& info) {
  Json json = {{"schema", kSchema},
               {"step", info.step},
               {"samples", info.samples},
               {"seed", info.seed},
               {"world_size", info.world_size},
               {"optimizer", info.optimizer},
               {"scenario", info.scenario}};
  if (!info.data.empty()) json["data"] = info.data;
  const LossScaleState& state = info.loss_scale;
  if (state != LossScaleState{}) {
    json["loss_scale"] = {{"scale", state.scale},
                          {"growth_tracker", state.growth_tracker},
                          {"skipped_steps", state.skipped_steps}};
  }
  return json;
}

// The number of elements of the runs, all of which must lie within [0, whole); otherwise -1. The runs come
// from a file and are not trusted.
int64_t ElementsWithin(const std::vector<StridedRuns>& runs, int64_t whole) {
  int64_t elements = 0;
  for (const StridedRuns& run : runs) {
    const bool is_sane = run.first >= 0 && run.length > 0 && run.count > 0 && run.stride >= 0 &&
                         run.first <= whole && run.length <= whole && run.count <= whole &&
                         run.stride <= whole && (run.count == 1 || run.stride >= run.length);
    if (!is_sane) return -1;
    int64_t last = 0;
    if (__builtin_mul_overflow(run.count - 1, run.stride, &last) || last > whole - run.first - run.length)
      return -1;
    if (run.length * run.count > whole - elements) return -1;
    elements += run.length * run.count;
  }
  return elements;
}

}  // namespace

Result<std::string> SealMetadata(const std::string& text) {
  Json metadata = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!metadata.is_object()) return InvalidInput("no JSON object");
  return Seal(std::move(metadata));
}

// Reads metadata.json into a Checkpoint.
struct CheckpointFormat {
  static void Read(const Json& json, Checkpoint& checkpoint) {
    CheckpointInfo& info = checkpoint.info_;
    info.step = WholeNumber<int64_t>(json.at("step"));
    info.samples = WholeNumber<int64_t>(json.at("samples"));
    info.seed = WholeNumber<uint64_t>(json.at("seed"));
    info.world_size = WholeNumber<int>(json.at("world_size"));
    info.optimizer = json.at("optimizer").get<std::string>();
    info.scenario = json.at("scenario").get<std::string>();
    if (const auto data = json.find("data"); data != json.end()) info.data = data->get<std::string>();
    if (const auto state = json.find("loss_scale"); state != json.end()) {
      info.loss_scale = {state->at("scale").get<double>(), WholeNumber<int64_t>(state->at("growth_tracker")),
                         WholeNumber<int64_t>(state->at("skipped_steps"))};
    }
    for (const auto& [name, tensor] : json.at("tensors").items()) {
      Checkpoint::Tensor& read = checkpoint.tensors_[name];
      read.shape = WholeNumbers<int64_t>(tensor.at("shape"));
      for (const Json& piece : tensor.at("pieces")) {
        read.pieces.push_back({piece.at("file").get<std::string>(), piece.at("key").get<std::string>(),
                               ToRuns(piece.at("runs")), WholeNumber<uint32_t>(piece.at("crc32"))});
      }
    }
  }
};

std::string Checkpoint::identity() const {
  const fs::path whole = fs::path(path_) / "";  // the same for "dir/step_00000040" and "dir/step_00000040/"
  return fmt::format("{} {:08x}", whole.parent_path().filename().string(), crc32_);
}

Result<Checkpoint> Checkpoint::Open(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  std::error_code ignored;
  if (!fs::exists(fs::path(path) / kMetadataFile, ignored)) {
    const bool is_name_of_latest =
        fs::path(path).filename() == kLatestFile && fs::is_regular_file(path, ignored);
    const CheckpointDirectory directory(is_name_of_latest ? fs::absolute(path).parent_path().string() : path);
    WT_RETURN_IF_ERROR(directory.CheckWhole());
    const auto latest = directory.Latest();
    if (!latest) {
      return InvalidInput(
          "{}: no checkpoint is there, expected a directory {}… with {}, or a directory of such", path,
          kStepPrefix, kMetadataFile);
    }
    checkpoint.path_ = *latest;
  }
  const std::string file = checkpoint.path_ + "/" + kMetadataFile;
  WT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(file, kMaxMetadata));
  const Json json = ParseOrDiscard(text);
  if (json.is_discarded()) return InvalidInput("{}: is damaged: not JSON", file);
  try {
    if (json.value("schema", "") != kSchema) {
      return InvalidInput("{}: schema is '{}', expected '{}'", file, json.value("schema", ""), kSchema);
    }
    if (!IsSealed(json)) return InvalidInput("{}: is damaged: its CRC-32 is not the one in it", file);
    checkpoint.crc32_ = json.at("crc32").get<uint32_t>();
    CheckpointFormat::Read(json, checkpoint);
  } catch (const Json::exception& error) {
    return InvalidInput("{}: is damaged: {}", file, error.what());
  }
  WT_RETURN_IF_ERROR(checkpoint.CheckCounts());
  WT_RETURN_IF_ERROR(checkpoint.OpenFiles());
  WT_RETURN_IF_ERROR(checkpoint.CheckCoverage());
  return checkpoint;
}

// Checks that the pieces of each tensor lie within it and have as many elements as it has.
Status Checkpoint::CheckCounts() const {
  for (const auto& [name, tensor] : tensors_) {
    int64_t whole = 1, found = 0;
    for (int64_t size : tensor.shape) {
      if (size < 0 || __builtin_mul_overflow(whole, size, &whole))
        return InvalidInput("{}: tensor '{}' has an impossible shape", path_, name);
    }
    for (const Piece& piece : tensor.pieces) {
      const int64_t elements = ElementsWithin(piece.runs, whole);
      if (elements < 0 || found > whole - elements)
        return InvalidInput("{}: the pieces of tensor '{}' do not fit it", path_, name);
      found += elements;
    }
    if (found != whole) {
      return InvalidInput("{}: the pieces of tensor '{}' have {} elements, the tensor has {}", path_, name,
                          found, whole);
    }
  }
  return Ok();
}

Status Checkpoint::OpenFiles() {
  for (const auto& [name, tensor] : tensors_) {
    for (const Piece& piece : tensor.pieces) {
      if (files_.count(piece.file) == 0) {
        if (fs::path(piece.file).filename() != piece.file)
          return InvalidInput("{}: names a file '{}' of another directory", path_, piece.file);
        WT_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path_ + "/" + piece.file));
        std::error_code ignored;
        bytes_ += static_cast<int64_t>(fs::file_size(file.path(), ignored));
        files_.emplace(piece.file, std::move(file));
      }
      const SafetensorsFile& file = files_.at(piece.file);
      const SafetensorsTensor* stored = file.Find(piece.key);
      const int64_t elements = ElementsWithin(piece.runs, ElementsOf(tensor.shape));
      if (stored == nullptr || stored->dtype != "F32" || stored->elements() != elements) {
        return InvalidInput("{}: has no '{}' of {} x F32, which is of tensor '{}'", file.path(), piece.key,
                            elements, name);
      }
    }
  }
  return Ok();
}

// Checks that each element is in one piece. The runs are laid out only after the files have been found to
// hold as many values as the metadata claim, which may be any number.
Status Checkpoint::CheckCoverage() const {
  for (const auto& [name, tensor] : tensors_) {
    std::vector<std::pair<int64_t, int64_t>> runs;  // first element, elements
    for (const Piece& piece : tensor.pieces) {
      ForEachRun(piece.runs,
                 [&runs](int64_t, int64_t first, int64_t elements) { runs.emplace_back(first, elements); });
    }
    std::sort(runs.begin(), runs.end());
    int64_t next = 0;
    for (const auto& [first, elements] : runs) {
      if (first != next) {
        return InvalidInput(
            "{}: the pieces of tensor '{}' overlap or leave a hole: one begins at element {}, expected {}",
            path_, name, first, next);
      }
      next += elements;
    }
  }
  return Ok();
}

std::vector<std::string> Checkpoint::Tensors() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

std::optional<std::vector<int64_t>> Checkpoint::ShapeOf(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end()) return std::nullopt;
  return found->second.shape;
}

Result<std::vector<float>> Checkpoint::ReadPiece(const std::string& tensor, const Piece& piece) const {
  const SafetensorsFile& file = files_.at(piece.file);
  WT_ASSIGN_OR_RETURN(std::vector<float> values, file.Read(piece.key));
  if (const uint32_t crc = Crc32(values); crc != piece.crc32) {
    return InvalidInput(
        "{}: tensor '{}' is damaged: the CRC-32 of '{}' is {:08x}, it was {:08x} when it was saved",
        file.path(), tensor, piece.key, crc, piece.crc32);
  }
  return values;
}

Result<std::vector<float>> Checkpoint::Read(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return InvalidInput("{}: has no tensor '{}'", path_, name);
  std::vector<float> whole(static_cast<size_t>(ElementsOf(found->second.shape)));
  for (const Piece& piece : found->second.pieces) {
    WT_ASSIGN_OR_RETURN(const std::vector<float> values, ReadPiece(name, piece));
    ForEachRun(piece.runs, [&](int64_t local, int64_t first, int64_t elements) {
      std::copy_n(values.begin() + local, elements, whole.begin() + first);
    });
  }
  return whole;
}

Result<std::vector<float>> Checkpoint::ReadRuns(const std::string& name,
                                                const std::vector<StridedRuns>& runs) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return InvalidInput("{}: has no tensor '{}'", path_, name);
  int64_t wanted = 0;
  for (const StridedRuns& run : runs) wanted += run.length * run.count;
  std::vector<float> part(static_cast<size_t>(wanted));
  const RunsInOrder in_order(runs);
  for (const Piece& piece : found->second.pieces) {
    bool has_some = false;
    ForEachRun(piece.runs, [&](int64_t, int64_t first, int64_t elements) {
      in_order.ForEachOverlap(first, elements, [&](int64_t, int64_t, int64_t) { has_some = true; });
    });
    if (!has_some) continue;
    WT_ASSIGN_OR_RETURN(const std::vector<float> values, ReadPiece(name, piece));
    ForEachRun(piece.runs, [&](int64_t local, int64_t first, int64_t elements) {
      in_order.ForEachOverlap(first, elements, [&](int64_t to, int64_t from, int64_t count) {
        std::copy_n(values.begin() + local + (from - first), count, part.begin() + to);
      });
    });
  }
  return part;
}

Status Checkpoint::Check() const {
  for (const auto& [name, tensor] : tensors_) WT_RETURN_IF_ERROR(Read(name));
  return Ok();
}

std::string CheckpointDirectory::PathOf(int64_t step) const { return path_ + "/" + NameOf(step); }
std::string CheckpointDirectory::UnfinishedPathOf(int64_t step) const {
  return fmt::format("{}/{}{:08}", path_, kUnfinished, step);
}

bool IsCheckpoint(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::path(path) / kMetadataFile, ignored);
}

std::vector<int64_t> CheckpointDirectory::Steps() const {
  std::vector<int64_t> steps;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, ignored)) {
    const auto step = StepOf(entry.path().filename().string());
    if (step && fs::exists(entry.path() / kMetadataFile, ignored)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::string> CheckpointDirectory::NameOfLatest() const {
  const auto text = ReadSmallFile(path_ + "/" + kLatestFile, 256);
  if (!text) return std::nullopt;
  std::string name = text->substr(0, text->find('\n'));
  if (!StepOf(name)) return std::nullopt;
  return name;
}

Status CheckpointDirectory::CheckWhole() const {
  const auto name = NameOfLatest();
  std::error_code ignored;
  if (!name || fs::exists(fs::path(path_) / *name / kMetadataFile, ignored)) return Ok();
  if (!fs::is_directory(fs::path(path_) / *name, ignored)) {
    if (!Steps().empty()) return Ok();
    return InvalidInput(
        "{0}/{1}: is missing, though {0}/{2} names it, and there is no other checkpoint: expected it back, "
        "or {0}/{2} taken away",
        path_, *name, kLatestFile);
  }
  return InvalidInput("{0}/{1}/{2}: is missing, though {0}/{3} names it: expected it back, or {1} taken away",
                      path_, *name, kMetadataFile, kLatestFile);
}

std::optional<std::string> CheckpointDirectory::Latest() const {
  std::error_code ignored;
  if (const auto name = NameOfLatest(); name && fs::exists(fs::path(path_) / *name / kMetadataFile, ignored))
    return path_ + "/" + *name;
  const std::vector<int64_t> steps = Steps();
  return steps.empty() ? std::nullopt : std::optional(PathOf(steps.back()));
}

void CheckpointDirectory::RemoveLeftovers() const {
  std::error_code ignored;
  std::vector<fs::path> leftovers;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kReplaced) && Restore(entry.path())) continue;
    if (name.starts_with(kUnfinished) || name.starts_with(kRemoved) || name.starts_with(kReplaced))
      leftovers.push_back(entry.path());
  }
  for (const fs::path& path : leftovers) fs::remove_all(path, ignored);
}

void CheckpointDirectory::Abandon(int64_t step, int rank) const {
  std::error_code ignored;
  const std::string prefix = fmt::format("rank_{:05}.", rank);
  std::vector<fs::path> own;
  for (const fs::directory_entry& entry : fs::directory_iterator(UnfinishedPathOf(step), ignored))
    if (entry.path().filename().string().starts_with(prefix)) own.push_back(entry.path());
  if (rank == 0) own.push_back(fs::path(UnfinishedPathOf(step)) / kMetadataFile);
  for (const fs::path& path : own) fs::remove(path, ignored);
  fs::remove(UnfinishedPathOf(step), ignored);  // succeeds when it is empty, so for the last rank
}

Status CheckpointDirectory::Begin(int64_t step) const {
  RemoveLeftovers();
  std::error_code error;
  fs::create_directories(UnfinishedPathOf(step), error);
  if (error) return Failed("{}: cannot be made: {}", UnfinishedPathOf(step), error.message());
  return Ok();
}

Status CheckpointDirectory::Finish(int64_t step, int64_t keep) const {
  // A checkpoint is renamed before it is removed, so that no partly removed one has a checkpoint's name.
  const auto remove = [&](const std::string& path, int64_t old) {
    std::error_code ignored;
    const std::string removed = fmt::format("{}/{}{:08}", path_, kRemoved, old);
    fs::rename(path, removed, ignored);
    fs::remove_all(removed, ignored);
  };
  WT_RETURN_IF_ERROR(SyncDirectory(UnfinishedPathOf(step)));
  // An older one of the same step is removed when the new one is there.
  const std::string replaced = fmt::format("{}/{}{:08}", path_, kReplaced, step);
  std::error_code error, ignored;
  fs::rename(PathOf(step), replaced, ignored);
  fs::rename(UnfinishedPathOf(step), PathOf(step), error);
  if (error) {
    fs::rename(replaced, PathOf(step), ignored);
    return Failed("{}: cannot be made: {}", PathOf(step), error.message());
  }
  WT_RETURN_IF_ERROR(SyncDirectory(path_));
  remove(replaced, step);
  WT_RETURN_IF_ERROR(
      WriteFileAtomically(path_ + "/" + kLatestFile, fs::path(PathOf(step)).filename().string() + "\n"));
  const std::vector<int64_t> steps = Steps();
  for (size_t i = 0; keep > 0 && i + static_cast<size_t>(keep) < steps.size(); ++i) {
    if (steps[i] != step) remove(PathOf(steps[i]), steps[i]);
  }
  return Ok();
}

namespace {

// Whole tensors keep name and shape, so that other programs find them. A part is stored as one row, named
// after its first element.
std::string KeyOf(const TensorPiece& piece) {
  return piece.is_whole() ? piece.tensor : fmt::format("{}@{}", piece.tensor, piece.runs.front().first);
}

Json Describe(const TensorPiece& piece, const std::string& file, uint32_t crc) {
  return Json{{"tensor", piece.tensor}, {"shape", piece.shape},       {"file", file},
              {"key", KeyOf(piece)},    {"runs", ToJson(piece.runs)}, {"crc32", crc}};
}

// Writes the rank's file and, for rank 0, a description of its contents. A rank that saves no pieces writes
// no safetensors file.
Result<int64_t> WriteOwn(const std::string& path, const Plan& plan, int rank, const SaveOptions& options) {
  // The optimizer has no state before the first step.
  const std::vector<TensorPiece> pieces = PiecesToSave(plan, rank, /*with_optimizer=*/options.info.step > 0);
  Json described = Json::array();
  std::vector<TensorToWrite> tensors;
  for (const TensorPiece& piece : pieces) {
    tensors.push_back({KeyOf(piece), piece.is_whole() ? piece.shape : std::vector<int64_t>{piece.elements()},
                       [&options, &piece] { return options.values(piece.local); },
                       [&described, &piece, rank](const std::vector<float>& values) {
                         described.push_back(Describe(piece, FileOf(rank), Crc32(values)));
                       }});
  }
  int64_t bytes = 0;
  if (!tensors.empty()) {
    WT_ASSIGN_OR_RETURN(bytes, WriteSafetensors(path + "/" + FileOf(rank), tensors, {}));
  }
  WT_RETURN_IF_ERROR(WriteFileAtomically(path + "/" + PiecesFileOf(rank), described.dump()));
  return bytes;
}

// Rank 0 merges the descriptions of all ranks into one.
Status WriteMetadata(const std::string& path, const Plan& plan, const CheckpointInfo& info) {
  Json metadata = ToJson(info);
  Json tensors = Json::object();
  for (int rank = 0; rank < plan.world_size; ++rank) {
    const std::string file = path + "/" + PiecesFileOf(rank);
    WT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(file, kMaxMetadata));
    const Json pieces = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!pieces.is_array()) return Failed("{}: is not what rank {} wrote", file, rank);
    for (Json piece : pieces) {
      Json& tensor = tensors[piece["tensor"].get<std::string>()];
      tensor["shape"] = piece["shape"];
      piece.erase("tensor");
      piece.erase("shape");
      tensor["pieces"].push_back(std::move(piece));
    }
  }
  metadata["tensors"] = std::move(tensors);
  WT_RETURN_IF_ERROR(WriteFileAtomically(path + "/" + kMetadataFile, Seal(std::move(metadata))));
  std::error_code ignored;
  for (int rank = 0; rank < plan.world_size; ++rank) fs::remove(path + "/" + PiecesFileOf(rank), ignored);
  return Ok();
}

constexpr char kMomentum[] = "optimizer.momentum.";  // prefix of the names of SGD's momentum buffers

}  // namespace

Result<int64_t> SaveCheckpoint(const CheckpointDirectory& directory, const Plan& plan, int rank,
                               const SaveOptions& options) {
  const int64_t step = options.info.step;
  const std::string path = directory.UnfinishedPathOf(step);
  if (rank == 0) WT_RETURN_IF_ERROR(directory.Begin(step));
  WT_RETURN_IF_ERROR(options.barrier());
  WT_ASSIGN_OR_RETURN(const int64_t bytes, WriteOwn(path, plan, rank, options));
  WT_RETURN_IF_ERROR(options.barrier());
  if (rank == 0) {
    WT_RETURN_IF_ERROR(WriteMetadata(path, plan, options.info));
    WT_RETURN_IF_ERROR(Checkpoint::Open(path));  // checks that every file is there and every tensor whole
    WT_RETURN_IF_ERROR(directory.Finish(step, options.keep));
  }
  WT_RETURN_IF_ERROR(options.barrier());
  return bytes;
}

Status LoadPieces(const TensorSource& source, const Plan& plan, int rank, bool with_optimizer,
                  const std::function<void(const Slice&, std::span<const float>)>& put) {
  std::vector<float> part;
  for (const TensorPiece& piece : PiecesOf(plan, rank, with_optimizer)) {
    const auto shape = source.ShapeOf(piece.tensor);
    // The checkpoint was saved without momentum, which then begins with the first gradient, as in PyTorch.
    if (!shape && piece.tensor.starts_with(kMomentum)) {
      part.assign(static_cast<size_t>(piece.elements()), 0.0f);
      put(piece.local, part);
      continue;
    }
    if (!shape && source.MayLack(piece.tensor)) continue;
    if (!shape) return InvalidInput("{}: has no tensor '{}'", source.path(), piece.tensor);
    if (*shape != piece.shape) {
      return InvalidInput("{}: tensor '{}' is {}, expected {}, as in the scenario's model", source.path(),
                          piece.tensor, FormatShape(*shape), FormatShape(piece.shape));
    }
    WT_ASSIGN_OR_RETURN(part, source.ReadRuns(piece.tensor, piece.runs));
    put(piece.local, part);
  }
  return Ok();
}

}  // namespace windtunnel
