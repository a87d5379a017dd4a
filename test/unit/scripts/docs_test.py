#!/usr/bin/env python3
"""docs_test.py CHECK SOURCE [TRAIN]: holds the documentation below SOURCE to itself and to the program.

links     every relative link and anchor of every page leads somewhere
mentions  every docs/PAGE.md that a source, script, test or message names is there
paths     every path of a file of ours that a page of docs/ names in code marks is there (docs/decisions excepted)
words     guide, reference and internals have at most 20,000 words, as `wc -w` counts them, without the generated list of options
sentences no sentence of README.md, CONTRIBUTING.md and docs/ has more than 30 words; code and links' targets count as one or none, and
          code blocks, tables, headings and sentences that are mostly figures are left out
cells     no cell of a table has more than 80 characters (docs/decisions excepted)
metrics   reference/metrics.md has the keys that the metrics sink writes, record by record, and no others
events    reference/events.md has the names of all events, and no others
exits     reference/exit-codes.md has all exit codes and kinds of faults, and no others
options   reference/options.md is what `TRAIN --man-page` says
"""
import pathlib
import re
import subprocess
import sys

MOST_WORDS = 20_000
COUNTED, GENERATED = ("guide", "reference", "internals"), "options.md"
LONGEST_CELL = 80
LONGEST_SENTENCE = 30
FOLDERS = ("docs", "scripts", "test", "models", "python", "src", "include", "cmake", ".ci")


def pages(source):
    """All Markdown pages, without what builds and tools leave."""
    found = sorted(source.glob("*.md"))
    for folder in FOLDERS:
        found += sorted((source / folder).rglob("*.md"))
    return found


def without_code(text):
    """The same lines; those of fenced code are empty."""
    lines, fenced = [], False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        lines.append("" if fenced or fence else line)
        fenced = fenced != fence
    return lines


def anchors(text):
    """The anchors that GitHub gives the headings of a page."""
    found, seen = set(), {}
    for line in without_code(text):
        heading = re.match(r"#{1,6} +(.*)", line)
        if not heading:
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        times = seen.get(slug, 0)
        seen[slug] = times + 1
        found.add(f"{slug}-{times}" if times else slug)
    return found


def check_links(source, _):
    for page in pages(source):
        for number, line in enumerate(without_code(page.read_text()), 1):
            for target in re.findall(r"\]\(([^)\s]+)\)|<img[^>]*src=\"([^\"]+)\"", re.sub(r"`[^`]*`", "", line)):
                target = target[0] or target[1]
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, anchor = target.partition("#")
                file = (page.parent / path).resolve() if path else page
                if not file.exists():
                    yield f"{page.relative_to(source)}:{number}: {target}: there is no such file"
                elif anchor and anchor not in anchors(file.read_text()):
                    yield f"{page.relative_to(source)}:{number}: {target}: there is no such heading"


def check_mentions(source, _):
    files = [source / "CHANGELOG.md", source / "CONTRIBUTING.md", source / "CMakeLists.txt", source / "pyproject.toml"]
    for folder in FOLDERS:
        files += [file for file in (source / folder).rglob("*") if file.is_file() and file.stat().st_size < 1_000_000]
    for file in files:
        if file == pathlib.Path(__file__).resolve() or "__pycache__" in file.parts:
            continue
        for number, line in enumerate(file.read_text(errors="replace").split("\n"), 1):
            for page in re.findall(r"(?<![\w/])docs/[\w/-]+\.(?:md|svg)\b", line):
                if not (source / page).exists():
                    yield f"{file.relative_to(source)}:{number}: {page}: there is no such page"


