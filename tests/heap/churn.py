"""Changes all that is read of it, all the time: with short rests, or none (`restless`). What must hold at any moment:

`pair` holds one number twice; `table` has k0, k1 ... with 1000, 1001 ...; `row` is one number again and again; `queue` counts
up without a gap; `text` spells its length; `at.time` never goes back.
"""
import collections, sys, time


rests = sys.argv[1:] != ["restless"]


class At:
    pass


class Loop:
    def event_loop(self):
        self.at = At()
        self.at.time = time.perf_counter()
        self.pair, self.table, self.row, self.text = (300, 300), {}, [], ""
        self.queue = collections.deque(range(1000, 1050))
        sys.stdout.write('{"version": "", "objects": {}}\n')
        sys.stdout.flush()
        n = 0
        while True:
            n += 1
            self.at.time = time.perf_counter()
            self.pair = (n + 300, n + 300)
            self.queue.append(self.queue[-1] + 1)
            self.queue.popleft()
            self.table = {f"k{i}": 1000 + i for i in range(n % 7)}
            self.row = [n + 300] * (n % 9)
            self.text = str(n % 9) * (n % 9)
            if rests and n % 50 == 0:
                time.sleep(0.0005)


Loop().event_loop()
