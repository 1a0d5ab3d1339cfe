"""Quantization by PaddleSlim: observers, quanters, quantization-aware training."""
