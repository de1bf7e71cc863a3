"""Checks manifests against the schemas of several versions of Kubernetes. Usage: manifests.py FILE_JSON VERSION...

The file holds a list of manifests. What is wrong is on standard error, one line each; exit code 1 then.
"""

import json
import sys

import kubernetes_validate


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        documents = json.load(file)
    wrong = False
    for version in sys.argv[2:]:
        for document in documents:
            name = f"{version}: {document.get('kind')}"
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                print(f"{name}: {'.'.join(map(str, error.path))}: {error.message}", file=sys.stderr)
                wrong = True
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
