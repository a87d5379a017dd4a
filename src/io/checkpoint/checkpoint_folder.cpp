// What a folder of checkpoints has: the newest intact one, and of which lineages its files are.
#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>

#include "io/checkpoint/checkpoint_name.hpp"
#include "io/checkpoint/checkpoint_opener.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"

namespace ringtrain::io {
namespace {

/// The newest file of a lineage.
struct Newest {
  std::string lineage, name;
};

/// What `look()` returns, which opens `directory` anew each time, once no handle of it is stale.
template <class Look>
auto reopening(const std::filesystem::path& directory, RetryBudget& retries, WorkProgress* progress,
               const Look& look) {
  for (;;) try {
      return look();
    } catch (const StaleCheckpoint&) {
      if (!retries.wait(directory, ESTALE, 0, progress)) throw;
    }
}

// By falling step.
std::vector<Newest> lineages_in(const std::filesystem::path& folder, int directory,
                                WorkProgress* progress) {
  RetryBudget retries;
  std::vector<Newest> found;
  for (const std::string& name : checkpoint_names(directory)) {
    at(progress, Work::read, (folder / name).native());
    const auto lineage = lineage_at(directory, name, &retries);
    if (lineage && std::ranges::find(found, *lineage, &Newest::lineage) == found.end())
      found.push_back({*lineage, name});
  }
  return found;
}

std::string lineage_text(const std::string& lineage) {
  return lineage.empty() ? "no lineage" : "lineage " + lineage;
}

std::string newest_text(const Newest& newest) {
  return fmt::format("{}, {} the newest", lineage_text(newest.lineage), newest.name);
}

Error of_another(const std::filesystem::path& directory, std::string_view what) {
  return Error(Exit::incompatible_checkpoint,
               "checkpoint directory " + printable(directory.string()), what);
}

void refuse_several_lineages(const std::filesystem::path& directory, int opened,
                             WorkProgress* progress) {
  std::vector<std::string> texts;
  for (const Newest& newest : lineages_in(directory, opened, progress))
    texts.push_back(newest_text(newest));
  if (texts.size() > 1)
    throw of_another(directory,
                     fmt::format("has checkpoints of several trainings: {}. Name another "
                                 "--checkpoint-dir, say which one goes on by --resume FILE, or "
                                 "move the files of the others away",
                                 first_ten(texts)));
}

FileDescriptor try_open_folder(const std::filesystem::path& directory, WorkProgress* progress) {
  for (RetryBudget retries;;) {
    FileDescriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (opened.get() >= 0 || !retries.wait(directory, errno, 0, progress)) return opened;
  }
}

// Negative where there is no such directory.
FileDescriptor open_folder(const std::filesystem::path& directory, WorkProgress* progress) {
  FileDescriptor opened = try_open_folder(directory, progress);
  if (opened.get() < 0 && errno != ENOENT)
    check_storage(-1, "open checkpoint directory " + printable(directory.string()));
  return opened;
}

// What is there already, of another training than one that starts from scratch.
std::string others_than_new(const std::filesystem::path& directory, int opened,
                            WorkProgress* progress) {
  const std::vector<std::string> names = checkpoint_names(opened);
  const std::vector<Newest> others = lineages_in(directory, opened, progress);
  if (const auto best = lineage_at(opened, best_name); others.empty() && best)
    return fmt::format("has {} of {}", best_name, lineage_text(*best));
  if (!others.empty()) return "has checkpoints of " + newest_text(others.front());
  return names.empty() ? "" : fmt::format("has {}, whose lineage cannot be read", names.front());
}

// What would be in the way of a training of `lineage` that goes on from `step`.
std::string others_than(const std::string& lineage, std::uint64_t step,
                        const std::filesystem::path& directory, int opened,
                        WorkProgress* progress) {
  const std::vector<Newest> all = lineages_in(directory, opened, progress);
  const bool has_own = std::ranges::find(all, lineage, &Newest::lineage) != all.end();
  for (const Newest& other : all) {
    if (other.lineage == lineage) continue;
    if (!has_own) return "has checkpoints of " + newest_text(other);
    if (checkpoint_step(other.name) > step)
      return fmt::format(
          "has {} of {}, which is of a later step than {}, from where training "
          "would go on",
          other.name, lineage_text(other.lineage), step);
  }
  return "";
}

}  // namespace

namespace {

// `stale` waits while a handle is: then all are opened anew.
LatestCheckpoint find_latest(const std::filesystem::path& directory, WorkProgress* progress,
                             const std::function<bool(const std::filesystem::path&)>& stale) {
  at(progress, Work::read, directory.native());
  const FileDescriptor opened = open_folder(directory, progress);
  if (opened.get() < 0)
    return {{}, {}, fmt::format("{} does not exist yet", printable(directory.string()))};
  refuse_several_lineages(directory, opened.get(), progress);

  LatestCheckpoint latest;
  bool unreadable = false;
  for (const std::string& name : checkpoint_names(opened.get())) {
    try {
      CheckpointFile file = open_checkpoint_at(opened.get(), name, directory, progress,
                                               std::make_shared<RetryBudget>());
      file.verify();
      latest.note = fmt::format("resuming from {}, step {}", name, file.metadata().step);
      latest.file = std::move(file);
      return latest;
    } catch (const StaleCheckpoint& failure) {
      if (stale(directory / name)) return find_latest(directory, progress, stale);
      latest.rejected.emplace_back(failure.what());
    } catch (const Error& failure) {
      latest.rejected.emplace_back(failure.what());
      unreadable = unreadable || failure.code() == Exit::storage;
    }
  }
  if (unreadable)
    throw Error(Exit::storage, "resume from " + printable(directory.string()),
                fmt::format("no checkpoint can be read and is intact: {}. Make them readable, or "
                            "start over in another folder",
                            first_ten(latest.rejected)));
  if (!latest.rejected.empty())
    throw Error(Exit::no_valid_checkpoint, "resume from " + printable(directory.string()),
                fmt::format("no checkpoint is intact: {}. Repair or move them, or start over in "
                            "another folder",
                            first_ten(latest.rejected)));
  latest.note = fmt::format("no checkpoint in {}", printable(directory.string()));
  return latest;
}

}  // namespace

LatestCheckpoint find_latest(const std::filesystem::path& directory, WorkProgress* progress) {
  RetryBudget retries;
  return reopening(directory, retries, progress, [&] {
    return find_latest(directory, progress, [&](const std::filesystem::path& file) {
      return retries.wait(file, ESTALE, 0, progress);
    });
  });
}

std::optional<CheckpointFile> peek_latest(const std::filesystem::path& directory,
                                          WorkProgress* progress) {
  at(progress, Work::read, directory.native());
  const auto retries = std::make_shared<RetryBudget>();
  return reopening(directory, *retries, progress, [&]() -> std::optional<CheckpointFile> {
    const FileDescriptor opened = try_open_folder(directory, progress);
    if (opened.get() < 0) return std::nullopt;
    for (const std::string& name : checkpoint_names(opened.get())) {
      for (bool again = true; again;) {
        again = false;
        try {
          return open_checkpoint_at(opened.get(), name, directory, progress, retries);
        } catch (const StaleCheckpoint&) {
          again = retries->wait(directory / name, ESTALE, 0, progress);
        } catch (const Error&) {  // find_latest() will say so
        }
      }
    }
    return std::nullopt;
  });
}

void require_own_folder(const std::filesystem::path& directory, const std::string& lineage,
                        std::optional<std::uint64_t> resumed_step, WorkProgress* progress) {
  at(progress, Work::read, directory.native());
  RetryBudget retries;
  const std::string others = reopening(directory, retries, progress, [&]() -> std::string {
    const FileDescriptor opened = open_folder(directory, progress);
    if (opened.get() < 0) return "";
    return resumed_step ? others_than(lineage, *resumed_step, directory, opened.get(), progress)
                        : others_than_new(directory, opened.get(), progress);
  });
  if (!others.empty())
    throw of_another(directory,
                     fmt::format("{}; this training is of {}. Name another --checkpoint-dir, go on "
                                 "with what is there by --resume FILE, or move these files away",
                                 others, lineage_text(lineage)));
}

std::string inspect_folder(const std::filesystem::path& directory) {
  const LatestCheckpoint latest = find_latest(directory);
  std::string text = fmt::format("folder       {}\n", printable(directory.string()));
  if (!latest.file)
    return text + fmt::format("resume auto  none: {}: training starts from scratch\n", latest.note);
  const std::string taken = latest.file->path().filename().string();
  const std::string& lineage = latest.file->lineage();
  text +=
      fmt::format("resume auto  {}\nlineage      {}\n", taken, lineage.empty() ? "none" : lineage);
  for (const std::string& reason : latest.rejected)
    text += fmt::format("not used     {}\n", reason);
  for (const std::string& name : checkpoint_names(open_folder(directory, nullptr).get()))
    if (checkpoint_step(name) < checkpoint_step(taken))
      text += fmt::format("not used     {}: older\n", name);
  return text;
}

}  // namespace ringtrain::io
