"""The stages that train, export and bundle a model, one file each: a class with its inputs, its key and its work."""
