//! What a thread prefetches for write and writes in the staging and message buffers of its segments, for tests that compare the two.

use std::cell::RefCell;
use std::ops::Range;

use crate::protocol::Payload;

/// The length of a line, as [`super::platform`] prefetches them.
const LINE: usize = 64;

/// Shorter ranges are not buffers, but headers and cells.
const LEAST: usize = 256;

/// What a thread has done, with the numbers of the lines.
pub(crate) enum Event {
    Prefetched(Range<usize>),
    /// From the first line to the last that has other bytes than before.
    Wrote(Range<usize>),
}

thread_local! {
    /// `None`: this thread is not observed.
    static EVENTS: RefCell<Option<Vec<Event>>> = const { RefCell::new(None) };
}

/// What `work` does on this thread.
pub(crate) fn during<R>(work: impl FnOnce() -> R) -> (R, Vec<Event>) {
    EVENTS.set(Some(Vec::new()));
    let result = work();
    (result, EVENTS.take().unwrap_or_default())
}

/// What was prefetched, with the lines that were written next, if some were before others were prefetched.
pub(crate) fn predictions(events: Vec<Event>) -> Vec<[Range<usize>; 2]> {
    let (mut found, mut last) = (Vec::new(), None::<Range<usize>>);
    for event in events {
        match (event, last.take()) {
            // Several buffers in a row.
            (Event::Prefetched(lines), Some(before)) if before.end == lines.start => {
                last = Some(before.start..lines.end);
            }
            (Event::Prefetched(lines), _) => last = Some(lines),
            (Event::Wrote(lines), Some(prefetched)) => found.push([prefetched, lines]),
            (Event::Wrote(_), None) => {}
        }
    }
    found
}

fn add(lines: Range<usize>, event: fn(Range<usize>) -> Event) {
    if !lines.is_empty() {
        EVENTS.with_borrow_mut(|events| {
            if let Some(events) = events {
                events.push(event(lines));
            }
        });
    }
}

/// A range of the `len` bytes from `start` on is prefetched.
pub(crate) fn prefetches((start, len): (*const u8, usize), range: Range<usize>) {
    if len >= LEAST {
        let first = (start.addr() + range.start) / LINE;
        add(first..first + range.len().div_ceil(LINE), Event::Prefetched);
    }
}

/// Runs `write`, which fills `buffer`, of `len` bytes from `start` on.
pub(crate) fn writing<R>(
    buffer: &impl Payload,
    (start, len): (*const u8, usize),
    write: impl FnOnce() -> R,
) -> R {
    if len < LEAST || EVENTS.with_borrow(Option::is_none) {
        return write();
    }
    assert!(start.addr().is_multiple_of(LINE), "a buffer begins with a line");
    let bytes = || {
        let mut bytes = vec![0; len];
        buffer.read(|source| source.get(0, &mut bytes));
        bytes
    };
    let before = bytes();
    let result = write();
    let after = bytes();
    let mut lines = before.chunks(LINE).zip(after.chunks(LINE)).map(|(before, after)| before != after);
    let (differs, first) = (|differs| differs, start.addr() / LINE);
    if let (Some(from), Some(to)) = (lines.clone().position(differs), lines.rposition(differs)) {
        add(first + from..first + to + 1, Event::Wrote);
    }
    result
}
