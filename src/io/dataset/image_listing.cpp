#include "io/dataset/image_listing.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <system_error>

#include "io/files/byte_source.hpp"
#include "io/files/file_bytes.hpp"
#include "io/image/decoder.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

namespace fs = std::filesystem;

// Files of these are taken for images unopened, also of formats that nobody here decodes: such an
// image is unreadable, which is told, and not left out in silence.
constexpr std::array<std::string_view, 14> image_extensions{
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png",  ".bmp",  ".gif",
    ".pgm", ".ppm",  ".tif", ".tiff", ".webp", ".heic", ".avif"};

bool has_image_extension(const fs::path& file) {
  std::string extension = file.extension();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::ranges::find(image_extensions, extension) != image_extensions.end();
}

bool is_of_the_user(const fs::path& path) {
  const std::string name = path.filename();
  return !name.starts_with('.') && name != "@eaDir" && name != "__MACOSX";
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  return std::ranges::mismatch(path, folder).in2 == folder.end();
}

fs::path resolved(const fs::path& path) {
  return retry_listing(path, [&] { return fs::canonical(path); });
}

std::uintmax_t size_for_manifest(const fs::path& file) {
  return retry_listing(file, [&] {
    std::error_code none;
    const auto bytes = fs::file_size(file, none);
    if (none && may_pass(none.value())) throw ReadFailure(none.value(), 0);
    if (none) fail_images(file, none.message() + ": mend that, or take it out of the data set");
    return bytes;
  });
}

}  // namespace

void fail_images(const fs::path& path, std::string_view reason) {
  throw Error(Exit::data, "read images in " + printable(path.native()), reason);
}

std::vector<FolderEntry> entries_of(const fs::path& folder, WorkProgress* progress) {
  at(progress, Work::list, folder.native());
  auto entries = retry_listing(folder, [&] {
    std::vector<FolderEntry> found;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (is_of_the_user(entry.path()))
        found.push_back({entry.path(), entry.is_directory(), entry.is_symlink()});
      advance(progress);
    }
    return found;
  });
  std::ranges::sort(
      entries, {}, [](const auto& entry) -> const auto& { return entry.path.native(); });
  return entries;
}

bool leads_back(const fs::path& link) {
  return lies_in(resolved(link.parent_path()), resolved(link));
}

void ImageLister::list(const fs::path& folder, const Found& found) {
  open_ = {resolved(fs::absolute(folder).parent_path()), resolved(folder)};
  visit(folder, "", found);
}

void ImageLister::visit(const fs::path& folder, const std::string& prefix, const Found& found) {
  const auto entries = entries_of(folder, progress_);
  bool has_images = false;
  for (const FolderEntry& entry : entries) {
    if (entry.is_folder) continue;
    std::error_code unknown;
    const bool gone = gone_too_ && entry.is_link && !fs::exists(entry.path, unknown);
    const auto bytes = gone ? 0 : size_for_manifest(entry.path);
    advance(progress_);
    if (gone ? !has_image_extension(entry.path) : !is_image(entry.path)) continue;
    found(prefix + entry.path.filename().native(), bytes);
    has_images = true;
  }
  folders_ += has_images;
  for (const FolderEntry& entry : entries) {
    if (!entry.is_folder) continue;
    const std::string name = entry.path.filename();
    const fs::path inner = entry.is_link ? resolved(entry.path) : open_.back() / name;
    if (std::ranges::any_of(open_, [&](const auto& outer) { return lies_in(outer, inner); })) {
      links_.add(entry.path);
      continue;
    }
    open_.push_back(inner);
    visit(entry.path, prefix + name + "/", found);
    open_.pop_back();
  }
}

bool ImageLister::is_image(const fs::path& file) {
  if (has_image_extension(file)) return true;
  at(progress_, Work::open, file.native());
  FileSource source(file.native(), progress_);
  if (begins_as_image(source.at({0, std::min<std::uint64_t>(source.size(), 16)}))) return true;
  files_.add(file);
  return false;
}

void ImageLister::Skipped::add(const fs::path& path) {
  if (count++ == 0) first = printable(path.native());
}

std::string ImageLister::left_out() const {
  std::string text;
  if (files_.count > 0)
    text += fmt::format("; left out: {} of no image, the first {}", plural(files_.count, "file"),
                        files_.first);
  if (links_.count > 0)
    text += fmt::format("; not followed: {} to a folder that holds it, the first {}",
                        plural(links_.count, "link"), links_.first);
  return text;
}

}  // namespace ringtrain::io
