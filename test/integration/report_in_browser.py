#!/usr/bin/env python3
"""report_in_browser.py TRAIN: a report's page draws its plots in Chromium, alone and beside those of another run, and writes no error to the console."""
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
# Says what of each plot is drawn; with OTHER, after the reader has added that file.
LOOK = """<script>
const look = () => document.title = JSON.stringify([...document.querySelectorAll("figure")].map(figure => [figure.querySelector("b").textContent,
  Math.max(...[...figure.querySelectorAll("canvas")].map(c => c.getContext("2d").getImageData(0, 0, c.width, c.height).data.filter(v => v > 0).length)),
  figure.querySelector(".legend").textContent.trim()]));
const other = OTHER;
if (other) {
  const files = new DataTransfer(), input = document.getElementById("add");
  files.items.add(new File([other], "other.html"));
  input.files = files.files;
  input.dispatchEvent(new Event("change"));
}
setTimeout(look, 1000);
</script>"""


def train(program, folder, name):
    page = folder / name
    subprocess.run([program, "--model", "mlp", "--data", "shapes", "--steps", "120", "--batch", "32", "--threads", "1", "--eval-every", "40", "--log-every", "1",
                    "--report", page], check=True, stdout=subprocess.DEVNULL)
    return page.read_text()


def drawn(folder, page):
    """What the browser draws of `page`: title, values that are not 0, legend of each plot."""
    file = folder / "look.html"
    file.write_text(page)
    done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile", "--window-size=1040,2400",
                           "--virtual-time-budget=5000", "--enable-logging=stderr", "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120)
    errors = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert done.returncode == 0 and not errors, (done.returncode, errors)
    return json.loads(html.unescape(re.search("<title>(.*?)</title>", done.stdout, re.DOTALL)[1]))


def main():
    if not BROWSER:
        print("skipped: no chromium (scripts/setup.sh --all)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        first, second = (train(sys.argv[1], folder, f"{run}.html") for run in ("first", "second"))
        titles = ["Throughput", "Where a step's time went, on rank 0", "Loss", "Accuracy", "Learning rate"]
        plots = drawn(folder, first + LOOK.replace("OTHER", "null"))
        assert [title for title, _, _ in plots] == titles, plots
        assert all(values > 1000 for _, values, _ in plots), plots
        assert plots[2][2].split() == ["training", "evaluation"], plots

        # A run of its own for each file: the phases of each, and both in the other plots.
        as_text = json.dumps(second).replace("<", "\\u003c")
        both = drawn(folder, first + LOOK.replace("OTHER", as_text))
        assert [title for title, _, _ in both] == titles[:2] + titles[1:], both
        assert all(values > 1000 for _, values, _ in both), both
        assert both[0][2].split() == ["look", "other"], both


main()
