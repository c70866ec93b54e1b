"""Write ten orders and read them back as a consumer group, with confluent-kafka.

Run it against `tidemill serve`: python examples/produce_consume.py
"""

from confluent_kafka import Consumer, Producer

BOOTSTRAP = "127.0.0.1:9092"
TOPIC = "example-orders"
ORDERS = 10


def produce() -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    for number in range(ORDERS):
        producer.produce(TOPIC, key=f"user-{number % 3}", value=f"order {number}")
    unanswered = producer.flush(30)
    print(f"wrote {ORDERS - unanswered} orders")


def consume() -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "example-readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    try:
        for message in consumer.consume(num_messages=ORDERS, timeout=30):
            print(f"{message.partition()}/{message.offset()} {message.key().decode()}: {message.value().decode()}")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


if __name__ == "__main__":
    produce()
    consume()
