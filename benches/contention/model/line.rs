//! One cache line: which cores have a copy, and when a read or an RFO of it completes.
//!
//! Requests are processed in the order in which they are issued. Each reserves its service time at once, even if that begins
//! later. So a request finds the state that all earlier ones will leave, and nothing is rolled back.

use super::Time;
use super::machine::{Cost, Distance, Machine};

/// A line that holds one word.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    value: u32,
    /// The last owner of the line: it answers cores without a copy in their L3.
    owner: usize,
    copies: Cores,
    /// By domain: how many of its cores have a copy.
    present: Box<[u16]>,
    /// When the last RFO completes. All later requests wait for it.
    taken: Time,
    /// When the home can serve the next reader.
    home: Time,
    /// By domain: when its L3 can serve the next reader.
    shared: Box<[Time]>,
}

/// The result of a read, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) value: u32,
    pub(crate) done: Time,
}

/// A read for ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rfo {
    /// When the copies elsewhere are invalid.
    pub(crate) invalidated: Time,
    /// When the core may write.
    pub(crate) done: Time,
}

impl Line {
    /// A line with the value 0, owned by `owner`.
    pub(crate) fn new(machine: &Machine, owner: usize) -> Self {
        let mut line = Line {
            value: 0,
            owner,
            copies: Cores::default(),
            present: vec![0; machine.domains()].into(),
            taken: 0,
            home: 0,
            shared: vec![0; machine.domains()].into(),
        };
        line.keep(machine, owner);
        line
    }

    fn keep(&mut self, machine: &Machine, core: usize) {
        if !self.copies.has(core) {
            self.copies.insert(core);
            self.present[machine.domain(core)] += 1;
        }
    }

    /// The value in the core's own copy, if it has or has requested one.
    pub(crate) fn own_copy(&self, core: usize) -> Option<u32> {
        self.copies.has(core).then_some(self.value)
    }

    /// A read by a core without a copy. Afterwards it has one.
    pub(crate) fn read(&mut self, machine: &Machine, core: usize, now: Time) -> Read {
        let domain = machine.domain(core);
        let earliest = now.max(self.taken);
        let is_owned_here = machine.domain(self.owner) == domain;
        let done = if is_owned_here || machine.shared_fetch && self.present[domain] > 0 {
            let start = earliest.max(self.shared[domain]);
            self.shared[domain] = start + machine.service(Distance::Near);
            start + machine.latency(Distance::Near)
        } else {
            let distance = machine.distance(core, self.owner);
            let start = earliest.max(self.home);
            self.home = start + machine.service(distance);
            let done = start + machine.latency(distance);
            // Concurrent requests of other cores of the L3 wait for the same answer.
            self.shared[domain] = self.shared[domain].max(done);
            done
        };
        self.keep(machine, core);
        Read { value: self.value, done }
    }

    /// An RFO, with the value that the core then stores. It lasts until the most distant copy is invalid.
    pub(crate) fn take(&mut self, machine: &Machine, core: usize, now: Time, value: Option<u32>) -> Rfo {
        let earliest = now.max(self.taken);
        let others = self.copies.iter().filter(|other| *other != core);
        let rfo = match others.map(|other| machine.distance(core, other)).max() {
            None => Rfo { invalidated: earliest, done: earliest },
            Some(distance) => {
                let own = machine.domain(core);
                let queue = if distance == Distance::Near { self.shared[own] } else { self.home };
                let start = earliest.max(queue);
                let domains = self.present.iter().enumerate();
                let elsewhere = domains.filter(|(domain, present)| *domain != own && **present > 0).count();
                let further = elsewhere.saturating_sub(1) as Time * machine.time(Cost::Probe);
                let latency = machine.latency(distance);
                Rfo { invalidated: start + latency / 2, done: start + latency + further }
            }
        };
        self.value = value.unwrap_or(self.value);
        self.owner = core;
        self.copies = Cores::default();
        self.present.fill(0);
        self.keep(machine, core);
        self.taken = rfo.done;
        rfo
    }
}

/// A set of cores, one bit each.
#[derive(Clone, Copy, Debug, Default)]
struct Cores([u64; 4]);

impl Cores {
    fn insert(&mut self, core: usize) {
        self.0[core / 64] |= 1 << (core % 64);
    }

    fn has(self, core: usize) -> bool {
        self.0[core / 64] >> (core % 64) & 1 == 1
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(word, bits)| {
            let rest = std::iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)));
            rest.take_while(|bits| *bits != 0).map(move |bits| 64 * word + bits.trailing_zeros() as usize)
        })
    }
}
