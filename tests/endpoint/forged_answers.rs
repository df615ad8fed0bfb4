//! What an owner of memory may answer that forges, and what has to come of it.

use anyhow::Result;
use intranode::{Ended, EndpointError};

use super::forger::{Asked, BEGIN, BEGIN_STEP, DATA, Forger, MAP, PULL, READ, REPLY, WRITE, bytes};

/// What is asked for by a map of where the bytes lie, and what is short enough to come with the answer.
/// What is in between is put in both ways at a time.
pub(super) const LONG: usize = 300_000;
const BETWEEN: usize = 100_000;
pub(super) const SHORT: usize = 1000;

pub(super) type Outcome = Result<(), EndpointError>;

/// How an owner answers, and what has to come of it: with the bytes that are asked for.
pub(super) type Row = (&'static str, usize, fn(&mut Forger, &Asked) -> Result<()>, fn(&Outcome) -> bool);

fn is_violated(outcome: &Outcome) -> bool {
    matches!(outcome, Err(EndpointError::PeerGone { ended: Ended::Violated, .. }))
}

fn is_not_shared(outcome: &Outcome) -> bool {
    matches!(outcome, Err(EndpointError::NotShared { .. }))
}

fn faults_at(outcome: &Outcome, place: u64) -> bool {
    matches!(outcome, Err(EndpointError::Fault { bytes, .. }) if *bytes == place)
}

/// Says where bytes lie, with a lease that was given.
fn maps(own: &mut Forger, asked: &Asked, parts: &[(u64, u64)]) -> Result<()> {
    own.gives_lease(1)?;
    let map = own.map(1, parts);
    own.reply(asked.number, &bytes(&map))
}

pub(super) fn honest(own: &mut Forger, asked: &Asked) -> Result<()> {
    match asked.what {
        MAP => maps(own, asked, &[(own.start(), asked.len)]),
        READ => {
            let data = own.wanted(asked);
            own.sends(asked.number, &data)
        }
        _ => own.reply(asked.number, &bytes(&[0])),
    }
}

fn says_status<const STATUS: u64>(own: &mut Forger, asked: &Asked) -> Result<()> {
    own.reply(asked.number, &bytes(&[STATUS]))
}

/// Says where bytes lie, and that they are sent, too. What is asked for then is answered so.
fn sends(own: &mut Forger, asked: &Asked, answer: impl FnOnce(&mut Forger, &[u8]) -> Result<()>) -> Result<()> {
    if asked.what != MAP {
        let data = own.wanted(asked);
        return answer(own, &data);
    }
    own.gives_lease(1)?;
    let map = own.map(1 << 32 | 1, &[(own.start(), LONG as u64)]);
    own.reply(asked.number, &bytes(&map))
}

/// A map with another word in its place; what is then asked for by messages it refuses.
fn maps_with(own: &mut Forger, asked: &Asked, place: usize, word: u64) -> Result<()> {
    if asked.what != MAP {
        return says_status::<1>(own, asked);
    }
    own.gives_lease(1)?;
    let mut map = own.map(1, &[(own.start(), asked.len)]);
    map[place] = word;
    own.reply(asked.number, &bytes(&map))
}

/// A map, and another token; what is then asked for by messages it refuses.
fn shows(own: &mut Forger, asked: &Asked, address: u64, token: u64) -> Result<()> {
    own.shows(address, token)?;
    if asked.what == MAP { maps(own, asked, &[(own.start(), asked.len)]) } else { says_status::<1>(own, asked) }
}

/// Answers that nobody waits for.
fn answers_nobody(own: &mut Forger) -> Result<()> {
    for number in [0, 999, u64::MAX] {
        own.reply(number, &bytes(&[0]))?;
        let map = own.map(1, &[(own.start(), 8)]);
        own.reply(number, &bytes(&map))?;
    }
    Ok(())
}

pub(super) const GETS: &[Row] = &[
    ("the truth, by a map", LONG, honest, Result::is_ok),
    ("the truth, with the answer", SHORT, honest, Result::is_ok),
    (
        "a lease that was not given",
        LONG,
        |own, asked| {
            let map = own.map(1, &[(own.start(), asked.len)]);
            own.reply(asked.number, &bytes(&map))
        },
        is_not_shared,
    ),
    ("another lease", LONG, |own, asked| maps_with(own, asked, 1, 2), is_not_shared),
    ("a lease of the same place", LONG, |own, asked| maps_with(own, asked, 1, 65), is_not_shared),
    ("a lease with too many bits", LONG, |own, asked| maps_with(own, asked, 1, 1 << 33 | 1), is_violated),
    (
        "the truth, by messages, if it is asked to send",
        LONG,
        |own, asked| sends(own, asked, |own, data| own.sends(asked.number, data)),
        Result::is_ok,
    ),
    (
        "fewer bytes each time than asked for",
        BETWEEN,
        |own, asked| sends(own, asked, |own, data| own.sends(asked.number, &data[..data.len().min(3000)])),
        Result::is_ok,
    ),
    ("a map and then nothing", LONG, |own, asked| sends(own, asked, |_, _| Ok(())), Result::is_ok),
    (
        "a map and then bytes for others",
        LONG,
        |own, asked| sends(own, asked, |own, data| own.sends(asked.number + 1000, data)),
        Result::is_ok,
    ),
    (
        "more bytes than asked for",
        LONG,
        |own, asked| maps(own, asked, &[(own.start(), asked.len + 1)]),
        Result::is_ok,
    ),
    ("very many bytes", LONG, |own, asked| maps(own, asked, &[(own.start(), u64::MAX)]), Result::is_ok),
    (
        "very many bytes, from the first on",
        LONG,
        |own, asked| {
            own.gives_lease(1)?;
            let mut map = own.map(1, &[(own.start(), u64::MAX)]);
            map[2] = 1;
            own.reply(asked.number, &bytes(&map))
        },
        is_violated,
    ),
    (
        "lengths with an overflow",
        LONG,
        |own, asked| maps(own, asked, &[(own.start(), u64::MAX), (own.start(), 2)]),
        is_violated,
    ),
    ("no bytes", LONG, |own, asked| maps(own, asked, &[(own.start(), 0)]), is_violated),
    ("no parts", LONG, |own, asked| maps(own, asked, &[]), is_violated),
    (
        "half a part",
        LONG,
        |own, asked| {
            own.gives_lease(1)?;
            let map = bytes(&own.map(1, &[(own.start(), asked.len)]));
            own.reply(asked.number, &map[..map.len() - 7])
        },
        is_violated,
    ),
    (
        "where nothing is mapped",
        LONG,
        |own, asked| maps(own, asked, &[(8, asked.len)]),
        |outcome| faults_at(outcome, 0),
    ),
    (
        "the system's memory",
        LONG,
        |own, asked| maps(own, asked, &[(1 << 63, asked.len)]),
        |outcome| faults_at(outcome, 0),
    ),
    (
        "the end of all addresses",
        LONG,
        |own, asked| maps(own, asked, &[(u64::MAX - 9, asked.len)]),
        |outcome| faults_at(outcome, 0),
    ),
    (
        "partly where nothing is mapped",
        LONG,
        |own, asked| maps(own, asked, &[(own.start(), 1000), (8, asked.len - 1000)]),
        |outcome| faults_at(outcome, 1000),
    ),
    (
        "many parts of nothing",
        LONG,
        |own, asked| {
            let mut parts = vec![(8, 0); 200];
            parts.push((own.start(), asked.len));
            maps(own, asked, &parts)
        },
        Result::is_ok,
    ),
    ("another token", LONG, |own, asked| shows(own, asked, own.start(), 7), is_not_shared),
    ("a token where nothing is mapped", LONG, |own, asked| shows(own, asked, 8, 0), is_not_shared),
    ("memory that begins later", LONG, |own, asked| maps_with(own, asked, 2, 1), is_violated),
    (
        "memory that begins at the end of all",
        LONG,
        |own, asked| maps_with(own, asked, 2, u64::MAX),
        is_violated,
    ),
    ("no status", LONG, |own, asked| own.reply(asked.number, &[0; 3]), is_violated),
    ("nothing at all", LONG, |own, asked| own.reply(asked.number, &[]), is_violated),
    ("a status that is none", LONG, says_status::<99>, is_violated),
    ("done, and no map", LONG, says_status::<0>, is_violated),
    ("unknown", LONG, says_status::<1>, is_not_shared),
    ("bounds", LONG, says_status::<2>, |outcome| matches!(outcome, Err(EndpointError::OutOfBounds { .. }))),
    ("not writable", LONG, says_status::<3>, |outcome| {
        matches!(outcome, Err(EndpointError::NotWritable { .. }))
    }),
    ("refused", LONG, says_status::<4>, is_not_shared),
    ("busy, always", LONG, says_status::<5>, is_not_shared),
    ("a fault", LONG, says_status::<6>, is_not_shared),
    ("bytes instead of a map", LONG, |own, asked| own.sends(asked.number, &[0; 100]), is_violated),
    ("bytes behind a status", SHORT, |own, asked| own.reply(asked.number, &[0; 8 + SHORT]), is_violated),
    ("no bytes", SHORT, |own, asked| own.sends(asked.number, &[]), is_violated),
    (
        "the truth, half of it at a time",
        SHORT,
        |own, asked| {
            let data = own.wanted(asked);
            own.sends(asked.number, &data[..data.len().div_ceil(2)])
        },
        Result::is_ok,
    ),
    (
        "more bytes than were asked for",
        SHORT,
        |own, asked| own.sends(asked.number, &[0; SHORT + 1]),
        is_violated,
    ),
    (
        "more buffers than a message has",
        SHORT,
        |own, asked| own.publish(DATA, asked.number, 100, 3, &[]),
        is_violated,
    ),
    (
        "data that are longer than a buffer",
        SHORT,
        |own, asked| own.publish(DATA, asked.number, (32 << 10) + 1, 1, &[]),
        is_violated,
    ),
    (
        "data that begin at another byte of their buffer",
        SHORT,
        |own, asked| {
            let bytes = [vec![0; 2 * BEGIN_STEP], own.wanted(asked)].concat();
            own.publish(DATA, asked.number | 2 << BEGIN, asked.len, 1, &bytes)
        },
        Result::is_ok,
    ),
    (
        "data that end behind their buffer",
        SHORT,
        |own, asked| own.publish(DATA, asked.number | 255 << BEGIN, asked.len, 1, &[]),
        is_violated,
    ),
    (
        "a map instead of bytes",
        SHORT,
        |own, asked| maps(own, asked, &[(own.start(), SHORT as u64)]),
        is_violated,
    ),
    (
        "a cell that is longer than a cell",
        SHORT,
        |own, asked| own.publish(REPLY, asked.number, 65_535, 0, &[]),
        is_violated,
    ),
    (
        "an answer that is longer than a message",
        SHORT,
        |own, asked| own.publish(REPLY, asked.number, 4097, 1, &[]),
        is_violated,
    ),
    (
        "a length of several buffers",
        SHORT,
        |own, asked| own.publish(REPLY, asked.number, 8192, 3, &[]),
        is_violated,
    ),
    ("all buffers", SHORT, |own, asked| own.publish(REPLY, asked.number, 100, u64::MAX, &[]), is_violated),
    ("another kind of cell", SHORT, |own, asked| own.publish(2, asked.number, 40, 0, &[]), is_violated),
    ("a request that is none", LONG, |own, asked| own.publish(5, asked.number, 3, 0, &[]), is_violated),
    (
        "answers to nobody first",
        LONG,
        |own, asked| {
            answers_nobody(own)?;
            honest(own, asked)
        },
        Result::is_ok,
    ),
    (
        "the answer three times",
        LONG,
        |own, asked| {
            honest(own, asked)?;
            honest(own, asked)?;
            honest(own, asked)
        },
        Result::is_ok,
    ),
];

/// What is put by messages, whatever its length.
pub(super) const SENT: &[Row] = &[
    ("done, by messages", LONG, honest, Result::is_ok),
    ("done, in one message", SHORT, honest, Result::is_ok),
    ("refused by messages", LONG, says_status::<4>, is_not_shared),
    ("a fault of messages", LONG, says_status::<6>, is_not_shared),
    ("bytes instead of a status", LONG, |own, asked| own.sends(asked.number, &[0; 8]), is_violated),
    ("bytes for a short message", SHORT, |own, asked| own.sends(asked.number, &[0; 8]), is_violated),
    (
        "unknown after the first",
        LONG,
        |own, asked| if asked.number > 2 { says_status::<1>(own, asked) } else { honest(own, asked) },
        is_not_shared,
    ),
];

pub(super) const PULLED: &[Row] = &[
    ("done", LONG, honest, Result::is_ok),
    ("done, with the data in the message", SHORT, honest, Result::is_ok),
    ("done, in both ways", BETWEEN, honest, Result::is_ok),
    ("refused, always", LONG, says_status::<4>, is_not_shared),
    ("refused in both ways", BETWEEN, says_status::<4>, is_not_shared),
    (
        "refused, and taken in messages",
        BETWEEN,
        |own, asked| if asked.what == PULL { says_status::<4>(own, asked) } else { honest(own, asked) },
        Result::is_ok,
    ),
    (
        "pulled, and messages refused",
        BETWEEN,
        |own, asked| if asked.what == WRITE { says_status::<1>(own, asked) } else { honest(own, asked) },
        is_not_shared,
    ),
    (
        "pulled, and a fault of messages",
        BETWEEN,
        |own, asked| if asked.what == WRITE { says_status::<6>(own, asked) } else { honest(own, asked) },
        is_not_shared,
    ),
    (
        "a fault of more bytes than there are",
        LONG,
        |own, asked| own.reply(asked.number, &bytes(&[6, u64::MAX])),
        |outcome| faults_at(outcome, LONG as u64),
    ),
    ("a fault without a number", LONG, says_status::<6>, |outcome| faults_at(outcome, 0)),
    (
        "a fault with too long a number",
        LONG,
        |own, asked| own.reply(asked.number, &[6, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]),
        |outcome| faults_at(outcome, 0),
    ),
    ("a fault of a message", SHORT, says_status::<6>, is_not_shared),
    ("busy", LONG, says_status::<5>, is_not_shared),
    ("unknown", SHORT, says_status::<1>, is_not_shared),
    ("not writable", LONG, says_status::<3>, |outcome| {
        matches!(outcome, Err(EndpointError::NotWritable { .. }))
    }),
    ("a status that is none", LONG, says_status::<7>, is_violated),
    ("nothing at all", SHORT, |own, asked| own.reply(asked.number, &[]), is_violated),
    (
        "refused, and then a cell that is none",
        LONG,
        |own, asked| match asked.what {
            PULL => says_status::<4>(own, asked),
            _ => own.publish(REPLY, asked.number, 41, 0, &[]),
        },
        is_violated,
    ),
];
