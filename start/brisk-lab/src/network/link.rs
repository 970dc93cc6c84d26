//! One direction of a line between two hosts: when a packet arrives, or that it does not.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// The smallest queue, in bytes. Home routers have no smaller ones.
const SMALLEST_QUEUE: u64 = 64 << 10;

/// A line between two hosts. Both directions are alike, and do not share the rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The time from a host to the other and back, without queues.
    pub round_trip_seconds: f64,
    pub bits_per_second: u64,
    /// The share of packets that are lost on the way, in percent.
    pub loss_percent: f64,
    /// How many bytes wait for the line. A packet that finds the queue full is dropped.
    pub queue_bytes: u64,
}

impl Line {
    /// A line with a queue of as many bytes as are on the way when it is full: rate times round trip.
    pub fn new(round_trip: Duration, bits_per_second: u64, loss_percent: f64) -> Result<Self> {
        ensure!(
            round_trip <= Duration::from_secs(10),
            "--rtt: found {round_trip:?}, allowed is up to 10s"
        );
        ensure!(
            bits_per_second >= 8000,
            "--rate: found {bits_per_second} bit/s, allowed is 8kbit or more"
        );
        ensure!(
            (0.0..100.0).contains(&loss_percent),
            "--loss: found {loss_percent}, allowed is 0 or more and less than 100"
        );
        let full = bits_per_second as f64 / 8.0 * round_trip.as_secs_f64();
        Ok(Self {
            round_trip_seconds: round_trip.as_secs_f64(),
            bits_per_second,
            loss_percent,
            // Rounded down, as a queue has no parts of bytes.
            queue_bytes: (full as u64).max(SMALLEST_QUEUE),
        })
    }
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives at this time.
    Arrives(Duration),
    /// It is lost on the way. It took the line's time before.
    Lost,
    /// The queue was full.
    Dropped,
}

/// One direction of a [`Line`]. All times count from the same moment.
///
/// 1. Packets leave one after the other, and each takes its length divided by the rate. Token buckets of one packet do
///    the same.
/// 2. A packet arrives half a round trip after it has left. So packets never overtake each other.
/// 3. At most `queue_bytes` wait.
pub struct Link {
    line: Line,
    rng: fastrand::Rng,
    /// When the line has sent all that waits.
    free: Duration,
}

impl Link {
    pub fn new(line: Line, seed: u64) -> Self {
        Self {
            line,
            rng: fastrand::Rng::with_seed(seed),
            free: Duration::ZERO,
        }
    }

    /// Takes a packet of `len` bytes at the time `now`, which is not before that of the packet before.
    pub fn send(&mut self, now: Duration, len: usize) -> Fate {
        let bytes_per_second = self.line.bits_per_second as f64 / 8.0;
        let waiting = self.free.saturating_sub(now).as_secs_f64() * bytes_per_second;
        if waiting + len as f64 > self.line.queue_bytes as f64 {
            return Fate::Dropped;
        }
        let sending = Duration::from_secs_f64(len as f64 / bytes_per_second);
        self.free = self.free.max(now) + sending;
        if self.rng.f64() * 100.0 < self.line.loss_percent {
            return Fate::Lost;
        }
        Fate::Arrives(self.free + Duration::from_secs_f64(self.line.round_trip_seconds / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// 1 Mbit/s: 125 bytes in a millisecond.
    fn line(round_trip: Duration, loss_percent: f64) -> Line {
        Line::new(round_trip, 1_000_000, loss_percent).unwrap()
    }

    #[test]
    fn packets_take_the_time_of_the_rate_and_of_the_delay() {
        let mut link = Link::new(line(ms(40), 0.0), 1);
        for (now, len, arrives) in [
            // An idle line: 10 ms to send, 20 ms on the way.
            (ms(0), 1250, ms(30)),
            // It waits until 10 ms.
            (ms(1), 1250, ms(40)),
            (ms(2), 125, ms(41)),
            // The line has been idle since 21 ms.
            (ms(100), 125, ms(121)),
        ] {
            assert_eq!(link.send(now, len), Fate::Arrives(arrives), "{now:?}");
        }
    }

    #[test]
    fn a_full_queue_drops_what_comes_next() {
        let mut link = Link::new(line(ms(40), 0.0), 1);
        // 64 KiB hold 52 of these packets, and a smaller one.
        for number in 1..=52 {
            let arrives = Fate::Arrives(ms(10 * number + 20));
            assert_eq!(link.send(ms(0), 1250), arrives);
        }
        assert_eq!(link.send(ms(0), 1250), Fate::Dropped);
        assert_eq!(link.send(ms(0), 250), Fate::Arrives(ms(542)));
        // One packet has left.
        assert_eq!(link.send(ms(10), 1250), Fate::Arrives(ms(552)));
        assert_eq!(link.send(ms(10), 1250), Fate::Dropped);
    }

    #[test]
    fn queues_hold_what_is_on_the_way() {
        let queue = |round_trip, rate| {
            let line = Line::new(round_trip, rate, 0.0).unwrap();
            line.queue_bytes
        };
        assert_eq!(queue(ms(50), 100_000_000), 625_000);
        assert_eq!(queue(ms(1), 1_000_000), 65_536);
    }

    #[test]
    fn the_same_packets_are_lost_with_the_same_seed() {
        let fates = |seed| {
            let mut link = Link::new(line(ms(0), 10.0), seed);
            let fates = (0..1000).map(|number| link.send(ms(number), 125));
            fates.collect::<Vec<_>>()
        };
        assert_eq!(fates(7), fates(7));
        assert_ne!(fates(7), fates(8));
        let lost = fates(7).iter().filter(|fate| **fate == Fate::Lost).count();
        assert!((60..140).contains(&lost), "{lost}");
        assert!(!fates(7).contains(&Fate::Dropped));
        // What is lost takes the time of the line, too.
        let mut link = Link::new(line(ms(0), 99.9), 1);
        assert_eq!(link.send(ms(0), 1250), Fate::Lost);
        link.line.loss_percent = 0.0;
        assert_eq!(link.send(ms(0), 1250), Fate::Arrives(ms(20)));
    }

    #[test]
    fn lines_that_are_no_lines_are_refused() {
        for (round_trip, rate, loss, expected) in [
            (
                ms(10_001),
                8000,
                0.0,
                "--rtt: found 10.001s, allowed is up to 10s",
            ),
            (
                ms(1),
                7999,
                0.0,
                "--rate: found 7999 bit/s, allowed is 8kbit or more",
            ),
            (
                ms(1),
                8000,
                100.0,
                "--loss: found 100, allowed is 0 or more and less than 100",
            ),
        ] {
            let e = Line::new(round_trip, rate, loss).unwrap_err();
            assert_eq!(e.to_string(), expected);
        }
    }
}
