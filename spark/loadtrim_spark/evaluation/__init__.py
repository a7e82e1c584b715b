"""How good baselines are: generated histories, backtests, replays."""
