"""A package, so that ``spark`` means this and not the pipeline's directory of that name at the root."""
