"""Spends three quarters of its time in `hot` and one in `cold`, in a thread beside one that sleeps and one that waits.

Says `go` once it does, and ends when its input does.
"""
import os, sys, threading, time


def hot():
    total = 0
    for number in range(60000):
        total += number * number
    return total


def cold():
    total = 0
    for number in range(20000):
        total += number * number
    return total


class Engine:
    def step(self):
        hot()
        cold()

    def loop(self):
        while True:
            self.step()


def sleeps():
    while True:
        time.sleep(0.05)


threading.Thread(target=sleeps, daemon=True).start()
threading.Thread(target=Engine().loop, daemon=True).start()
print("go", flush=True)
sys.stdin.read()
os._exit(0)
