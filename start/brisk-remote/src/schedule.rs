//! What to ask a server for next: a plain value.

use std::ops::Range;

use crate::presence::{Presence, UNIT};

/// How many requests may be under way at once.
const MOST: usize = 16;

/// How many of them may be for what nobody waits for. Several connections together are faster than one as long as each starts
/// slowly, and more would take from those that somebody waits for.
const STREAMS: usize = 3;

/// The first request for a stream has this many bytes, so that the first pages come first.
const FIRST: u64 = 1 << 20;

/// The most bytes of one request.
const PIECE: u64 = 4 << 20;

/// The most bytes of one request for the rest. It is short, because it takes its share of the line from a
/// miss that comes meanwhile.
const LATER_PIECE: u64 = 512 << 10;

/// A request under way is cut short where a miss begins that is farther ahead than this. What is nearer arrives sooner than the
/// answer to another request would.
const NEAR: u64 = 512 << 10;

/// How urgent bytes are. Those of an earlier class are asked for first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A program waits for them.
    Miss,
    /// The tables, the hash tree: nothing can be read without them.
    Tables,
    /// The frames of the hot pack, in the order in which a launch needs them.
    Pack,
    /// What stands behind bytes that a program reads in order.
    Behind,
    /// What is near the pages of the hot pack: the frames with neighbours behind it, or else the rest of the blocks with its pages.
    Neighbours,
    /// The rest of the files of which the hot pack has pages.
    Opened,
    /// Everything else.
    Rest,
}

impl Class {
    /// Whether a launch is known to need such bytes.
    pub fn is_urgent(self) -> bool {
        matches!(self, Self::Miss | Self::Tables | Self::Pack)
    }
}

/// A request to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its number, for [`Schedule::arrived`] and [`Schedule::ended`].
    pub id: u64,
    /// The bytes to ask for.
    pub bytes: Range<u64>,
    /// How urgent they are.
    pub class: Class,
}

/// What is wanted of a file, and what is under way.
#[derive(Debug, Default)]
pub struct Schedule {
    /// Sorted by class, and in a class by the time at which they were wanted.
    wants: Vec<(Class, Range<u64>)>,
    flights: Vec<Flight>,
    next_id: u64,
    /// Whether something of the pack was asked for.
    pack_begun: bool,
    /// Whether a launch needs what is under way of another file.
    is_line_needed: bool,
}

/// A request under way.
#[derive(Debug)]
struct Flight {
    id: u64,
    class: Class,
    /// What is still to arrive of it.
    bytes: Range<u64>,
}

impl Schedule {
    /// Somebody wants `bytes`.
    pub fn want(&mut self, class: Class, bytes: Range<u64>) {
        if bytes.is_empty() || self.wants.contains(&(class, bytes.clone())) {
            return;
        }
        if class == Class::Miss {
            self.cut_for(&bytes);
        }
        let place = self.wants.partition_point(|(other, _)| *other <= class);
        self.wants.insert(place, (class, bytes));
    }

    /// Ends requests before bytes of a miss that would arrive long after it could.
    fn cut_for(&mut self, miss: &Range<u64>) {
        for flight in &mut self.flights {
            let is_far = miss.start.saturating_sub(flight.bytes.start) > NEAR;
            if flight.class > Class::Miss && is_far && miss.start < flight.bytes.end {
                flight.bytes.end = miss.start - miss.start % UNIT;
            }
        }
    }

    /// Whether a launch needs what is under way of other files, which come over the same line.
    pub fn set_line_needed(&mut self, is_line_needed: bool) {
        self.is_line_needed = is_line_needed;
    }

