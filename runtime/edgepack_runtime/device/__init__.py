"""Facts of the device: system, processor, GPU, conditions, throttling, and what `doctor` makes of them."""
