//! The platform under shuttle: words over its atomics, a futex over its mutexes, cells that find races.

use std::cell::UnsafeCell;
use std::sync::{Arc, Mutex};

use intranode::copy::{Sink, Source};
use intranode::protocol::call::HEADER;
use intranode::protocol::generation::{POISON, WAITER};
use intranode::protocol::{
    Barrier, Expired, Generation, Group, Killed, Ordering, Payload, Platform, Segment, Slot, Staging,
};
use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::breakage::Breakage;
use crate::clock::{Accesses, Clock, Event, lock};
use crate::dice;
use crate::stage::{Slept, Stage, me};

/// A word that can be waited on.
pub struct Word {
    value: AtomicU32,
    released: Mutex<Clock>,
    sleepers: Mutex<Vec<usize>>,
}

/// A word that is set once and never waited on.
pub struct Word64 {
    value: AtomicU64,
    /// Who has seen the value, and when: whoever comes after one of these must see it too.
    known: Mutex<Vec<Event>>,
}

impl Word {
    /// A word that `actors` know.
    pub fn new(value: u32, actors: usize) -> Self {
        let released = Mutex::new(Clock::new(actors));
        Word { value: AtomicU32::new(value), released, sleepers: Mutex::default() }
    }
}

fn acquires(order: Ordering) -> bool {
    matches!(order, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst)
}

fn releases(order: Ordering) -> bool {
    matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst)
}

impl Stage {
    fn order(&self, site: &str, order: Ordering) -> Ordering {
        match &self.breakage {
            Some(Breakage::Weaken(weak)) if weak == site => Ordering::Relaxed,
            _ => order,
        }
    }

    /// A read of the word has happened.
    fn after_load(&self, site: &str, word: &Word, order: Ordering) {
        if acquires(self.order(site, order)) {
            self.with_clock(|_, clock| clock.join(&lock(&word.released)));
        }
    }

    /// A read-modify-write has happened. One that does not release continues the sequence of one that has.
    fn after_update(&self, site: &str, word: &Word, order: Ordering) {
        self.after_load(site, word, order);
        if releases(self.order(site, order)) {
            self.with_clock(|actor, clock| {
                lock(&word.released).join(clock);
                clock.advance(actor);
            });
        }
    }

    /// Wakes the longest sleeper only.
    pub fn wake_first(&self, word: &Word) {
        let first = {
            let mut sleepers = lock(&word.sleepers);
            if sleepers.is_empty() { None } else { Some(sleepers.remove(0)) }
        };
        if let Some(actor) = first {
            self.wake(actor);
        }
    }

    /// Sleeps on several words. Until it runs again the sleeper stays in the queues of those by which it was not woken.
    pub fn wait_any(&self, site: &'static str, words: &[(&Word, u32)]) {
        self.step(site);
        if self.spurious > 0 && dice::once_in(self.spurious as usize) {
            return;
        }
        let blind = matches!(&self.breakage, Some(Breakage::Blind(blind)) if blind == site);
        self.sleep(None, || {
            words.iter().all(|(word, expected)| {
                lock(&word.sleepers).push(me());
                word.value.load(SeqCst) == *expected || blind
            })
        });
        for (word, _) in words {
            lock(&word.sleepers).retain(|actor| *actor != me());
        }
    }

    fn wake_sleepers(&self, word: &Word) {
        let sleepers = std::mem::take(&mut *lock(&word.sleepers));
        for actor in sleepers {
            self.wake(actor);
        }
    }
}

// SAFETY: the words are shuttle's atomics, every operation on them sequentially consistent.
unsafe impl Platform for Stage {
    type Word = Word;
    type Word64 = Word64;
    type Header = Cell;
    type Chunk = Cell;
    type Deadline = u64;

    fn load(&self, site: &'static str, word: &Word, order: Ordering) -> u32 {
        self.step(site);
        let seen = word.value.load(SeqCst);
        self.after_load(site, word, order);
        match &self.breakage {
            Some(Breakage::Stale(stale)) if stale == site => {
                let before = Generation::of_word(seen).previous().previous();
                before.word() | seen & (WAITER | POISON)
            }
            _ => seen,
        }
    }

    fn store(&self, site: &'static str, word: &Word, value: u32, order: Ordering) {
        self.step(site);
        word.value.store(value, SeqCst);
        // What an earlier store has released is not continued.
        let mut released = Clock::new(self.actors());
        if releases(self.order(site, order)) {
            self.with_clock(|actor, clock| {
                released.join(clock);
                clock.advance(actor);
            });
        }
        *lock(&word.released) = released;
    }