def check_paths(source, _):
    for page in [source / "README.md", source / "CONTRIBUTING.md", *sorted((source / "docs").rglob("*.md"))]:
        if "decisions" in page.parts:
            continue
        for number, line in enumerate(without_code(page.read_text()), 1):
            for path in re.findall(r"`((?:src|include|test|scripts|cmake|python|models)/[\w./-]+)", line):
                if not (source / path).exists() and not re.match(r"test/[\w-]*$", path):
                    yield f"{page.relative_to(source)}:{number}: {path}: there is no such file"
    page, there = source / "test" / "README.md", {path.name for path in (source / "test").rglob("*")}
    for number, line in enumerate(page.read_text().splitlines(), 1):  # which names tests by their files alone
        for name in re.findall(r"`([a-z0-9_]+\.(?:sh|cpp|py))`", line):
            if name not in there:
                yield f"test/README.md:{number}: {name}: there is no such test"


def check_words(source, _):
    counted = [page for shelf in COUNTED for page in (source / "docs" / shelf).rglob("*.md") if page.name != GENERATED]
    counts = {page: len(page.read_text().split()) for page in counted}
    words = sum(counts.values())
    print(f"{words} words")
    if words > MOST_WORDS:
        longest = sorted(counts, key=counts.get, reverse=True)[:5]
        says = ", ".join(f"{page.relative_to(source)} {counts[page]}" for page in longest)
        yield f"{', '.join(COUNTED)} have {words} words; {MOST_WORDS} are the most. The longest pages: {says}"


def paragraphs(text):
    """Each paragraph and list item in one line, with the number of its first line."""
    number, lines = 0, []
    for i, line in enumerate([*without_code(text), ""], 1):
        words = line.strip()
        item = re.match(r"(?:[-*]|\d+\.) +", words)
        code = line.startswith("    ") and not lines  # indented, and no item goes on
        ends = not words or item or code or words.startswith(("#", "!", "<", "|"))
        if ends and lines:
            yield number, " ".join(lines)
            lines = []
        if words and not code and not words.startswith(("#", "!", "<", "|")):
            number = number if lines else i
            lines.append(words[item.end():] if item else words)


def check_sentences(source, _):
    for page in [source / "README.md", source / "CONTRIBUTING.md", *sorted((source / "docs").rglob("*.md"))]:
        for number, text in paragraphs(page.read_text()):
            shown = re.sub(r"`[^`]*`", "`code`", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
            for sentence in re.split(r"(?<=[.!?])[*\")]*\s+", shown):
                words = sentence.split()
                figures = sum(any(letter.isdigit() for letter in word) for word in words)
                if len(words) > LONGEST_SENTENCE and 4 * figures < len(words):
                    yield f"{page.relative_to(source)}:{number}: a sentence of {len(words)} words; {LONGEST_SENTENCE} are the most: {sentence}"


def check_cells(source, _):
    for page in [source / "README.md", *sorted((source / "docs").rglob("*.md"))]:
        if "decisions" in page.parts:
            continue
        for number, line in enumerate(without_code(page.read_text()), 1):
            if not line.startswith("|"):
                continue
            for cell in line.strip("|").replace("\\|", "/").split("|"):
                shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell).strip()
                if len(shown) > LONGEST_CELL:
                    yield f"{page.relative_to(source)}:{number}: a cell of {len(shown)} characters; make it a list: {shown}"


def compare(what, page, written, named):
    """Both ways: what the source has, and what the page names."""
    if not written:
        yield f"{what}: nothing was found in the source; does this test still know where to look?"
    for name in sorted(written - named):
        yield f"{page}: {what} {name} is missing"
    for name in sorted(named - written):
        yield f"{page}: {what} {name} is not in the source"


def listed(text):
    """The names at the head of list entries: - `a`, `b` (unit): what it is."""
    names = set()
    for line in text.split("\n"):
        entry = re.match(r"\s*- ((?:`[\w=]+`(?:, | and )?)+)", line)
        if entry:
            names.update(re.findall(r"`([\w=]+)`", entry[1]))
    return names


def sections(text):
    """Text below each heading of the second level, by the heading without code marks."""
    parts = re.split(r"^## +(.*)$", text, flags=re.M)
    return {parts[i].replace("`", ""): parts[i + 1] for i in range(1, len(parts), 2)}


