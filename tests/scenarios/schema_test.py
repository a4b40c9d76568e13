"""The JSON Schema against the loader: both accept the shipped scenarios, and both reject the same damaged ones.

usage: schema_test.py RESOLVE SCHEMA SCENARIO...
RESOLVE is resolve_main: it prints a scenario resolved (exit 0) or what is wrong with it (exit 2).
"""

import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import jsonschema
import yaml


class Loader(yaml.SafeLoader):
    """YAML 1.2's numbers and booleans; PyYAML's own are those of YAML 1.1 (3e-4 is text, yes is true)."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if not tag.endswith((":bool", ":int", ":float", ":timestamp"))]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), "tf")
Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9]*)$"), "-+0123456789")
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"), "-+.0123456789")

RESOLVE, SCHEMA, *SCENARIOS = sys.argv[1:]


def read(path):
    with open(path, encoding="utf-8") as file:
        return yaml.load(file, Loader)


def run_loader(path):
    """The loader's verdict and what it printed."""
    done = subprocess.run([RESOLVE, path], stdout=subprocess.PIPE, check=False, encoding="utf-8")
    assert done.returncode in (0, 2), done
    return done.returncode == 0, done.stdout


def loader_accepts(document):
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(document, file)
        file.flush()
        return run_loader(file.name)


def blocks(value, path=()):
    """Every block of a document with the keys that lead to it."""
    if isinstance(value, dict):
        yield path, value
        for key, inner in value.items():
            yield from blocks(inner, path + (key,))


def block_at(document, path):
    for key in path:
        document = document[key]
    return document


class Schema(unittest.TestCase):
    def setUp(self):
        with open(SCHEMA, encoding="utf-8") as file:
            schema = json.load(file)
        jsonschema.Draft202012Validator.check_schema(schema)
        self.validator = jsonschema.Draft202012Validator(schema)

    def test_accepts_shipped_scenarios_as_written_and_resolved(self):
        self.assertGreater(len(SCENARIOS), 0)
        for path in SCENARIOS:
            self.validator.validate(read(path))
            accepted, resolved = run_loader(path)
            self.assertTrue(accepted, resolved)
            self.validator.validate(yaml.load(resolved, Loader))

    def test_rejects_what_the_loader_rejects_of_unknown_keys(self):
        for path in SCENARIOS:
            document = read(path)
            for where, _ in list(blocks(document)):
                damaged = copy.deepcopy(document)
                block_at(damaged, where)["surprise"] = 1
                self.assertFalse(self.validator.is_valid(damaged), where)
                self.assertFalse(loader_accepts(damaged)[0], where)

    def test_agrees_with_the_loader_on_wrong_values(self):
        path = max(SCENARIOS, key=os.path.getsize)
        resolved = yaml.load(run_loader(path)[1], Loader)
        tried = 0
        for where, block in list(blocks(resolved)):
            for key, old in block.items():
                for wrong in (-1, "surprise value", True, None, [], {}, [{}]):
                    if wrong == old or isinstance(wrong, type(old)):
                        continue
                    damaged = copy.deepcopy(resolved)
                    block_at(damaged, where)[key] = wrong
                    accepted, message = loader_accepts(damaged)
                    conflict = not accepted and "did you mean" not in message
                    valid = self.validator.is_valid(damaged)
                    # The loader also knows what must hold between keys, so it may reject what the schema accepts.
                    self.assertTrue(valid or not accepted, (where, key, wrong))
                    self.assertTrue(not valid or accepted or conflict, (where, key, wrong, message))
                    tried += 1
        self.assertGreater(tried, 300)

    def test_links_are_of_the_kinds_of_their_place(self):
        for place, kind, known in (("intra_node", "nvlink4", True), ("intra_node", "infiniband", False),
                                   ("inter_node", "infiniband", True), ("inter_node", "nvlink4", False)):
            for link in (kind, {"kind": kind}):
                document = {"model": {"preset": "gpt2-124m"},
                            "cluster": {"device": "h100-sxm-80g", "nodes": 2, "devices_per_node": 8, "network": {place: link}},
                            "parallel": {"data": {"size": 16}}}
                self.assertEqual(self.validator.is_valid(document), known, (place, link))
                self.assertEqual(loader_accepts(document)[0], known, (place, link))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
