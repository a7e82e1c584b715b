# The payments example in a container; a service of your own looks the same.
# A tag may be moved: where it matters, --build-arg BASE=python:3.11-slim@sha256:... names the very image.
ARG BASE=python:3.11-slim
FROM ${BASE}
WORKDIR /app
# Exact versions, and the very files: pip refuses one with another hash.
COPY requirements-container.txt ./
RUN pip install --no-cache-dir --require-hashes -r requirements-container.txt
COPY pyproject.toml README.md LICENSE ./
COPY agent agent
COPY consumer_sdk consumer_sdk
RUN pip install --no-cache-dir --no-deps --no-build-isolation .
COPY examples/payments payments
# In a pod the agent's metrics and health must be reachable from outside it.
ENV LOADTRIM_HTTP=0.0.0.0:9095
EXPOSE 9095
# Nobody in particular: nothing is written here.
USER 10001:10001
# SIGTERM reaches Python itself, so that partitions are handed over before the container goes.
ENTRYPOINT ["python", "payments/service.py"]
