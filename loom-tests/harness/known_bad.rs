//! Protocols with a mistake, each of which the search must reject for its own reason.

use std::cell::RefCell;

use Ordering::{AcqRel, Acquire, Relaxed, Release};
use intranode::protocol::generation::POISON;
use intranode::protocol::{Generation, Ordering, Payload, Platform};

use crate::harness::cells::Buffer;
use crate::harness::machine::{Fate, Machine};
use crate::harness::mutant::Simulated;
use crate::harness::search::{Rejected, Run, Search};
use crate::harness::trace::Label;
use crate::harness::waiting::Waiting;
use crate::harness::word::Word;

/// How the search rejects it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reason {
    /// No thread can go on.
    Deadlock,
    /// A thread polls for ever, which ends at the limit of an execution's length.
    EndlessSpinning,
    /// Two threads access a payload cell at the same time.
    Race,
    /// An assertion with this text.
    Assertion(&'static str),
}

impl Reason {
    fn text(self) -> &'static str {
        match self {
            Reason::Deadlock => "deadlock",
            Reason::EndlessSpinning => "maximum number of branches",
            Reason::Race => "Causality violation",
            Reason::Assertion(text) => text,
        }
    }
}

/// A protocol with a mistake.
pub(crate) struct KnownBad {
    pub(crate) name: &'static str,
    /// The mistake, and what comes of it.
    pub(crate) mistake: &'static str,
    pub(crate) reason: Reason,
    pub(crate) wrong: Search,
    /// The same without the mistake, which has to pass, so that it is the mistake that is rejected and not the rest.
    /// `None`: it is one of the models.
    pub(crate) mended: Option<Search>,
}

impl KnownBad {
    /// One that is written here. `protocol` is what each of the threads does; its flag tells whether with the mistake.
    pub(crate) fn protocol(
        name: &'static str,
        reason: Reason,
        waiting: Waiting,
        threads: usize,
        protocol: fn(&mut Participant<'_>, bool),
        mistake: &'static str,
    ) -> Self {
        let search = |mistaken| {
            let execution = move |run: &Run| execute(run, threads, protocol, mistaken);
            let names = (0..threads).map(|thread| format!("thread {thread}")).collect();
            let search = Search::new(name, waiting, names, execution);
            // Three threads are searched up to a number of preemptions that is enough for the mistake to show.
            if threads > 2 { search.bound(2) } else { search }
        };
        KnownBad { name, mistake, reason, wrong: search(true), mended: Some(search(false)) }
    }

    /// One whose threads race for a payload cell.
    pub(crate) fn race(
        name: &'static str,
        threads: usize,
        protocol: fn(&mut Participant<'_>, bool),
        mistake: &'static str,
    ) -> Self {
        KnownBad::protocol(name, Reason::Race, Waiting::Blocking, threads, protocol, mistake)
    }

    /// How it is rejected.
    ///
    /// # Errors
    /// When it is not, or for another reason, or when it is rejected without the mistake too.
    pub(crate) fn reject(&self) -> Result<Rejected, String> {
        if let Some(Err(no)) = self.mended.as_ref().map(|mended| mended.explore(None)) {
            return Err(format!("mended, it still fails: {}\n{}", no.message, no.trace));
        }
        match self.wrong.explore(None) {
            Ok(explored) => Err(format!("{} executions, and nothing found", explored.executions)),
            Err(no) if no.message.contains(self.reason.text()) => Ok(no),
            Err(no) => Err(format!("rejected for another reason: {}\n{}", no.message, no.trace)),
        }
    }
}

fn execute(run: &Run, threads: usize, protocol: fn(&mut Participant<'_>, bool), mistaken: bool) {
    let words = START.initial_words();
    let label = |what, rank, parity| Label { what, rank, parity };
    let word = |rank, parity: usize| Word::new(words[parity], label("state", rank, parity));
    let cell = |rank, parity| Buffer::new(label("buffer", rank, parity));
    let shared = Shared {
        words: (0..threads).map(|rank| [word(rank, 0), word(rank, 1)]).collect(),
        cells: (0..threads).map(|rank| [cell(rank, 0), cell(rank, 1)]).collect(),
        verdicts: RefCell::new(vec![None; threads]),
    };
    let act = move |rank: usize, platform: &Simulated, shared: &Shared| {
        let machine = platform.machine();
        protocol(&mut Participant { machine, shared, number: rank, completed: START }, mistaken);
    };
    run.threads(shared, &vec![Fate::NONE; threads], act, |_| ());
}

/// What the threads share.
pub(crate) struct Shared {
    pub(crate) words: Vec<[Word; 2]>,
    cells: Vec<[Buffer; 2]>,
    /// By rank: whether it has completed its round, once it knows.
    pub(crate) verdicts: RefCell<Vec<Option<bool>>>,
}

/// One thread: a copy of the real protocol's round, in pieces that can be left out.
pub(crate) struct Participant<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) shared: &'a Shared,
    pub(crate) number: usize,
    pub(crate) completed: Generation,
}

/// The round that every participant has completed at the start.
pub(crate) const START: Generation = Generation::new(4);

impl Participant<'_> {
    pub(crate) fn word(&self, rank: usize, parity: usize) -> &Word {
        &self.shared.words[rank][parity]
    }

    /// Writes a buffer of this rank's.
    pub(crate) fn write(&self, parity: usize) {
        self.shared.cells[self.number][parity].write(|mut staging| staging.put(0, &[1]));
    }

    /// Writes a buffer of another rank's.
    pub(crate) fn put(&self, rank: usize, parity: usize) {
        self.shared.cells[rank][parity].write(|mut staging| staging.put(0, &[2]));
    }

    /// Reads a buffer of any rank.
    pub(crate) fn read(&self, rank: usize, parity: usize) {
        self.shared.cells[rank][parity].read(|staging| staging.array::<1>(0));
    }

    pub(crate) fn next(&self) -> Generation {
        self.completed.next()
    }

    /// Arrives at the next round. False when poisoned.
    pub(crate) fn arrive(&self) -> bool {
        let next = self.next();
        let word = self.word(self.number, next.parity());
        let from = next.previous().previous().word();
        self.machine.compare_exchange("arrive", word, from, next.word(), Release, Relaxed).is_ok()
    }

    /// Waits for one rank's arrival. False when poisoned.
    pub(crate) fn wait_for(&self, rank: usize) -> bool {
        let next = self.next();
        let old = next.previous().previous().word();
        let seen = self.machine.spin("spin", self.word(rank, next.parity()), Acquire, false, next.is_decided());
        Generation::of_word(seen.unwrap_or(old)) == next
    }

    pub(crate) fn others(&self) -> Vec<usize> {
        (0..self.shared.words.len()).filter(|rank| *rank != self.number).collect()
    }

    pub(crate) fn wait_for_all(&self) -> bool {
        self.others().into_iter().all(|rank| self.wait_for(rank))
    }

    /// A whole round. Returns its parity.
    pub(crate) fn round(&mut self) -> usize {
        assert!(self.arrive() && self.wait_for_all(), "poison without a poisoner");
        self.completed = self.next();
        self.completed.parity()
    }

    pub(crate) fn poison_all(&self) {
        for word in self.shared.words.iter().flatten() {
            self.machine.fetch_or("poison", word, POISON, AcqRel);
        }
    }
}
