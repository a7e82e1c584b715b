"""What is learnt from the history. Pure: DataFrames in, DataFrames out."""
