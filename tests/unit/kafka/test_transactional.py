"""The bytes of the requests that aiokafka has no structs for, by hand from Kafka's message definitions."""

from __future__ import annotations

from io import BytesIO

from loadtrim_agent.kafka.transactional import FencedOffsetsRequest, StableOffsetsRequest

OFFSET_FETCH, TXN_OFFSET_COMMIT = 9, 28


def fenced() -> FencedOffsetsRequest:
    return FencedOffsetsRequest(
        transactional_id="tx",
        producer_id=7,
        producer_epoch=2,
        group="g",
        member="me",
        generation=3,
        topics=[("t", [(1, 5, "m")])],
    )


def test_a_stable_offset_fetch() -> None:
    request = StableOffsetsRequest("g", [("t", [0, 1])]).prepare({OFFSET_FETCH: (1, 9)})
    assert (request.API_VERSION, request.FLEXIBLE_VERSION) == (7, True)
    assert request.encode() == (
        b"\x02g"  # group: length + 1
        b"\x02\x02t\x03\x00\x00\x00\x00\x00\x00\x00\x01\x00"  # topics: 1 + 1; name; 2 + 1 partitions; no tags
        b"\x01"  # require_stable
        b"\x00"  # no tags
    )


def test_its_answer() -> None:
    request = StableOffsetsRequest("g", [("t", [0])]).prepare({OFFSET_FETCH: (1, 9)})
    answer = request.RESPONSE_TYPE.decode(
        BytesIO(
            b"\x00\x00\x00\x00"  # throttle time
            b"\x02\x02t\x02"  # topics: 1 + 1; name; 1 + 1 partitions
            b"\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x05\xff\xff\xff\xff\x00\x00\x58\x00"  # 1 at 5, no text, 88
            b"\x00\x00\x0e\x00"  # no tags; code 14; no tags
        )
    )
    ((topic, ((index, offset, epoch, metadata, code, tags),), _),) = answer.topics
    assert (topic, index, offset, epoch, metadata, code, tags) == ("t", 1, 5, -1, None, 88, {})
    assert answer.error_code == 14


def test_a_transactions_offsets_with_member_and_generation() -> None:
    request = fenced().prepare({TXN_OFFSET_COMMIT: (0, 5)})
    assert (request.API_VERSION, request.FLEXIBLE_VERSION) == (3, True)
    assert request.encode() == (
        b"\x03tx\x02g\x00\x00\x00\x00\x00\x00\x00\x07\x00\x02"  # transactional id, group, producer id and epoch
        b"\x00\x00\x00\x03\x03me\x00"  # generation, member, no instance id
        b"\x02\x02t\x02\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x05\xff\xff\xff\xff\x02m\x00\x00\x00"
    )


def test_an_older_broker_gets_what_it_knows() -> None:
    old = StableOffsetsRequest("g", [("t", [0])]).prepare({OFFSET_FETCH: (1, 5)})
    assert old.API_VERSION == 3
    assert old.encode() == b"\x00\x01g\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x00"
    assert fenced().prepare({TXN_OFFSET_COMMIT: (0, 2)}).API_VERSION == 0
