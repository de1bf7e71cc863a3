//! How often a process is read: at each forward's start where one is told of, else often while it works, seldom while
//! it does not, and in the long run never so often that it costs more than its share of a core.

use enginetap_core::time::{MonoTime, Nanos};

/// While nothing happens.
const IDLE: Nanos = Nanos::from_millis(1000);
/// Where it was not found at once.
const SOON: Nanos = Nanos::from_millis(100);
/// Work is expected for so long after a sign of it. A process that works is read as often at the least, whatever it
/// cost: one reading that met a machine at its limits must not make it blind to whole requests.
const AWAKE: Nanos = Nanos::from_millis(200);
/// While forwards' starts are told, besides them.
const BESIDE: Nanos = Nanos::from_millis(50);
/// One reading in so many times its own CPU time: 5 % of a core.
const SHARE: u64 = 20;
/// The same while forwards' starts ask for readings: 12 %.
const MARK_SHARE: u64 = 8;
/// CPU time that may be spent at once after a rest.
const BURST: Nanos = Nanos::from_millis(10);

/// When a process is to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Between two readings of a process that works, at the least.
    fast: Nanos,
    next: MonoTime,
    ended: MonoTime,
    /// CPU time spent beyond its share, when the last reading ended.
    debt: Nanos,
    woken: Option<MonoTime>,
    marked: Option<MonoTime>,
    /// Whether it had requests when it was read last.
    works: bool,
}

impl Pace {
    /// To be read at once, then every `fast` while it works.
    pub fn new(fast: Nanos, now: MonoTime) -> Self {
        Self { fast, next: now, ended: now, debt: Nanos(0), woken: None, marked: None, works: false }
    }

    /// When it is to be read.
    pub fn next(&self) -> MonoTime {
        self.next
    }

    /// There is a sign of work.
    pub fn wake(&mut self, now: MonoTime) {
        self.woken = Some(now);
        self.next = self.next.min(self.ended.plus(self.pause()));
    }

    /// A forward began; whether it may be read for it.
    pub fn mark(&mut self, now: MonoTime) -> bool {
        self.marked = Some(now);
        let allowed = now >= self.ended.plus(self.rest(MARK_SHARE));
        if allowed {
            self.next = now;
        }
        allowed
    }

    /// It was read: that took `cost` of a core, and it had requests or had none.
    pub fn was_read(&mut self, now: MonoTime, cost: Nanos, works: bool) {
        let recent = |sign: Option<MonoTime>| sign.is_some_and(|sign| now.since(sign) < AWAKE);
        let share = if recent(self.marked) { MARK_SHARE } else { SHARE };
        let earned = now.since(self.ended).0 / share;
        self.debt = Nanos(self.debt.0.saturating_sub(earned).saturating_add(cost.0));
        (self.ended, self.works) = (now, works);
        let pause = if !works && !recent(self.woken) {
            IDLE
        } else if recent(self.marked) {
            BESIDE.max(self.pause())
        } else {
            self.pause()
        };
        self.next = now.plus(pause);
    }

    /// It was found, and is to be read at once. What the search cost is the attach's, no reading's: counted as one, it made
    /// the first half second blind, and with it the requests that run when `attach` says that it is attached.
    pub fn found(&mut self, now: MonoTime) {
        (self.ended, self.debt, self.next) = (now, Nanos(0), now);
    }

    /// It is to be looked for again soon.
    pub fn soon(&mut self, now: MonoTime) {
        self.next = now.plus(SOON);
    }

    /// It is to be looked for again after a while.
    pub fn later(&mut self, now: MonoTime) {
        self.next = now.plus(IDLE);
    }

    fn pause(&self) -> Nanos {
        self.rest(SHARE).max(self.fast)
    }

    /// Until what was spent beyond the share is no more than may be spent at once.
    fn rest(&self, share: u64) -> Nanos {
        Nanos(self.debt.0.saturating_sub(BURST.0).saturating_mul(share)).min(AWAKE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Nanos = Nanos::from_millis(5);

    fn ms(at: u64) -> MonoTime {
        MonoTime(at * 1_000_000)
    }

    #[test]
    fn a_process_is_read_often_while_it_works_and_seldom_while_it_does_not() {
        let mut pace = Pace::new(FAST, ms(0));
        assert_eq!(pace.next(), ms(0));
        pace.was_read(ms(1), Nanos(100_000), true);
        assert_eq!(pace.next(), ms(6));
        pace.was_read(ms(6), Nanos(100_000), false);
        assert_eq!(pace.next(), ms(1006));
        pace.wake(ms(300));
        assert!(pace.next() <= ms(300), "a sign of work");
        pace.was_read(ms(301), Nanos(100_000), false);
        assert_eq!(pace.next(), ms(306), "it is awake for a while");
    }

    #[test]
    fn in_the_long_run_readings_cost_no_more_than_their_share() {
        let mut pace = Pace::new(FAST, ms(0));
        let (mut now, mut spent) = (ms(0), 0);
        while now < ms(10_000) {
            pace.was_read(now, Nanos::from_millis(2), true);
            spent += 2;
            now = pace.next();
        }
        assert!((500..=520).contains(&spent), "{spent} ms of ten seconds");
    }

    #[test]
    fn what_was_not_spent_may_be_spent_at_once_but_no_more() {
        let mut pace = Pace::new(FAST, ms(0));
        pace.was_read(ms(1000), Nanos::from_millis(10), true);
        assert_eq!(pace.next(), ms(1005));
        pace.was_read(ms(1005), Nanos::from_millis(2), true);
        assert_eq!(pace.next(), ms(1040));
        assert!(!pace.mark(ms(1018)), "a rest of 14 ms is not over");
        assert!(pace.mark(ms(1020)));
    }

    #[test]
    fn what_was_searched_for_dearly_is_read_at_once_and_often() {
        let mut pace = Pace::new(FAST, ms(0));
        pace.soon(ms(0));
        pace.found(ms(140));
        assert_eq!(pace.next(), ms(140));
        pace.was_read(ms(141), Nanos(500_000), true);
        assert_eq!(pace.next(), ms(146));
    }

    #[test]
    fn one_dear_reading_does_not_make_it_blind() {
        let mut pace = Pace::new(FAST, ms(0));
        pace.was_read(ms(1000), Nanos::from_millis(90), true);
        assert_eq!(pace.next(), ms(1200));
    }

    #[test]
    fn where_forwards_are_told_it_is_read_for_them() {
        let mut pace = Pace::new(FAST, ms(0));
        pace.was_read(ms(0), Nanos(10_000), true);
        assert!(pace.mark(ms(3)));
        assert_eq!(pace.next(), ms(3));
        pace.was_read(ms(3), Nanos(10_000), true);
        assert_eq!(pace.next(), ms(53));
    }
}
