//! A platform with simulated peers, which mirror this rank and have always arrived.
//!
//! All ranks share one header, and one staging buffer for each parity: every peer makes the same call with the same data. A
//! peer's word always holds this rank's last arrival. So a call runs to its end on one thread, deterministically, and its
//! cost can be counted: instructions by callgrind, words and bytes by the platform.

use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::rc::Rc;

use intranode::copy::{self, Sink, Source, Term};
use intranode::protocol::allreduce::{Reduction, Shape};
use intranode::protocol::block_transfer::BlockTransfer;
use intranode::protocol::call::HEADER;
use intranode::protocol::contributions::HeaderTerms;
use intranode::protocol::generation::PROGRESS;
use intranode::protocol::{Barrier, Call, Member};
use intranode::protocol::{Expired, Failure, Generation, Ordering, Payload, Platform, Segment, Slot, Staging};

/// The platform.
#[derive(Default)]
pub(crate) struct Mirror {
    arrived: Cell<u32>,
    /// The number of this rank's arrivals.
    pub(crate) rounds: Cell<u64>,
    /// The number of other ranks' words that it has read.
    pub(crate) polls: Cell<u64>,
}

/// Bytes that all ranks share.
#[derive(Clone)]
pub(crate) struct Bytes(Rc<UnsafeCell<Box<[u8]>>>);

impl Bytes {
    fn new(len: usize) -> Self {
        Bytes(Rc::new(UnsafeCell::new(vec![0; len].into())))
    }
}

