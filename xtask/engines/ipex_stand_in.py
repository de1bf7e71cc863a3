"""Stand-in for the part of Intel's torch extension that vLLM 0.8 to 0.10 call on a CPU, in plain torch.

With it these versions have prefix caching, chunked prefill and block sizes other than 16, as they have with the real
extension, which no longer installs beside their torch. For tests: correct, not fast. Installed by `cargo xtask engines`
as intel_extension_for_pytorch/llm/modules.py. A cache is (blocks, heads, block size, head size).
"""
import torch
from torch.nn.functional import scaled_dot_product_attention


def gathered(cache, block_table, length):
    """(heads, length, head size): a sequence's keys or values, brought together from its blocks."""
    size = cache.shape[2]
    blocks = cache[block_table[: -(-length // size)].long()]
    return blocks.transpose(0, 1).flatten(1, 2)[:, :length]


def attend(query, key_cache, value_cache, block_table, length, scale, causal):
    """Attention of the last tokens of a sequence of `length`, of which the query's rows are the end."""
    tokens, heads, _ = query.shape
    keys, values = (gathered(cache, block_table, length) for cache in (key_cache, value_cache))
    group = heads // keys.shape[0]
    keys, values = (part.repeat_interleave(group, dim=0).float() for part in (keys, values))
    mask = torch.ones(tokens, length, dtype=torch.bool).tril(length - tokens) if causal else None
    out = scaled_dot_product_attention(query.transpose(0, 1).float(), keys, values, attn_mask=mask, scale=scale)
    return out.transpose(0, 1).to(query.dtype)


class PagedAttention:
    @staticmethod
    def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, *_):
        used = slot_mapping >= 0
        slots, size = slot_mapping[used].long(), key_cache.shape[2]
        for source, cache in ((key, key_cache), (value, value_cache)):
            cache[slots // size, :, slots % size] = source[: len(slot_mapping)][used].to(cache.dtype)

    @staticmethod
    def flash_attn_varlen_func(output, query, key_cache, value_cache, query_starts, key_starts, _max_query, _max_key,
                               scale, causal, block_tables, *_args, **_more):
        starts, lengths = query_starts.tolist(), key_starts.diff().tolist()
        for i, length in enumerate(lengths):
            rows = slice(starts[i], starts[i + 1])
            output[rows] = attend(query[rows], key_cache, value_cache, block_tables[i], length, scale, causal)

    @staticmethod
    def single_query_cached_kv_attention(output, query, key_cache, value_cache, _head_mapping, scale, block_tables,
                                         context_lens, *_args, **_more):
        for i in range(len(query)):
            # A resumed request comes here with several tokens, as if each were a request: 0.9 and 0.10 do so.
            sequence = min(i, len(block_tables) - 1)
            output[i : i + 1] = attend(query[i : i + 1], key_cache, value_cache, block_tables[sequence],
                                       int(context_lens[sequence]), scale, False)
