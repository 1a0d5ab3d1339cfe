"""The tasks of text models: what an answer is, how it is made of logits, written, scored and described.

A task is one file here, and one in the packager's `tasks`. `model.json` names it.
"""