// SAFETY: the view is exactly the box, which has no other reference while a closure runs: there is one thread, and no
// protocol polls into one cell from within another.
unsafe impl Payload for Bytes {
    fn write<R>(&self, fill: impl FnOnce(Sink<'_>) -> R) -> R {
        // SAFETY: as above.
        let bytes = unsafe { &mut *self.0.get() };
        // SAFETY: as above.
        fill(unsafe { Sink::new(bytes.as_mut_ptr(), bytes.len()) })
    }

    fn read<R>(&self, access: impl FnOnce(Source<'_>) -> R) -> R {
        // SAFETY: as above.
        let bytes = unsafe { &*self.0.get() };
        // SAFETY: as above.
        access(unsafe { Source::new(bytes.as_ptr(), bytes.len()) })
    }
}

fn add(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

// SAFETY: there is one thread.
unsafe impl Platform for Mirror {
    type Word = Cell<u32>;
    type Word64 = Cell<u64>;
    type Header = Bytes;
    type Buffer = Bytes;
    type Deadline = ();

    #[inline]
    fn load(&self, _: &'static str, word: &Cell<u32>, _: Ordering) -> u32 {
        word.get()
    }

    fn store(&self, _: &'static str, word: &Cell<u32>, value: u32, _: Ordering) {
        word.set(value);
    }

    #[inline]
    fn compare_exchange(
        &self,
        _: &'static str,
        word: &Cell<u32>,
        current: u32,
        new: u32,
        _: Ordering,
        _: Ordering,
    ) -> Result<u32, u32> {
        if word.get() != current {
            return Err(word.get());
        }
        word.set(new);
        self.arrived.set(new);
        add(&self.rounds);
        Ok(current)
    }

    fn fetch_or(&self, _: &'static str, word: &Cell<u32>, bits: u32, _: Ordering) -> u32 {
        word.replace(word.get() | bits)
    }

    fn load64(&self, _: &'static str, word: &Cell<u64>, _: Ordering) -> u64 {
        word.get()
    }

    fn compare_exchange64(
        &self,
        _: &'static str,
        word: &Cell<u64>,
        current: u64,
        new: u64,
        _: Ordering,
        _: Ordering,
    ) -> Result<u64, u64> {
        if word.get() != current {
            return Err(word.get());
        }
        Ok(word.replace(new))
    }

    #[inline]
    fn spin(
        &self,
        _: &'static str,
        _: &Cell<u32>,
        _: Ordering,
        _: bool,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        add(&self.polls);
        // Every rank has arrived, and so have the ranks of a leader's group.
        let seen = self.arrived.get();
        let progress = PROGRESS & !(PROGRESS >> 1);
        [seen, seen | progress].into_iter().find(|seen| until(*seen)).ok_or(seen)
    }

    fn deadline(&self) {}

    fn brief_deadline(&self) {}

    fn wait(&self, site: &'static str, _: &Cell<u32>, _: u32, (): &()) -> Result<(), Expired> {
        unreachable!("{site}: all ranks have arrived")
    }

    fn wake_all(&self, site: &'static str, _: &Cell<u32>) {
        unreachable!("{site}: no rank sleeps")
    }
}

/// The shared memory of the ranks.
pub(crate) struct Shared {
    cause: Cell<u64>,
    spread: Cell<u32>,
    claims: Vec<Cell<u32>>,
    slots: Vec<[Slot<Mirror>; 2]>,
    buffers: Vec<[Bytes; 2]>,
    turns: Vec<Cell<u32>>,
    staging: Staging,
}

const START: Generation = Generation::new(0);

impl Shared {
    /// A segment for `ranks` ranks, with staging buffers of `chunk` bytes.
    pub(crate) fn new(ranks: usize, chunk: usize) -> Self {
        let words = START.initial_words();
        let headers = [Bytes::new(HEADER), Bytes::new(HEADER)];
        let buffers = [Bytes::new(chunk), Bytes::new(chunk)];
        let slot = |parity: usize| Slot { state: Cell::new(words[parity]), header: headers[parity].clone() };
        let pair = || [slot(0), slot(1)];
        Shared {
            cause: Cell::new(0),
            spread: Cell::new(0),
            claims: vec![Cell::new(1); ranks],
            slots: (0..ranks).map(|_| pair()).collect(),
            buffers: vec![buffers; ranks],
            turns: vec![Cell::new(0); ranks],
            staging: Staging::of(chunk, ranks),
        }
    }

    /// The view of the last rank.
    pub(crate) fn member<'s>(
        &'s self,
        mirror: &'s Mirror,
        segment: &'s Segment<'s, Mirror>,
    ) -> Member<'s, Mirror> {
        self.rank(mirror, segment, self.slots.len() - 1)
    }

    /// The view of a rank.
    pub(crate) fn rank<'s>(
        &'s self,
        mirror: &'s Mirror,
        segment: &'s Segment<'s, Mirror>,
        rank: usize,
    ) -> Member<'s, Mirror> {
        Member::new(mirror, segment, &self.staging, rank, START, &self.turns[rank])
    }

    pub(crate) fn segment(&self) -> Segment<'_, Mirror> {
        Segment {
            cause: &self.cause,
            spread: &self.spread,
            claims: &self.claims,
            slots: &self.slots,
            buffers: &self.buffers,
            bells: &[],
        }
    }
}

/// A buffer of each kind, and the lengths of all copies between it and the segment.
pub(crate) struct Data {
    ranks: usize,
    rank: usize,
    send: Vec<f64>,
    recv: Vec<f64>,
    /// The lengths in bytes of the pieces that this rank has published, and read from others.
    pub(crate) published: Vec<usize>,
    pub(crate) taken: Vec<usize>,
    counting: bool,
}

impl Data {
    /// `elements` of each rank. Pieces are recorded on request only, since that takes instructions.
    pub(crate) fn new(ranks: usize, elements: usize, counting: bool) -> Self {
        // All elements are equal, so a peer's fold has the same result as this rank's.
        let send = vec![3.0; elements];
        let recv = vec![0.0; ranks * elements];
        Data { ranks, rank: ranks - 1, send, recv, published: Vec::new(), taken: Vec::new(), counting }
    }

    fn publishes(&mut self, bytes: usize) {
        if self.counting {
            self.published.push(bytes);
        }
    }

    fn takes(&mut self, bytes: usize) {
        if self.counting {
            self.taken.push(bytes);
        }
    }

    fn place(&self, rank: usize, part: Range<usize>) -> Range<usize> {
        let start = rank * self.send.len();
        start + part.start / 8..start + part.end / 8
    }

