"""SGLang's own norms, from its module that is being imported."""
import sys

_own = sys.modules["sglang.srt.layers.layernorm"]
RMSNorm, GemmaRMSNorm = _own.RMSNorm, _own.GemmaRMSNorm
