#!/usr/bin/env python3
"""module_test.py TRAIN PYTHON_FOLDER: the module `ringtrain` reads what TRAIN writes, and TRAIN what it writes."""
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import h5py
    import numpy as np
    import xxhash
except ImportError as missing:
    print(f"skipped: {missing}; pip install numpy xxhash h5py")
    sys.exit(77)

FOLDER = str(pathlib.Path(sys.argv.pop()).resolve())
TRAIN = str(pathlib.Path(sys.argv.pop()).resolve())
sys.path.insert(0, FOLDER)
sys.dont_write_bytecode = True
import ringtrain


class Module(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.kept.name)
        cls.train("--steps", "8", "--log-every", "4", "--metrics", "run.jsonl", "--checkpoint-dir", "saves")
        cls.file = str(cls.folder / "saves/step-0000000008.h5")

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()

    @classmethod
    def train(cls, *options, model="mlp"):
        command = [TRAIN, *(["--model", model] if model else []), "--data", "shapes", "--batch", "8", "--threads", "1", "--eval-every", "0", *options]
        return subprocess.run(command, cwd=cls.folder, check=True, capture_output=True, text=True)

    def evaluation(self, *options):
        ended = self.train("--eval-only", *options)
        return next(line for line in (ended.stdout + ended.stderr).splitlines() if "top-1" in line).split("top-1")[1]

    def test_metrics_are_read_by_kind(self):
        metrics = ringtrain.read_metrics(self.folder / "run.jsonl")
        self.assertEqual([record["step"] for record in metrics["step"]], [4, 8])
        self.assertEqual(len(metrics["start"]), 1)

    def test_a_line_that_is_still_written_is_left_out_and_a_wrong_one_named(self):
        text = (self.folder / "run.jsonl").read_text()
        whole = sum(map(len, ringtrain.read_metrics(self.folder / "run.jsonl").values()))
        torn = self.folder / "torn.jsonl"
        torn.write_text(text + '{"kind":"st')
        self.assertEqual(sum(map(len, ringtrain.read_metrics(torn).values())), whole)
        torn.write_text(text + "nonsense\n")
        with self.assertRaisesRegex(ValueError, f"torn.jsonl:{whole + 1}: no record"):
            ringtrain.read_metrics(torn)

    def test_an_array_is_predicted_as_train_predicts_it(self):
        os.environ["RINGTRAIN_PROGRAM"] = TRAIN
        images = np.random.default_rng(1).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
        np.save(self.folder / "images.npy", images)
        subprocess.run([TRAIN, "--predict", "images.npy", "--init-from", self.file, "--output", "told.jsonl", "--top-k", "10"], cwd=self.folder, check=True,
                       capture_output=True)
        told = [json.loads(line)["classes"] for line in open(self.folder / "told.jsonl", encoding="utf-8")]
        network = ringtrain.load(self.file)
        probabilities = network.predict(images)
        self.assertEqual(probabilities.shape, (5, 10))
        np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
        for of_image, classes in zip(probabilities, told):
            self.assertEqual([of_image[c["index"]] for c in classes], [c["probability"] for c in classes])
        self.assertEqual(network.predict(images[..., 0]).shape, (5, 10))
        with self.assertRaisesRegex(ValueError, "uint8"):
            network.predict(images.astype(np.float32))
        with self.assertRaisesRegex(ValueError, "one image in colour"):
            network.predict(images[0])
        with self.assertRaisesRegex(ValueError, "no images"):
            network.predict(images[:0])
        with self.assertRaisesRegex(ValueError, "nowhere.h5"):
            ringtrain.load("nowhere.h5").predict(images)

    def test_records_go_to_a_table(self):
        from ringtrain import track
        track.main([str(self.folder / "run.jsonl"), "--to", "csv", "--output", str(self.folder / "run.csv")])
        rows = list(csv.DictReader(open(self.folder / "run.csv", newline="", encoding="utf-8")))
        steps = [row for row in rows if row["step/loss"]]
        wanted = ringtrain.read_metrics(self.folder / "run.jsonl")["step"]
        self.assertEqual([(int(row["step"]), float(row["step/loss"]), float(row["step/phases/forward"])) for row in steps],
                         [(r["step"], r["loss"], r["phases"]["forward"]) for r in wanted])
        self.assertEqual({row["run"] for row in rows}, {wanted[0]["run"]})

    def test_a_checkpoint_is_read_as_hdf5_has_it(self):
        saved = ringtrain.read_checkpoint(self.file)
        self.assertEqual((saved.model, saved.step), ("mlp", 8))
        self.assertEqual(len(saved.class_names), 10)
        lines = (pathlib.Path(FOLDER).parent / "models/mlp.model").read_text().splitlines(keepends=True)
        self.assertEqual(saved.network, "".join(line for line in lines if line.strip()))
        with h5py.File(self.file) as file:
            self.assertEqual(file["metadata/network"][()].decode(), saved.network)
            self.assertEqual(file["metadata/class_names"][()].decode().split("\n"), saved.class_names)
            for name, array in saved.tensors.items():
                np.testing.assert_array_equal(array, file[name][...])

    def test_model_files_are_read_as_train_reads_them(self):
        from ringtrain.model_file import Network
        layers = "input size=8\nblock stride=2 down\n  conv = convolution channels=4 kernel=3 stride=$stride\nend\na = down\nfc = matrix_product outputs=$classes\nloss\n"
        for head in ("model classes=10 small", "\ufeff# of mine\r\n model\tsmall  classes=10 # classes=3\r", "# a\fb\u2028model c\x85d\rmodel e\nmodel small classes=10"):
            text = head + "\n" + layers
            (self.folder / "small.model").write_bytes(text.encode())
            ended = self.train("--model-file", "small.model", "--print-model", model=None)
            read = Network(text).with_classes(12)
            self.assertIn("small", ended.stdout)
            self.assertEqual((read.name, read.classes, read.head, read.flattened), ("small", "12", "fc", {"fc.weight": (4, 4, 4)}))
        for wrong in ("", "input size=8\n", "model small\n", "model a b classes=1\n", "model a classes=x\n"):
            with self.assertRaisesRegex(ValueError, "it begins with a line such as: model NAME classes=10"):
                Network(wrong)

    def test_class_names_that_are_not_utf_8_are_the_folders(self):
        from ringtrain.checkpoint import names_in
        self.assertEqual([os.fsencode(name) for name in names_in("caf\\xe9\na\\\\xe9\nb\\n\n\u00e9")], [b"caf\xe9", b"a\\xe9", b"b\n", "\u00e9".encode()])

    def test_files_of_format_1_are_read(self):
        file = pathlib.Path(FOLDER).parent / "test/data/format_1/step-0000000004.h5"
        saved = ringtrain.read_checkpoint(file)
        self.assertEqual((saved.model, saved.step, saved.network), ("tiny", 4, ""))
        with h5py.File(file) as stored:
            np.testing.assert_array_equal(saved.tensors["weights/conv.weight"], stored["weights/conv.weight"][...])

    def test_train_starts_from_what_is_written(self):
        saved = ringtrain.read_checkpoint(self.file)
        state = {name: array for name, array in saved.tensors.items() if name.split("/")[0] in ("weights", "statistics")}
        averaged = {name: saved.tensors.get("ema/" + name.split("/", 1)[1], array) for name, array in state.items()}
        ringtrain.write_checkpoint(self.folder / "start.h5", "mlp", averaged)
        self.assertEqual(self.evaluation("--seed", "2", "--init-from", "start.h5"), self.evaluation("--resume", self.file))

    def test_damage_is_named(self):
        damaged = self.folder / "damaged.h5"
        data = bytearray(pathlib.Path(self.file).read_bytes())
        data[100000] ^= 255
        damaged.write_bytes(data)
        with self.assertRaisesRegex(ValueError, "tensor 'weights/fc1.weight' fails its hash"):
            ringtrain.read_checkpoint(damaged)

    def test_what_is_missing_is_told_with_its_cure(self):
        code = "import sys; sys.modules['torch'] = None; sys.path.insert(0, sys.argv[1]); import ringtrain; ringtrain.to_torch(sys.argv[2])"
        ended = subprocess.run([sys.executable, "-B", "-c", code, FOLDER, self.file], capture_output=True, text=True)
        self.assertIn("pip install 'ringtrain[torch]'", ended.stderr)


if __name__ == "__main__":
    unittest.main()
