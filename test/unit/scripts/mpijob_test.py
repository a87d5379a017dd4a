#!/usr/bin/env python3
"""mpijob_test.py CONTAINERS TRAIN [pods]: the Kubernetes job has only fields that kubeflow.org/v2beta1 has, of their types, and fits
the Dockerfile and train's options. `pods`: its pods follow Kubernetes' own schema, where kubernetes-validate is installed (scripts/setup.sh --full)."""
import pathlib
import re
import subprocess
import sys
import unittest

try:
    import yaml
except ImportError:
    print("skipped: no python3-yaml (scripts/setup.sh)")
    sys.exit(77)

PODS = sys.argv[3:] == ["pods"]
FOLDER, TRAIN = pathlib.Path(sys.argv[1]), sys.argv[2]
del sys.argv[1:]
JOB = yaml.safe_load((FOLDER / "mpijob.yaml").read_text())
REPLICAS = JOB["spec"]["mpiReplicaSpecs"]

# What the operator's resource definition names, without the pods' templates. A tuple: one of these words.
RUN_POLICY = {"activeDeadlineSeconds": int, "backoffLimit": int, "cleanPodPolicy": ("None", "Running", "All"), "suspend": bool,
              "ttlSecondsAfterFinished": int, "schedulingPolicy": dict}
SPEC = {"slotsPerWorker": int, "sshAuthMountPath": str, "mpiImplementation": ("OpenMPI", "Intel"), "runPolicy": RUN_POLICY,
        "mpiReplicaSpecs": dict}
REPLICA = {"replicas": int, "restartPolicy": ("Never", "OnFailure"), "template": dict}


def faults(value, kind, where):
    """What does not follow `kind`, each in a sentence."""
    if isinstance(kind, dict):
        for name, inner in value.items():
            yield from faults(inner, kind[name], f"{where}.{name}") if name in kind else [f"{where} has no field {name}"]
    elif isinstance(kind, tuple):
        if value not in kind:
            yield f"{where} is {value!r}, none of {kind}"
    elif type(value) is not kind:
        yield f"{where} is no {kind.__name__}: {value!r}"


def pod(role):
    return REPLICAS[role]["template"]["spec"]


def container(role):
    (only,) = pod(role)["containers"]
    return only


@unittest.skipIf(PODS, "the pods only")
class Job(unittest.TestCase):
    def test_its_fields_are_the_operators(self):
        self.assertEqual((JOB["apiVersion"], JOB["kind"]), ("kubeflow.org/v2beta1", "MPIJob"))
        self.assertEqual(set(JOB), {"apiVersion", "kind", "metadata", "spec"})
        self.assertEqual(list(faults(JOB["spec"], SPEC, "spec")), [])
        self.assertEqual(set(REPLICAS), {"Launcher", "Worker"})
        for role, replica in REPLICAS.items():
            self.assertEqual(list(faults(replica, REPLICA, role)), [])

    def test_wrong_fields_are_found(self):
        self.assertEqual(len(list(faults({"slotsPerWorkers": 2}, SPEC, "spec"))), 1)
        self.assertEqual(len(list(faults({"slotsPerWorker": "2"}, SPEC, "spec"))), 1)
        self.assertEqual(len(list(faults({"runPolicy": {"cleanPodPolicy": "some"}}, SPEC, "spec"))), 1)

    def test_its_ranks_are_the_workers_slots(self):
        command = container("Launcher")["command"]
        slots = JOB["spec"]["slotsPerWorker"] * REPLICAS["Worker"]["replicas"]
        self.assertEqual(command[command.index("-np") + 1], str(slots))

    def test_it_fits_the_image(self):
        dockerfile = (FOLDER / "Dockerfile").read_text()
        self.assertIn("useradd --create-home --uid 1000 mpiuser", dockerfile)
        self.assertEqual(JOB["spec"]["sshAuthMountPath"], "/home/mpiuser/.ssh")
        server = (FOLDER / "sshd_config").read_text()
        for file in re.findall(r"(/home/mpiuser/\.ssh)/", server):
            self.assertEqual(file, JOB["spec"]["sshAuthMountPath"])
        self.assertEqual(re.search(r"Port (\d+)", server)[1], re.search(r"Port (\d+)", (FOLDER / "ssh_config").read_text())[1])
        self.assertEqual(container("Worker")["command"][-1], "/home/mpiuser/sshd_config")
        for role in REPLICAS:
            self.assertEqual(container(role)["securityContext"]["runAsUser"], 1000)

    def test_train_takes_its_options(self):
        name, *options = container("Launcher")["args"]
        self.assertEqual(name, "train")
        subprocess.run([TRAIN, *options, "--print-config"], check=True, stdout=subprocess.DEVNULL)

    def test_volumes_that_are_mounted_are_there(self):
        self.assertEqual({mount["name"] for mount in container("Worker")["volumeMounts"]}, {volume["name"] for volume in pod("Worker")["volumes"]})


@unittest.skipUnless(PODS, "pods are a test of their own")
class Pods(unittest.TestCase):
    def test_they_follow_kubernetes_schema(self):
        for role in REPLICAS:
            kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": pod(role)}, "1.31", strict=True)

    def test_a_wrong_one_does_not(self):
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": pod("Worker") | {"contaners": []}}, "1.31", strict=True)


if __name__ == "__main__":
    if PODS:
        try:
            import kubernetes_validate
        except ImportError:
            print("skipped: kubernetes-validate is not installed (scripts/setup.sh --full)")
            sys.exit(77)
    unittest.main()
