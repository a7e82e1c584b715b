"""Judge of programs and loads: the fewest replicas that hold the objective, and what the group asks for.

It is Theodolite's demand curve (Henning & Hasselbring 2022) for a group that sizes itself. What is played and how it is
judged stands here. Two forms play it: real processes on a real Kafka (``benchmarks.suite.bench_programs``), and the
whole product on virtual time (``python -m whole.demand``), which is the laboratory.
"""