    /// The next request to send, or None if there is nothing to send now.
    pub fn next(&mut self, presence: &Presence) -> Option<Request> {
        if self.flights.len() >= MOST {
            return None;
        }
        self.wants.retain(|(_, bytes)| !presence.has(bytes));
        let of = |test: fn(Class) -> bool| {
            self.flights
                .iter()
                .filter(|flight| test(flight.class))
                .count()
        };
        let streams = of(|class| class > Class::Miss);
        // What no launch is known to need waits for what one needs: beside a miss it would make that later. A headless Chromium with
        // another page starts no sooner if one stream goes on beside misses, and gets half as many bytes again.
        let is_urgent = self.is_line_needed || of(Class::is_urgent) > 0;
        let may = |class: Class| match class {
            Class::Miss => true,
            Class::Tables | Class::Pack | Class::Behind => streams < STREAMS,
            Class::Neighbours | Class::Opened | Class::Rest => streams < STREAMS && !is_urgent,
        };
        let wants = self.wants.iter().filter(|(class, _)| may(*class));
        let (class, bytes) = wants
            .filter_map(|(class, bytes)| Some((*class, self.gap(presence, bytes)?)))
            .next()?;
        let most = match class {
            Class::Pack if !self.pack_begun => FIRST,
            Class::Opened | Class::Rest => LATER_PIECE,
            _ => PIECE,
        };
        self.pack_begun |= class == Class::Pack;
        let bytes = bytes.start..bytes.end.min(bytes.start.saturating_add(most));
        let id = self.adopt(class, bytes.clone());
        Some(Request { id, bytes, class })
    }

    /// A request for `bytes` is under way that this has not asked for. Returns its number.
    pub fn adopt(&mut self, class: Class, bytes: Range<u64>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.flights.push(Flight { id, class, bytes });
        id
    }

    /// The first part of `bytes` that is neither there nor under way.
    fn gap(&self, presence: &Presence, bytes: &Range<u64>) -> Option<Range<u64>> {
        let mut from = bytes.start;
        loop {
            let absent = presence.first_absent(&(from..bytes.end))?;
            // What a request has brought of a unit is not there before the rest of the unit.
            let whole =
                |flight: &Flight| flight.bytes.start - flight.bytes.start % UNIT..flight.bytes.end;
            let over = |flight: &&Flight| whole(flight).contains(&absent.start);
            match self.flights.iter().find(over) {
                Some(flight) => from = flight.bytes.end.checked_next_multiple_of(UNIT)?,
                None => {
                    let behind = self.flights.iter().map(|flight| flight.bytes.start);
                    let behind = behind.filter(|start| absent.contains(start)).min();
                    return Some(absent.start..behind.unwrap_or(absent.end));
                }
            }
        }
    }

    /// Bytes of a request have arrived, up to byte `to`. Returns where it ends now, which may be earlier than it was asked for:
    /// whoever receives it stops there. None if there is no such request.
    pub fn arrived(&mut self, id: u64, to: u64) -> Option<u64> {
        let flight = self.flights.iter_mut().find(|flight| flight.id == id)?;
        flight.bytes.start = flight.bytes.start.max(to);
        Some(flight.bytes.end)
    }

    /// A request is over, whatever came of it.
    pub fn ended(&mut self, id: u64) {
        self.flights.retain(|flight| flight.id != id);
    }

