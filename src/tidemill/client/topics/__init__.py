"""Streams over gRPC: a producer bound to a topic, and a member of a consumer group."""

from tidemill.client.topics.consumer import AsyncConsumer, ConsumerClosed, TopicRecord
from tidemill.client.topics.producer import AsyncTopicProducer, Delivery, DeliveryFailed, ProducerClosed
from tidemill.client.topics.sync import Consumer, TopicProducer

__all__ = [
    "AsyncConsumer",
    "AsyncTopicProducer",
    "Consumer",
    "ConsumerClosed",
    "Delivery",
    "DeliveryFailed",
    "ProducerClosed",
    "TopicRecord",
    "TopicProducer",
]
