"""loadtrim: Kafka consumer groups that keep their latency promise by themselves.

    from loadtrim import Consumer            # was: from aiokafka import AIOKafkaConsumer

    async with Consumer("payments", bootstrap_servers="localhost:9092", group_id="payments-service") as consumer:
        async for message in consumer:
            await handle(message)

Configured by ``LOADTRIM_*`` variables (:class:`Settings`); metrics, health and status over HTTP.
"""

from loadtrim_agent import __version__
from loadtrim_agent.delivery.listener import IncrementalRebalanceListener

from .consumer import Consumer
from .settings import Settings, SettingsError

__all__ = ["Consumer", "IncrementalRebalanceListener", "Settings", "SettingsError", "__version__"]
