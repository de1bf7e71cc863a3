"""SGLang's own activations, from its module that is being imported."""
import sys

_own = sys.modules["sglang.srt.layers.activation"]
SiluAndMul, GeluAndMul = _own.SiluAndMul, _own.GeluAndMul
