"""Export of a trained model to model folders: INT8 search, selection of the shipped model, variants for targets."""