    /// The request with this number brings everything up to byte `end`: the server sends more than it was asked for.
    pub fn extend(&mut self, id: u64, bytes: Range<u64>) {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.id == id) {
            flight.bytes = bytes;
        }
    }

    /// Whether a request is under way.
    pub fn is_busy(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Whether anything more urgent than `class` is wanted.
    pub fn wants_before(&self, class: Class) -> bool {
        self.wants.iter().any(|(other, _)| *other < class)
    }

    /// Whether a program waits for some of `bytes`.
    pub fn is_missed(&self, bytes: &Range<u64>) -> bool {
        let overlaps = |want: &Range<u64>| want.start < bytes.end && bytes.start < want.end;
        let mut wants = self.wants.iter();
        wants.any(|(class, want)| *class == Class::Miss && overlaps(want))
    }

    /// Forgets what only a program that waits wants.
    pub fn drop_misses(&mut self) {
        self.wants.retain(|(class, _)| *class != Class::Miss);
    }

    /// Forgets everything that is wanted.
    pub fn drop_all(&mut self) {
        self.wants.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LEN: u64 = 100 * MIB;

    fn all(schedule: &mut Schedule, presence: &Presence) -> Vec<(u64, u64, Class)> {
        std::iter::from_fn(|| schedule.next(presence))
            .map(|request| (request.bytes.start, request.bytes.end, request.class))
            .collect()
    }

    #[test]
    fn the_first_mebibyte_of_a_pack_comes_first_and_three_streams_share_the_rest() {
        let (mut schedule, presence) = (Schedule::default(), Presence::nothing(LEN));
        schedule.want(Class::Pack, 10 * MIB..60 * MIB);
        let expected = [
            (10 * MIB, 11 * MIB, Class::Pack),
            (11 * MIB, 15 * MIB, Class::Pack),
            (15 * MIB, 19 * MIB, Class::Pack),
        ];
        assert_eq!(all(&mut schedule, &presence), expected);
        schedule.ended(0);
        presence.set(&(10 * MIB..11 * MIB));
        assert_eq!(
            all(&mut schedule, &presence),
            [(19 * MIB, 23 * MIB, Class::Pack)]
        );
    }

    #[test]
    fn only_what_a_program_waits_for_is_missed() {
        let mut schedule = Schedule::default();
        schedule.want(Class::Rest, 0..LEN);
        schedule.want(Class::Miss, 3 * UNIT..4 * UNIT);
        let missed = |start, end| schedule.is_missed(&(start * UNIT..end * UNIT));
        assert!(missed(0, 4) && missed(3, 9));
        assert!(!missed(0, 3) && !missed(4, 9));
    }

    #[test]
    fn what_no_launch_needs_waits_for_what_one_needs_of_another_file() {
        let (mut schedule, presence) = (Schedule::default(), Presence::nothing(LEN));
        schedule.want(Class::Rest, 0..LEN);
        schedule.want(Class::Neighbours, 50 * MIB..51 * MIB);
        schedule.want(Class::Miss, 3 * UNIT..4 * UNIT);
        schedule.set_line_needed(true);
        let miss = (3 * UNIT, 4 * UNIT, Class::Miss);
        assert_eq!(all(&mut schedule, &presence), [miss]);
        schedule.ended(0);
        presence.set(&(3 * UNIT..4 * UNIT));
        assert_eq!(all(&mut schedule, &presence), []);
        schedule.set_line_needed(false);
        let first = schedule.next(&presence).map(|request| request.class);
        assert_eq!(first, Some(Class::Neighbours));
    }

    #[test]
    fn tables_come_before_the_pack_and_misses_before_everything() {
        let (mut schedule, presence) = (Schedule::default(), Presence::nothing(LEN));
        schedule.want(Class::Rest, 0..LEN);
        schedule.want(Class::Pack, 20 * MIB..21 * MIB);
        schedule.want(Class::Tables, 10 * MIB..10 * MIB + 5000);
        schedule.want(Class::Miss, 3 * UNIT..4 * UNIT);
        let expected = [
            (3 * UNIT, 4 * UNIT, Class::Miss),
            (10 * MIB, 10 * MIB + 2 * UNIT, Class::Tables),
            (20 * MIB, 21 * MIB, Class::Pack),
        ];
        assert_eq!(all(&mut schedule, &presence), expected);
        // Others are under way, and a miss goes all the same.
        schedule.want(Class::Miss, 70 * MIB..70 * MIB + UNIT);
        assert_eq!(
            all(&mut schedule, &presence),
            [(70 * MIB, 70 * MIB + UNIT, Class::Miss)]
        );
        // The rest begins when all that somebody needs has come, in short pieces.
        for (id, bytes) in [
            3 * UNIT..4 * UNIT,
            10 * MIB..10 * MIB + 2 * UNIT,
            20 * MIB..21 * MIB,
        ]
        .into_iter()
        .enumerate()
        {
            presence.set(&bytes);
            schedule.ended(id as u64);
            assert_eq!(all(&mut schedule, &presence), []);
        }
        presence.set(&(70 * MIB..70 * MIB + UNIT));
        schedule.ended(3);
        let second = 4 * UNIT + LATER_PIECE;
        let rest = [
            (0, 3 * UNIT, Class::Rest),
            (4 * UNIT, second, Class::Rest),
            (second, second + LATER_PIECE, Class::Rest),
        ];
        assert_eq!(all(&mut schedule, &presence), rest);
    }

    #[test]
    fn nothing_is_asked_for_twice() {
        let (mut schedule, presence) = (Schedule::default(), Presence::nothing(LEN));
        schedule.want(Class::Miss, MIB..2 * MIB);
        assert_eq!(all(&mut schedule, &presence), [(MIB, 2 * MIB, Class::Miss)]);
        schedule.want(Class::Miss, MIB + UNIT..2 * MIB);
        schedule.want(Class::Miss, MIB / 2..3 * MIB);
        let expected = [(MIB / 2, MIB, Class::Miss), (2 * MIB, 3 * MIB, Class::Miss)];
        assert_eq!(all(&mut schedule, &presence), expected);
        presence.set(&(MIB..2 * MIB));
        schedule.ended(0);
        assert_eq!(all(&mut schedule, &presence), []);
        // What broke off is asked for again from where it broke off.
        presence.set(&(MIB / 2..MIB - UNIT));
        schedule.ended(1);
        assert_eq!(
            all(&mut schedule, &presence),
            [(MIB - UNIT, MIB, Class::Miss)]
        );
    }

    #[test]
    fn what_has_begun_to_arrive_is_under_way_to_its_last_unit() {
        let (mut schedule, presence) = (Schedule::default(), Presence::nothing(LEN - 100));
        // The end of a file, which begins in a unit and ends in one.
        let tail = schedule.adopt(Class::Tables, LEN - 70_000..LEN - 100);
        schedule.want(Class::Miss, LEN - 30_000..LEN - 100);
        assert_eq!(all(&mut schedule, &presence), []);
        schedule.arrived(tail, LEN - 29_000);
        presence.set(&(LEN - 70_000..LEN - 29_000));
        assert_eq!(all(&mut schedule, &presence), []);
        schedule.ended(tail);
        let rest = LEN - 32_768..LEN - 100;
        assert_eq!(
            all(&mut schedule, &presence),
            [(rest.start, rest.end, Class::Miss)]
        );
    }

    #[test]
    fn a_stream_is_cut_before_a_miss_that_would_arrive_late() {
        let (mut schedule, presence) = (Schedule::default(), Presence::nothing(LEN));
        schedule.want(Class::Tables, 0..8 * MIB);
        assert_eq!(all(&mut schedule, &presence).len(), 2);
        presence.set(&(0..2 * MIB));
        assert_eq!(schedule.arrived(0, 2 * MIB), Some(4 * MIB));
        // Near: it waits for the stream.
        schedule.want(Class::Miss, 2 * MIB + NEAR..2 * MIB + NEAR + UNIT);
        assert_eq!(all(&mut schedule, &presence), []);
        schedule.want(Class::Miss, 3 * MIB + 1..3 * MIB + 2);
        let expected = [
            (3 * MIB, 3 * MIB + UNIT, Class::Miss),
            (3 * MIB + UNIT, 4 * MIB, Class::Tables),
        ];
        assert_eq!(all(&mut schedule, &presence), expected);
        assert_eq!(schedule.arrived(0, 3 * MIB), Some(3 * MIB));
    }

    #[test]
    fn only_so_many_requests_are_under_way() {
        let (mut schedule, presence) = (Schedule::default(), Presence::nothing(LEN));
        for miss in 0..40 {
            schedule.want(Class::Miss, miss * MIB..miss * MIB + UNIT);
        }
        assert_eq!(all(&mut schedule, &presence).len(), MOST);
        schedule.ended(3);
        assert_eq!(all(&mut schedule, &presence).len(), 1);
        schedule.drop_misses();
        schedule.ended(4);
        assert_eq!(all(&mut schedule, &presence), []);
    }
}
