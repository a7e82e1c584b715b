# The payments example in a container; a service of your own looks the same: exchange the last COPY of the first stage, and the ENTRYPOINT.
# A tag may be moved: where it matters, --build-arg BASE=python:3.11-slim@sha256:... names the very image.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /build
# Exact versions, and the very files: pip refuses one with another hash. The environment has no pip and no build tool of its own.
COPY requirements-container.txt requirements-container-build.txt ./
RUN python -m venv --without-pip /opt/loadtrim \
    && python -m pip --python /opt/loadtrim/bin/python install --no-cache-dir --require-hashes -r requirements-container.txt \
    && python -m pip install --no-cache-dir --require-hashes -r requirements-container-build.txt
COPY pyproject.toml README.md LICENSE ./
COPY agent agent
COPY consumer_sdk consumer_sdk
RUN python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir wheels . \
    && python -m pip --python /opt/loadtrim/bin/python install --no-cache-dir --no-deps --no-index wheels/*.whl
COPY examples/payments /app/payments
# Byte code is made here, for nothing can be written where it runs.
RUN python -m compileall -q /app

FROM ${BASE}
COPY --from=build /opt/loadtrim /opt/loadtrim
COPY --from=build /app /app
WORKDIR /app
# In a pod the agent's metrics and health must be reachable from outside it.
ENV PATH="/opt/loadtrim/bin:${PATH}" LOADTRIM_HTTP=0.0.0.0:9095
EXPOSE 9095
# Nobody in particular. Nothing is written: a read-only root will do.
USER 10001:10001
# For Docker and Compose; in Kubernetes the probes of the Deployment count. It fails only for a reason that is the agent's;
# without a server, or with one at a port that is drawn, nothing is asked.
HEALTHCHECK --interval=10s --timeout=5s --start-period=600s --retries=6 \
    CMD ["python", "-c", "from os import environ; from urllib.request import urlopen; port = environ['LOADTRIM_HTTP'].rpartition(':')[2]; port in ('off', '0') or urlopen('http://127.0.0.1:%s/healthz' % port, timeout=4)"]
# SIGTERM reaches Python itself, so that partitions are handed over before the container goes.
ENTRYPOINT ["python", "payments/service.py"]
