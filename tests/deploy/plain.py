"""Writes the plain manifests: the chart as Helm renders it with its own values. Usage: plain.py CHART."""

import sys

import helm_python
import yaml

HEAD = """\
# The chart in deploy/helm/enginetap, rendered with its own values: do not edit, `cargo xtask test --only deploy` says
# how to write it anew. kubectl create namespace enginetap && kubectl apply -f enginetap.yaml
"""


def text(dumper, value):
    """Files within manifests stay readable."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


def main():
    yaml.SafeDumper.add_representer(str, text)
    rendered = helm_python.Chart.load(sys.argv[1]).render({}, name="enginetap", namespace="enginetap")
    texts = [text for path, text in sorted(rendered.items()) if path.endswith(".yaml")]
    documents = [document for text in texts for document in yaml.safe_load_all(text) if document]
    sys.stdout.write(HEAD + yaml.safe_dump_all(documents, sort_keys=False, width=120))


if __name__ == "__main__":
    main()
