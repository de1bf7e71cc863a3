"""Stands in, in tests only, for the kernels that SGLang's wheels bring for CUDA: PyPI has none for the CPU.

SGLang imports names from here when it starts. On a CPU without AMX its layers run plain torch code, so hardly any of
them is called: every name is a function that raises when it is. What the CPU path does call is written in torch below.
Scheduler, tokenizer, detokenizer, HTTP server and their messages are SGLang's own.
"""
import importlib.machinery
import sys
import types

__version__ = "99.0.0"


def assign_req_to_token_pool_cpu(request_indices, pool, starts, ends, cache_locations, *_):
    """Writes each request's new cache locations into its row of the pool."""
    at = 0
    for row, start, end in zip(request_indices.tolist(), starts.tolist(), ends.tolist()):
        pool[row, start:end] = cache_locations[at:at + end - start].to(pool.dtype)
        at += end - start


def _absent(name):
    def call(*_args, **_kwargs):
        raise NotImplementedError(f"the stand-in for sgl_kernel has no {name}")
    call.__name__ = name
    return call


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent(f"{self.__name__}.{name}")


class _Finder:
    """Finds any `sgl_kernel.x` that is no file here."""

    def find_spec(self, name, _path=None, _target=None):
        if name.startswith("sgl_kernel."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _absent(name)


sys.meta_path.append(_Finder())