    fn compare_exchange(
        &self,
        site: &'static str,
        word: &Word,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.step(site);
        if matches!(&self.breakage, Some(Breakage::Swap(swapped)) if swapped == site) {
            let before = word.value.swap(new, SeqCst);
            self.after_update(site, word, success);
            self.wake_sleepers(word);
            return Ok(before);
        }
        let result = word.value.compare_exchange(current, new, SeqCst, SeqCst);
        match result {
            Ok(_) => self.after_update(site, word, success),
            Err(_) => self.after_load(site, word, failure),
        }
        result
    }

    fn fetch_or(&self, site: &'static str, word: &Word, bits: u32, order: Ordering) -> u32 {
        self.step(site);
        if matches!(&self.breakage, Some(Breakage::Skip(skipped)) if skipped == site) {
            return word.value.load(SeqCst);
        }
        let before = word.value.fetch_or(bits, SeqCst);
        self.after_update(site, word, order);
        before
    }

    fn load64(&self, site: &'static str, word: &Word64, _: Ordering) -> u64 {
        self.step(site);
        let seen = word.value.load(SeqCst);
        let must_see = self.with_clock(|_, clock| lock(&word.known).iter().any(|event| clock.has_seen(*event)));
        assert!(seen == 0 || must_see, "not ordered: {site} could also have read the value before {seen:#x}");
        seen
    }

    fn compare_exchange64(
        &self,
        site: &'static str,
        word: &Word64,
        current: u64,
        new: u64,
        _: Ordering,
        _: Ordering,
    ) -> Result<u64, u64> {
        self.step(site);
        let result = match &self.breakage {
            Some(Breakage::Swap(swapped)) if swapped == site => Ok(word.value.swap(new, SeqCst)),
            _ => word.value.compare_exchange(current, new, SeqCst, SeqCst),
        };
        self.with_clock(|actor, clock| lock(&word.known).push(clock.event(actor)));
        result
    }

    fn spin(
        &self,
        site: &'static str,
        word: &Word,
        order: Ordering,
        _: bool,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        let mut looks = 0;
        loop {
            let seen = self.load(site, word, order);
            if until(seen) {
                return Ok(seen);
            }
            if looks == self.patience {
                return Err(seen);
            }
            looks += 1;
        }
    }

    /// All are beside one another, as far as anybody knows: see [`Stage::shown`].
    fn processor(&self) -> Option<u8> {
        Some(0)
    }

    /// Only a hint, so anything: whom a rank looks at first is up to chance.
    fn peek(&self, _: &Cell) -> u8 {
        u8::from(dice::once_in(2))
    }

    fn deadline(&self) -> u64 {
        self.now().saturating_add(1)
    }

    fn brief_deadline(&self) -> u64 {
        self.now().saturating_add(u64::from(dice::once_in(2)))
    }

    fn wait(&self, site: &'static str, word: &Word, expected: u32, deadline: &u64) -> Result<(), Expired> {
        self.step(site);
        if self.spurious > 0 && dice::once_in(self.spurious as usize) {
            return Ok(());
        }
        let blind = matches!(&self.breakage, Some(Breakage::Blind(blind)) if blind == site);
        // As in a futex, nothing comes between the comparison and the entry into the queue: shuttle switches
        // before the load only.
        let slept = self.sleep(Some(*deadline), || {
            let go = word.value.load(SeqCst) == expected || blind;
            if go {
                lock(&word.sleepers).push(me());
            }
            go
        });
        if slept == Slept::TooLong {
            lock(&word.sleepers).retain(|actor| *actor != me());
            return Err(Expired);
        }
        Ok(())
    }

    fn wake_all(&self, site: &'static str, word: &Word) {
        self.step(site);
        // The load is where other actors can come in between.
        let seen = word.value.load(SeqCst);
        match &self.breakage {
            Some(Breakage::Drop(dropped)) if dropped == site => (),
            Some(Breakage::Timid(timid)) if timid == site && seen & WAITER == 0 => (),
            _ => self.wake_sleepers(word),
        }
    }

    fn fail_point(&self, name: &'static str) -> Result<(), Killed> {
        if self.stops_at(name) { Err(Killed) } else { Ok(()) }
    }
}

/// What a rank keeps outside of its segment, in bytes: a part of a region, or what it sends.
const PART: usize = 512;

/// Bytes that one rank writes and others read, and who has done so. A clone is the same cell.
#[derive(Clone)]
pub struct Cell(Arc<Store>);

