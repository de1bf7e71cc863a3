"""No kernel of vLLM is called on this path."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def call(*_args, **_kwargs):
        raise NotImplementedError(f"the stand-in for vllm has no {name}")
    return call
