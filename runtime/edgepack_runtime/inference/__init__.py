"""Text in, prediction out: tokenizer, encoding, predictor, streaming, tuning, self-test, benchmark."""