struct Store {
    stage: Arc<Stage>,
    name: String,
    /// The names of writing and of reading.
    sites: [&'static str; 2],
    bytes: UnsafeCell<Box<[u8]>>,
    accesses: Mutex<Accesses>,
}

// SAFETY: shuttle's tasks take turns on one thread, and none is interrupted between its scheduling points. There
// is none while somebody is at the bytes, so two accesses never overlap.
unsafe impl Sync for Store {}

impl Cell {
    fn new(stage: &Arc<Stage>, name: String, sites: [&'static str; 2], len: usize) -> Self {
        let bytes = UnsafeCell::new(vec![0; len].into_boxed_slice());
        Cell(Arc::new(Store { stage: stage.clone(), name, sites, bytes, accesses: Mutex::default() }))
    }

    fn access(
        &self,
        site: &'static str,
        header: impl FnOnce(&mut Accesses, usize, &Clock) -> Result<(), String>,
    ) {
        let Store { stage, name, accesses, .. } = &*self.0;
        stage.step(site);
        let noted = stage.with_clock(|actor, clock| header(&mut lock(accesses), actor, clock));
        if let Err(race) = noted {
            panic!("data race in {name}, actor {}: {race}", me());
        }
    }
}

// SAFETY: the view is the whole of a boxed slice that lives as long as the cell.
unsafe impl Payload for Cell {
    fn write<R>(&self, fill: impl FnOnce(Sink<'_>) -> R) -> R {
        self.access(self.0.sites[0], Accesses::write);
        // SAFETY: no other access is under way: see `Sync`.
        let bytes = unsafe { &mut *self.0.bytes.get() };
        let (start, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the slice lives as long as the cell, and `access` has found no race.
        fill(unsafe { Sink::new(start, len) })
    }

    fn read<R>(&self, look: impl FnOnce(Source<'_>) -> R) -> R {
        self.access(self.0.sites[1], Accesses::read);
        // SAFETY: no other access is under way: see `Sync`.
        let bytes = unsafe { &*self.0.bytes.get() };
        // SAFETY: the slice lives as long as the cell, and `access` has found no race.
        look(unsafe { Source::new(bytes.as_ptr(), bytes.len()) })
    }
}

/// The shared control structures, as they lie in a mapping in production.
pub struct Memory {
    cause: Word64,
    spread: Word,
    claims: Vec<Word>,
    slots: Vec<[Slot<Stage>; 2]>,
    /// By rank: how it meets the others.
    pub barriers: Vec<Barrier>,
    chunks: Vec<[Cell; 2]>,
    staging: Staging,
    /// By rank: what it owns of a region.
    pub parts: Vec<Cell>,
}

impl Memory {
    /// The segment of `ranks` ranks before the first round after `start`. `leaders`: of each rank's group, or nothing.
    pub fn new(
        stage: &Arc<Stage>,
        ranks: usize,
        staging: Staging,
        start: Generation,
        leaders: &[usize],
    ) -> Self {
        let actors = stage.actors();
        let header = |what: &str, rank: usize, parity: usize| {
            Cell::new(stage, format!("{what} {rank}/{parity}"), ["header-fill", "header-look"], HEADER)
        };
        let chunk = |rank, parity| {
            let name = format!("chunk {rank}/{parity}");
            Cell::new(stage, name, ["chunk-fill", "chunk-look"], staging.capacity)
        };
        let part = |rank| Cell::new(stage, format!("part {rank}"), ["part-fill", "part-look"], PART);
        let pair = |what: &str, rank: usize| {
            [0, 1].map(|parity| Slot {
                state: Word::new(start.initial_words()[parity], actors),
                header: header(what, rank, parity),
            })
        };
        let buffers = |rank| match stage.breakage {
            Some(Breakage::OneBuffer) => {
                let both = chunk(rank, 0);
                [both.clone(), both]
            }
            _ => [chunk(rank, 0), chunk(rank, 1)],
        };
        Memory {
            cause: Word64 { value: AtomicU64::new(0), known: Mutex::default() },
            spread: Word::new(0, actors),
            claims: (0..ranks).map(|_| Word::new(0, actors)).collect(),
            slots: (0..ranks).map(|rank| pair("header", rank)).collect(),
            barriers: (0..ranks)
                .map(|rank| match leaders {
                    [] => Barrier::Flat,
                    _ => Barrier::Hierarchical(Group::new(leaders, rank)),
                })
                .collect(),
            chunks: (0..ranks).map(buffers).collect(),
            staging,
            parts: (0..ranks).map(part).collect(),
        }
    }

    /// All words, seen from outside the machine.
    pub fn words(&self) -> impl Iterator<Item = u32> {
        self.segment().words().map(|word| word.value.load(SeqCst))
    }

    /// The segment.
    pub fn segment(&self) -> Segment<'_, Stage> {
        Segment {
            cause: &self.cause,
            spread: &self.spread,
            claims: &self.claims,
            slots: &self.slots,
            chunks: &self.chunks,
            staging: self.staging,
        }
    }
}
