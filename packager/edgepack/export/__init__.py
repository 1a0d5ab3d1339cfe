"""From a trained model to model folders: INT8 search, selection of what ships, variants for targets."""
