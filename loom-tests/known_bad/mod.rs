//! Protocols that are wrong, each in one place: the checker has to reject every one, for its own reason.
//!
//! Each is written twice in one function, wrong and mended. The mended one has to pass, so it is the mistake that
//! is rejected and not the rest.

mod buffers;
mod classics;
mod poison;
mod regions;
mod threads;
mod watching;

use std::cell::RefCell;
use std::rc::Rc;

use intranode::protocol::generation::POISON;
use intranode::protocol::{Generation, Ordering, Payload, Platform};
use libtest_mimic::{Failed, Trial};

use crate::cells::Chunk;
use crate::explore::explore;
use crate::machine::{Fate, Machine, Waiting, Word};
use crate::report;
use crate::trace::Label;
use Ordering::{Acquire, Relaxed, Release};

/// How the checker says no.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reason {
    /// Nobody can go on.
    Deadlock,
    /// Two ranks touch a payload cell at the same time.
    Race,
    /// An assertion with this text.
    Assertion(&'static str),
}

impl Reason {
    fn text(self) -> &'static str {
        match self {
            Reason::Deadlock => "deadlock",
            Reason::Race => "Causality violation",
            Reason::Assertion(text) => text,
        }
    }
}

/// A protocol with a mistake.
#[derive(Clone, Copy)]
pub(crate) struct KnownBad {
    name: &'static str,
    /// The mistake, and what comes of it.
    story: &'static str,
    reason: Reason,
    waiting: Waiting,
    /// The threads that take part, one for each rank, perhaps a poisoner.
    threads: usize,
    /// What a thread does; the flag says whether with the mistake.
    run: fn(&mut Party<'_>, bool),
}

/// What the threads share.
struct Ground {
    words: Vec<[Word; 2]>,
    cells: Vec<[Chunk; 2]>,
    verdicts: RefCell<Vec<Option<bool>>>,
}

/// One thread: a copy of the real protocol's round, in parts that can be left out.
struct Party<'a> {
    machine: &'a Machine,
    ground: &'a Ground,
    rank: usize,
    completed: Generation,
}

/// The round that every party has completed at the start.
const START: u32 = 4;

impl Party<'_> {
    fn word(&self, rank: usize, parity: usize) -> &Word {
        &self.ground.words[rank][parity]
    }

    fn write(&self, parity: usize) {
        self.ground.cells[self.rank][parity].write(|mut staging| staging.put(0, &[1]));
    }

    fn read(&self, rank: usize, parity: usize) {
        self.ground.cells[rank][parity].read(|staging| staging.array::<1>(0));
    }

    fn next(&self) -> Generation {
        self.completed.next()
    }

    /// Arrives at the next round. False when poisoned.
    fn arrive(&self) -> bool {
        let next = self.next();
        let word = self.word(self.rank, next.parity());
        let from = next.previous().previous().word();
        self.machine.compare_exchange("arrive", word, from, next.word(), Release, Relaxed).is_ok()
    }

    /// Waits for one rank's arrival. False when poisoned.
    fn wait_for(&self, rank: usize) -> bool {
        let next = self.next();
        let old = next.previous().previous().word();
        let seen = self.machine.spin("spin", self.word(rank, next.parity()), Acquire, false, next.is_decided());
        Generation::of_word(seen.unwrap_or(old)) == next
    }

    fn others(&self) -> Vec<usize> {
        (0..self.ground.words.len()).filter(|rank| *rank != self.rank).collect()
    }

    fn wait_for_all(&self) -> bool {
        self.others().into_iter().all(|rank| self.wait_for(rank))
    }

    /// A whole round. Returns its parity.
    fn round(&mut self) -> usize {
        assert!(self.arrive() && self.wait_for_all(), "poison without a poisoner");
        self.completed = self.next();
        self.completed.parity()
    }

    fn poison_all(&self) {
        for word in self.ground.words.iter().flatten() {
            self.machine.fetch_or("poison", word, POISON, Ordering::AcqRel);
        }
    }
}

fn all() -> Vec<KnownBad> {
    [&classics::ALL[..], &buffers::ALL[..], &poison::ALL[..], &regions::ALL[..], &watching::ALL[..]].concat()
}

/// What they are called.
pub(crate) fn names() -> Vec<&'static str> {
    all().into_iter().map(|bad| bad.name).chain([threads::NAME]).collect()
}

/// A test for each.
pub(crate) fn trials() -> Vec<Trial> {
    let trial = |bad: KnownBad| Trial::test(format!("known_bad::{}", bad.name), move || reject(&bad));
    all().into_iter().map(trial).chain([threads::trial()]).collect()
}

fn reject(bad: &KnownBad) -> Result<(), Failed> {
    let mended =
        check(bad, false).map_err(|no| format!("mended, it still fails: {}\n{}", no.message, no.trace))?;
    let Err(rejected) = check(bad, true) else {
        return Err(format!("{} executions, and nothing found", mended.executions).into());
    };
    if !rejected.message.contains(bad.reason.text()) {
        return Err(format!("rejected for another reason: {}\n{}", rejected.message, rejected.trace).into());
    }
    report::add_rejected(bad.name, bad.story, bad.reason, rejected);
    Ok(())
}

fn check(bad: &KnownBad, mistake: bool) -> Result<crate::explore::Explored, crate::explore::Rejected> {
    let bad = *bad;
    let columns: Vec<_> = (0..bad.threads).map(|thread| format!("thread {thread}")).collect();
    // Three threads are searched up to a number of preemptions that is enough for the mistake to show.
    let bound = (bad.threads > 2).then_some(2);
    explore(bound, &columns, move || {
        let words = Generation::new(START).initial_words();
        let label = |what, rank, parity| Label { what, rank, parity };
        let word = |rank, parity: usize| Word::new(words[parity], label("word", rank, parity));
        let cell = |rank, parity| Chunk::new(label("buffer", rank, parity));
        let ground = Rc::new(Ground {
            words: (0..bad.threads).map(|rank| [word(rank, 0), word(rank, 1)]).collect(),
            cells: (0..bad.threads).map(|rank| [cell(rank, 0), cell(rank, 1)]).collect(),
            verdicts: RefCell::new(vec![None; bad.threads]),
        });
        let play = move |rank, ground: Rc<Ground>| {
            let machine = Machine::new(rank, bad.waiting, Fate::default());
            let completed = Generation::new(START);
            (bad.run)(&mut Party { machine: &machine, ground: &ground, rank, completed }, mistake);
        };
        for rank in 1..bad.threads {
            let ground = Rc::clone(&ground);
            loom::thread::spawn(move || play(rank, ground));
        }
        play(0, ground);
    })
}
