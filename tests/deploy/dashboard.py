"""Reads dashboards with Grafana's own model of them. Usage: dashboard.py FILE... Prints title and number of panels."""

import json
import sys

from grafana_foundation_sdk.models.dashboard import Dashboard

for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        dashboard = Dashboard.from_json(json.load(file))
    print(dashboard.title, len(dashboard.panels))
