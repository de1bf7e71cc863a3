"""Stands in, in tests only, for the few names of vLLM that SGLang up to 0.5.10 takes from it on a CPU without AMX. Its
layers are SGLang's own, written in torch."""