def keys_in(code):
    """The JSON keys in C++ that makes JSON."""
    found = set(re.findall(r'\{"(\w+)",', code)) | set(re.findall(r'\["(\w+)"\]', code))
    return found | set(re.findall(r'\badd\(\w+, "(\w+)"', code))


def check_metrics(source, _):
    code = (source / "src/metrics/sinks/jsonl.cpp").read_text()
    phases = set(re.findall(r'\.metric = "(\w+)"', (source / "src/metrics/scaling/phase.cpp").read_text()))
    page = sections((source / "docs/reference/metrics.md").read_text())
    helpers, *records = re.split(r"^Json json_of\(", code, flags=re.M)
    kinds = set()
    for record in records:
        kind = re.search(r'"kind", "(\w+)"', record)[1]
        kinds.add(kind)
        keys = keys_in(record) - {"kind"}
        yield from compare(f"{kind}: key", "reference/metrics.md", keys, listed(page.get(kind, "")))
    shared = keys_in(helpers) | phases
    yield from compare("shared key", "reference/metrics.md", shared, listed(page.get("Objects in them", "")))
    yield from compare("kind", "reference/metrics.md", kinds, set(page) - {"Objects in them"})


def check_events(source, _):
    written = set()
    for file in [*(source / "src").rglob("*.cpp"), *(source / "src").rglob("*.hpp")]:
        code = file.read_text()
        if "cuda" not in file.parts:
            written.update(re.findall(r'\b(?:event\(|event_of_all\(|trouble\(|EventRecord\{)\s*"([a-z_]+)"', code))
        if file.name.startswith("slowdown"):
            written.update(re.findall(r'return \{"([a-z_]+)"', code))
    page = sections((source / "docs/reference/events.md").read_text())
    named = set().union(*(listed(text) for title, text in page.items() if title != "Told on the terminal only"))
    yield from compare("event", "reference/events.md", written, named)


def check_exits(source, _):
    enum = re.search(r"enum class Exit : int \{(.*?)\};", (source / "include/ringtrain/base/error.hpp").read_text(), re.S)[1]
    written = set(re.findall(r"^\s*\w+ = (\d+)", enum, re.M))
    page = (source / "docs/reference/exit-codes.md").read_text()
    named = set(re.findall(r"^- (\d+)[ :]", page, re.M)) - {"0"}
    yield from compare("exit code", "reference/exit-codes.md", written, named)
    code = (source / "src/base/error.cpp").read_text()
    kinds = set(re.findall(r'return "(\w+)"', re.search(r"fault_kind\(Exit code\) \{(.*?)^\}", code, re.S | re.M)[1]))
    for file in (source / "src").rglob("*.cpp"):
        kinds.update(re.findall(r'of_kind\("(\w+)"', file.read_text()))
    named = set(re.findall(r"^- \d+ `(\w+)`:", page, re.M)) | listed(sections(page).get("Kinds with a code of another", ""))
    yield from compare("kind of fault", "reference/exit-codes.md", kinds, named)


def check_options(source, train):
    page = source / "docs/reference/options.md"
    script = source / "scripts/options_page.py"
    wanted = subprocess.run([sys.executable, script, train, page], capture_output=True, text=True, check=True).stdout
    if wanted != page.read_text():
        yield f"docs/reference/options.md is not what the program says: {script.relative_to(source)} TRAIN docs/reference/options.md --write"
    config = subprocess.run([train, "--print-config"], capture_output=True, text=True, check=True).stdout
    named = set(re.findall(r"^- `--([a-z-]+)", page.read_text(), re.M))
    for name in re.findall(r"^#? ?([a-z-]+) ?[=:]", config, re.M):
        if name not in named:
            yield f"docs/reference/options.md: --{name} of --print-config is missing"


def main():
    check, source = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    train = sys.argv[3] if len(sys.argv) > 3 else ""
    faults = list(globals()[f"check_{check}"](source, train))
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
