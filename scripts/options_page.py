#!/usr/bin/env python3
"""options_page.py TRAIN PAGE [--write]: prints docs/reference/options.md as TRAIN's manual page has the options; --write changes PAGE.

Only what lies between the two marks of PAGE is made; what is written around them stays. A test holds the page to the program."""
import pathlib
import re
import subprocess
import sys

BEGIN, END = "<!-- options: made by scripts/options_page.py -->", "<!-- end of options -->"


def plain(roff):
    """Text without font changes and escapes."""
    return re.sub(r"\\f[A-Z]", "", roff).replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")


def option_list(manual):
    """The OPTIONS of a manual page, as lists under a heading for each group."""
    body = re.search(r"^\.SH OPTIONS\n(.*?)^\.SH ", manual, re.S | re.M)[1]
    text = ""
    for group in re.split(r"^\.SS ", body, flags=re.M)[1:]:
        title, _, entries = group.partition("\n")
        text += f"\n### {plain(title)}\n\n"
        for name, words in re.findall(r"^\.TP\n(.*)\n(.*)\n", entries, re.M):
            text += f"- `{plain(name)}`: {plain(words)}\n"
    return text


def main():
    train, page = sys.argv[1], pathlib.Path(sys.argv[2])
    manual = subprocess.run([train, "--man-page"], capture_output=True, text=True, check=True).stdout
    head, _, rest = page.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    made = head + BEGIN + "\n" + option_list(manual) + "\n" + END + tail
    if "--write" in sys.argv[3:]:
        page.write_text(made)
    else:
        print(made, end="")


if __name__ == "__main__":
    main()
