"""Lints the chart and renders it with Helm's own SDK: JSON on standard output.

Usage: helm.py CHART [VALUES_JSON]. Exit code 2: the values or the chart are refused; the reason is on standard error.
"""

import json
import sys

import helm_python
import yaml


def documents(rendered):
    """Every manifest, in the order of the templates' names; those that are no manifests (notes) left out."""
    for path, text in sorted(rendered.items()):
        if path.endswith((".yaml", ".yml")):
            yield from (document for document in yaml.safe_load_all(text) if document)


def main():
    chart = sys.argv[1]
    values = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    try:
        report = helm_python.lint(chart, values, strict=True, kube_version="v1.31.0")
        rendered = helm_python.Chart.load(chart).render(values, name="enginetap", namespace="enginetap")
    except helm_python.HelmError as error:
        print(error, file=sys.stderr)
        return 2
    found = {"messages": report["messages"], "errors": report["errors"], "documents": list(documents(rendered))}
    json.dump(found, sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
