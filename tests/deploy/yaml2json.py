"""YAML on standard input, JSON on standard output."""

import json
import sys

import yaml

json.dump(yaml.safe_load(sys.stdin), sys.stdout)
