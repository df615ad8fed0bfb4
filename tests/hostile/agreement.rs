//! Whether the ranks agree on what has become of their calls.
//!
//! A success on one rank is a success on every rank, exactly once on each, so all ranks count the same successes of the
//! same call: whatever order their threads came in. That holds for refusals too, and for the rounds in which ranks called
//! different things. Where a result names the calls that took part, each of those is looked up.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::journal::{Event, Outcome};
use crate::stamp::Stamp;

/// What a rank has recorded.
pub(crate) struct Record {
    pub(crate) events: Vec<Event>,
    /// It has ended while it may have been inside a call, whose outcome nobody knows.
    pub(crate) cut: bool,
}

/// Everything that the ranks do not agree on.
pub(crate) fn check(ranks: &[Record]) -> Vec<String> {
    let mut broken = Vec::new();
    let broken_by_themselves = ranks.iter().flat_map(|rank| &rank.events).filter_map(|event| match event {
        Event::Broken(what) => Some(what.clone()),
        _ => None,
    });
    broken.extend(broken_by_themselves);
    check_counts(ranks, &mut broken);
    check_participants(ranks, &mut broken);
    check_causes(ranks, &mut broken);
    check_ends(ranks, &mut broken);
    broken
}

fn ended(rank: &Record) -> impl Iterator<Item = (Stamp, &str, &Outcome)> {
    rank.events.iter().filter_map(|event| match event {
        Event::Ended { by, comm, outcome } => Some((*by, comm.as_str(), outcome)),
        _ => None,
    })
}

/// By communicator: which ranks it has, as any of them says.
type Members<'a> = BTreeMap<&'a str, &'a [usize]>;

/// Fails where ranks do not agree on who they are.
fn check_members<'a>(ranks: &'a [Record], broken: &mut Vec<String>) -> Members<'a> {
    let mut members = Members::new();
    let mut joined: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (rank, record) in ranks.iter().enumerate() {
        for event in &record.events {
            let Event::Joined { comm, ranks } = event else { continue };
            joined.entry(comm).or_default().insert(rank);
            if *members.entry(comm).or_insert(ranks) != ranks {
                broken.push(format!("rank {rank} has other members of {comm}: {ranks:?}"));
            }
        }
    }
    for (comm, members) in &members {
        let missing: Vec<_> =
            members.iter().filter(|rank| !joined[comm].contains(rank) && !ranks[**rank].cut).collect();
        if !missing.is_empty() {
            broken.push(format!("{comm} has {members:?}, of which {missing:?} do not know it"));
        }
    }
    members
}

/// What all ranks of a communicator have to count the same.
fn check_counts(ranks: &[Record], broken: &mut Vec<String>) {
    type Counts<'a> = BTreeMap<(&'a str, &'a Outcome), Vec<usize>>;
    let mut counts = Counts::new();
    for (rank, record) in ranks.iter().enumerate() {
        for (_, comm, outcome) in ended(record) {
            if !outcome.is_fatal() && !matches!(outcome, Outcome::Part | Outcome::NoPart) {
                counts.entry((comm, outcome)).or_insert_with(|| vec![0; ranks.len()])[rank] += 1;
            }
        }
    }
    let members = check_members(ranks, broken);
    for ((comm, outcome), counts) in counts {
        let of_whole = members[comm].iter().filter(|rank| !ranks[**rank].cut).map(|rank| counts[*rank]);
        let (least, most) = (of_whole.clone().min(), of_whole.max());
        let cut = members[comm].iter().filter(|rank| ranks[**rank].cut).map(|rank| counts[*rank]).max();
        // What a rank has recorded before it was cut off, all others have.
        if least != most || cut > least && least.is_some() {
            broken.push(format!("{comm}: the ranks count {counts:?} times {outcome:?}"));
        }
    }
}

/// Who took part in a success has a success too.
fn check_participants(ranks: &[Record], broken: &mut Vec<String>) {
    let outcomes: HashMap<Stamp, &Outcome> =
        ranks.iter().flat_map(ended).map(|(by, _, outcome)| (by, outcome)).collect();
    let is_success = |by: &Stamp| match outcomes.get(by) {
        Some(Outcome::Ok(_) | Outcome::Part) => true,
        Some(_) => false,
        None => ranks.get(by.rank()).is_some_and(|rank| rank.cut),
    };
    for event in ranks.iter().flat_map(|rank| &rank.events) {
        let Event::Met { by, with } = event else { continue };
        // A result of which it is not known what became of it counts for nothing.
        for other in with.iter().filter(|other| is_success(by) && !is_success(other)) {
            broken.push(format!("{by:?} has met {other:?}, which got {:?}", outcomes.get(other)));
        }
    }
}

/// All ranks are told the same reason for the end of a communicator.
fn check_causes(ranks: &[Record], broken: &mut Vec<String>) {
    let mut causes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (_, comm, outcome) in ranks.iter().flat_map(ended) {
        if let Outcome::Fatal(cause) = outcome {
            causes.entry(comm).or_default().insert(cause);
        }
    }
    for (comm, causes) in causes {
        if causes.len() > 1 || causes.iter().any(|cause| cause.contains("unexpected")) {
            broken.push(format!("{comm} has ended for several reasons, or a wrong one: {causes:?}"));
        }
    }
}

/// After the end of a communicator no call on it is anything but an error that says so.
fn check_ends(ranks: &[Record], broken: &mut Vec<String>) {
    for rank in ranks {
        let mut ends: BTreeMap<(usize, &str), Stamp> = BTreeMap::new();
        for (by, comm, outcome) in ended(rank).filter(|(.., outcome)| **outcome != Outcome::NoPart) {
            let thread = (by.thread(), comm);
            match ends.get(&thread) {
                Some(end) if !outcome.is_fatal() => {
                    broken.push(format!("{by:?} gets {outcome:?} on {comm}, which has ended for {end:?}"));
                }
                None if outcome.is_fatal() => drop(ends.insert(thread, by)),
                _ => {}
            }
        }
    }
}
