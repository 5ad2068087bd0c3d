"""The shortest pipeline: read a topic, change every value, write another topic.

python examples/01_hello.py
"""

import streamkit as sk
from streamkit.testing import Harness

names = sk.topic("names", str)
greetings = sk.topic("greetings", str)

hello = sk.pipeline("hello")
hello.read(names).map(lambda name: f"hello, {name}").write(greetings)


def main() -> None:
    """Run it here: the harness has everything but a broker."""
    with Harness(hello) as harness:
        harness.send(names, "ann", "bob")
        harness.run()
        for greeting in harness.read(greetings):
            print(greeting)


if __name__ == "__main__":
    main()
