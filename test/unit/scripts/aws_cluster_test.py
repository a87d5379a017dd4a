#!/usr/bin/env python3
"""aws_cluster_test.py CLUSTER.YAML [schema]: the ParallelCluster configuration holds what train and its documentation rely on; or
it follows the schema of aws-parallelcluster."""
import pathlib
import re
import sys
import unittest

try:
    import yaml
except ImportError:
    print("skipped: no python3-yaml (scripts/setup.sh)")
    sys.exit(77)

if sys.argv[2:] == ["schema"]:
    try:
        from pcluster.schemas.cluster_schema import ClusterSchema
    except ImportError:
        print("skipped: aws-parallelcluster is not installed")
        sys.exit(77)
    filled = re.sub(r"subnet-<\w+>", "subnet-0123456789abcdef0", pathlib.Path(sys.argv[1]).read_text()).replace("<key>", "key").replace("<your address>", "192.0.2.7")
    ClusterSchema(cluster_name="test").load(yaml.safe_load(filled))
    sys.exit(0)

TEXT = pathlib.Path(sys.argv.pop(1)).read_text()
CLUSTER = yaml.safe_load(TEXT)
QUEUES = {queue["Name"]: queue for queue in CLUSTER["Scheduling"]["SlurmQueues"]}


class Cluster(unittest.TestCase):
    def test_there_are_the_queues_of_the_walk_through(self):
        self.assertEqual(set(QUEUES), {"gpu", "gpu-spot", "cpu"})
        self.assertEqual({name: queue["CapacityType"] for name, queue in QUEUES.items()},
                         {"gpu": "ONDEMAND", "gpu-spot": "SPOT", "cpu": "ONDEMAND"})

    def test_gpus_talk_over_efa_within_one_placement_group(self):
        for name in ("gpu", "gpu-spot"):
            self.assertTrue(QUEUES[name]["Networking"]["PlacementGroup"]["Enabled"])
            self.assertTrue(all(resource["Efa"]["Enabled"] for resource in QUEUES[name]["ComputeResources"]))

    def test_no_node_runs_without_a_job(self):
        self.assertTrue(all(resource["MinCount"] == 0 for queue in QUEUES.values() for resource in queue["ComputeResources"]))

    def test_ssh_is_open_to_one_address(self):
        self.assertRegex(CLUSTER["HeadNode"]["Ssh"]["AllowedIps"], r"^<your address>/32$")

    def test_a_lost_node_is_given_up_before_a_requeued_job_starts(self):
        settings = {key: value for one in CLUSTER["Scheduling"]["SlurmSettings"]["CustomSlurmSettings"] for key, value in one.items()}
        self.assertLess(settings["SlurmdTimeout"], 120)

    def test_checkpoints_lie_on_a_shared_file_system_that_outlives_the_cluster(self):
        [storage] = CLUSTER["SharedStorage"]
        self.assertEqual((storage["MountDir"], storage["StorageType"]), ("/fsx", "FsxLustre"))
        self.assertEqual(storage["FsxLustreSettings"]["DeletionPolicy"], "Retain")


if __name__ == "__main__":
    unittest.main()
