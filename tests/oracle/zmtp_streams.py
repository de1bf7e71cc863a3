#!/usr/bin/env python3
"""Writes agent/core/src/wire/zmtp/oracle.txt: what libzmq itself puts on the wire, and the messages meant.

Needs pyzmq. Both sockets of a pair talk through a relay that keeps every byte. Lines: `stream NAME SOCKET_TYPE hex`
(all bytes one side sent), then `message NAME hex,hex,...` (the frames of each message it sent).
"""
import socket
import sys
import threading
import time

import zmq

SMALL, EDGE, LONG, HUGE = b"\x91\xa1a", b"\x92" * 255, b"\x93" * 256, bytes(range(256)) * 5
MESSAGES = [[b"\x00", SMALL], [EDGE], [LONG], [b"\x01", HUGE, b"", LONG], [b""], [SMALL]]
PAIRS = [(zmq.PUSH, "PUSH", zmq.PULL, "PULL"), (zmq.DEALER, "DEALER", zmq.ROUTER, "ROUTER"), (zmq.REQ, "REQ", zmq.ROUTER, "ROUTER")]


def pump(source, sink, kept):
    while data := source.recv(65536):
        kept.append(data)
        sink.sendall(data)


def relay(listener, port, kept):
    near = listener.accept()[0]
    far = socket.create_connection(("127.0.0.1", port))
    for source, sink, side in [(near, far, 0), (far, near, 1)]:
        threading.Thread(target=pump, args=(source, sink, kept[side]), daemon=True).start()


def run(sender_type, receiver_type):
    """Bytes that each side of a pair sent."""
    context, kept = zmq.Context(), ([], [])
    receiver = context.socket(receiver_type)
    port = receiver.bind_to_random_port("tcp://127.0.0.1")
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=relay, args=(listener, port, kept), daemon=True).start()
    sender = context.socket(sender_type)
    if sender_type == zmq.DEALER:
        sender.setsockopt(zmq.IDENTITY, b"\x00\x00")
    sender.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
    messages = MESSAGES[:1] if sender_type == zmq.REQ else MESSAGES
    for message in messages:
        sender.send_multipart(message)
        receiver.recv_multipart()
    time.sleep(0.1)
    context.destroy(linger=0)
    delimiter = [b""] if sender_type == zmq.REQ else []
    return b"".join(kept[0]), b"".join(kept[1]), [delimiter + message for message in messages]


def main(out):
    for sender_type, sender, receiver_type, receiver in PAIRS:
        sent, answered, messages = run(sender_type, receiver_type)
        name = f"{sender}-{receiver}"
        print("stream", f"{name}-sender", sender, sent.hex(), file=out)
        for message in messages:
            print("message", f"{name}-sender", ",".join(frame.hex() for frame in message), file=out)
        print("stream", f"{name}-receiver", receiver, answered.hex(), file=out)


if __name__ == "__main__":
    main(sys.stdout)
