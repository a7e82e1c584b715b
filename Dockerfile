# The payments example in a container; a service of your own looks the same.
FROM python:3.11-slim
WORKDIR /app
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY agent agent
COPY consumer_sdk consumer_sdk
RUN pip install --no-cache-dir -c constraints.txt .
COPY examples/payments payments
# In a pod the agent's metrics and health must be reachable from outside it.
ENV LOADTRIM_HTTP=0.0.0.0:9095
EXPOSE 9095
# SIGTERM reaches Python itself, so that partitions are handed over before the container goes.
ENTRYPOINT ["python", "payments/service.py"]