    pub(crate) fn holds_all_blocks(&self) -> bool {
        self.recv.chunks(self.send.len()).all(|block| block == self.send)
    }

    /// In this rank's block of one element.
    pub(crate) fn holds_its_sum(&self) -> bool {
        self.recv[self.rank] == self.ranks as f64 * self.send[self.rank]
    }

    pub(crate) fn holds_the_sum(&self) -> bool {
        self.send.iter().zip(&self.recv).all(|(own, sum)| own * self.ranks as f64 == *sum)
    }
}

impl BlockTransfer for Data {
    fn length(&self, _: usize) -> usize {
        size_of_val(&self.send[..])
    }

    fn put(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        staging.put(0, &bytemuck::cast_slice(&self.send)[part.clone()]);
        self.publishes(part.len());
    }

    fn copy_own_block(&mut self, part: Range<usize>) {
        let place = self.place(self.rank, part.clone());
        self.recv[place].copy_from_slice(&self.send[part.start / 8..part.end / 8]);
    }

    fn get(&mut self, rank: usize, part: Range<usize>, staging: Source<'_>) {
        let place = self.place(rank, part.clone());
        staging.get(0, bytemuck::cast_slice_mut(&mut self.recv[place]));
        self.takes(part.len());
    }
}

impl Reduction for Data {
    fn elements(&self) -> usize {
        self.send.len()
    }

    fn element_size(&self) -> usize {
        size_of::<f64>()
    }

    fn contribute(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        staging.put(0, bytemuck::cast_slice(&self.send[part.clone()]));
        self.publishes(8 * part.len());
    }

    fn keeps_contribution(&self) -> bool {
        true
    }

    fn fold(&mut self, part: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>) {
        if staging.is_some() {
            self.publishes(8 * part.len());
        }
        let staged = terms.iter().filter(|term| matches!(term, Term::Staged(_))).count();
        self.takes(8 * part.len() * staged);
        let own = &self.send[part.clone()];
        copy::fold(&mut self.recv[part], Some(own), begin, terms, staging, |sum, value: f64| sum + value);
    }

    fn fold_inline(&mut self, part: Range<usize>, terms: &HeaderTerms<'_, impl Platform>) {
        let target = &mut self.recv[part.clone()];
        for rank in 0..terms.ranks() {
            terms.look(rank, |term| match rank {
                0 => term.get(0, bytemuck::cast_slice_mut(target)),
                _ => copy::fold_short(target, term, |sum, value: f64| sum + value),
            });
        }
        self.takes(8 * part.len() * (terms.ranks() - 1));
    }

    fn collect(&mut self, part: Range<usize>, staging: Source<'_>) {
        self.takes(8 * part.len());
        staging.get(0, bytemuck::cast_slice_mut(&mut self.recv[part]));
    }
}

/// A collective over the mirror.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Barrier,
    Allreduce,
    Allgatherv,
    Scan,
    /// With an element for each rank.
    ReduceScatter,
    /// A barrier that is started, and waited for.
    StartBarrier,
}

/// One call. `slices_from` as in production.
pub(crate) fn call(
    operation: Operation,
    member: &mut Member<'_, Mirror>,
    barrier: &Barrier,
    data: &mut Data,
    slices_from: usize,
) -> Result<(), Failure> {
    let call = Call { operation: operation as u8, length: data.send.len() as u64, ..Call::default() };
    match operation {
        Operation::Barrier => barrier.enter(member, &call),
        Operation::Allreduce => member.reduction(&call, Shape::All, slices_from, data),
        Operation::Allgatherv => member.transfer(&call, data),
        Operation::Scan => member.reduction(&call, Shape::Inclusive, slices_from, data),
        Operation::ReduceScatter => member.reduce_scatter(&call, &|rank| rank..rank + 1, data),
        Operation::StartBarrier => {
            let mut started = member.start(&call, &mut ())?;
            member.finish(&mut started, &mut ())
        }
    }
}
