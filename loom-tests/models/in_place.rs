//! Blocks that their ranks have published in place, in memory that all map: the right data, beside blocks that go through
//! staging; and no rank's memory changes as long as another may read it. loom checks every access to that memory against all
//! others. Blocks that are offered only, since not every rank may have them, are read by all that need them or by none.

use std::num::NonZeroU64;
use std::ops::Range;

use intranode::copy::{Sink, Source};
use intranode::protocol::CauseKind::{Died, Left, TimedOut};
use intranode::protocol::block_transfer::{Address, BlockTransfer, Lend, OFFER};
use intranode::protocol::{Failure, Payload};

use super::collectives::barrier;
use super::faults::{IN_A_ROUND, leave};
use crate::harness::cells::{Buffer, FULL};
use crate::harness::data::{Blocks, numbers};
use crate::harness::machine::Fate;
use crate::harness::model::Model;
use crate::harness::rank::{Operation, Rank, Step};
use crate::harness::verdict::{agreement, only};
use crate::harness::waiting::Waiting::{self, Blocking, Dozing, Parking, Spinning};

/// Every rank sends numbers, gets those of all, and changes its own memory as soon as the call returns. `MASK`: a bit for each
/// rank whose block is in place. The others' blocks have `CHUNKS` chunks.
fn gather<const MASK: usize, const CHUNKS: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    blocks_of(rank, MASK, CHUNKS, None)
}

/// The same where the blocks in place are only offered. `LACKING`: a bit for each rank that does not have them.
fn offered<const MASK: usize, const CHUNKS: usize, const LACKING: usize>(
    rank: &mut Rank<'_>,
) -> Result<(), Failure> {
    let has = LACKING >> rank.number & 1 == 0;
    blocks_of(rank, MASK, CHUNKS, Some(has))
}

fn blocks_of(rank: &mut Rank<'_>, mask: usize, chunks: usize, offer: Option<bool>) -> Result<(), Failure> {
    let in_place = |rank: usize| mask >> rank & 1 == 1;
    let counts: Vec<usize> =
        (0..rank.size()).map(|rank| if in_place(rank) { FULL } else { chunks * FULL }).collect();
    let sent = numbers(rank.nth(), &counts);
    let (own, memory) = (rank.number, rank.blocks());
    if in_place(own) {
        rank.write_block(0, &sent[own]);
    }
    let staged = Blocks::of(own, &sent);
    let mut blocks = InPlace { memory, lent: Lent::new(own, in_place(own), offer), staged };
    rank.call(Operation::InPlace.call(chunks * FULL, mask), |member, call| member.transfer(call, &mut blocks))?;
    if in_place(own) {
        rank.write_block(0, &[]);
    }
    assert!(blocks.staged.all == sent, "wrong data: rank {own} got {:?}", blocks.staged.all);
    Ok(())
}

const ALL: Step = gather::<0b11, 1>;
const FIRST: Step = gather::<0b01, 1>;
const FIRST_BESIDE_TWO_CHUNKS: Step = gather::<0b01, 2>;

fn two_ranks(waiting: Waiting) -> [Model; 5] {
    let same = |name: &str, script: &[Step]| Model::same(name, waiting, 2, script);
    [
        same("in_place_once", &[ALL]),
        same("in_place_one_of_two", &[FIRST]),
        same("in_place_beside_two_chunks", &[FIRST_BESIDE_TWO_CHUNKS]),
        same("in_place_twice", &[FIRST, gather::<0b10, 1>]),
        Model::new("in_place_mismatch", waiting, &[&[ALL, barrier], &[barrier, barrier]]),
    ]
}

fn offers_of_two(waiting: Waiting) -> [Model; 4] {
    let same = |name: &str, script: &[Step]| Model::same(name, waiting, 2, script);
    [
        same("offer_found", &[offered::<0b01, 1, 0b00>]),
        same("offer_not_found", &[offered::<0b01, 1, 0b10>]),
        same("offer_beside_two_chunks", &[offered::<0b01, 2, 0b00>]),
        same("offer_not_found_beside_two_chunks", &[offered::<0b01, 2, 0b10>]),
    ]
}

/// A rank leaves when it has got all that it wanted.
fn left_by(victim: usize) -> Model {
    let mut scripts: [&[Step]; 2] = [&[ALL, ALL]; 2];
    scripts[victim] = &[ALL, leave];
    Model::new(format!("in_place_leave_{victim}"), Parking, &scripts).check(agreement(1, only(Left, victim)))
}

/// A rank dies before the others read, or after.
fn death(fail_point: &'static str, round: usize, victim: usize) -> Model {
    Model::same(format!("in_place_death_at_{fail_point}_{round}_of_{victim}"), Parking, 2, &[FIRST])
        .fate(victim, Fate::dies_at(fail_point, round))
        .check(agreement(0, only(Died, victim)))
}

pub(crate) fn models() -> Vec<Model> {
    let one_of_three = Model::same("in_place_one_of_three", Blocking, 3, &[gather::<0b010, 1>]);
    let mut models = searched(two_ranks, left_by, death, one_of_three);
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        models.extend(
            offers_of_two(waiting).map(|model| if waiting == Blocking { model } else { model.bound(2) }),
        );
    }
    // One of those that would read does not have it, and the other one has.
    models.push(Model::same("offer_not_found_by_one", Blocking, 3, &[offered::<0b010, 1, 0b100>]).bound(2));
    models.extend(buffers());
    for (fail_point, round) in
        [("arrived", 1), ("completed", 1), ("arrived", 2), ("completed", 2), ("completed", 3)]
    {
        for victim in [0, 1] {
            let name = format!("offer_death_at_{fail_point}_{round}_of_{victim}");
            let model = Model::same(name, Parking, 2, &[offered::<0b01, 1, 0b00>]);
            models.push(
                model
                    .fate(victim, Fate::dies_at(fail_point, round))
                    .check(agreement(0, only(Died, victim)))
                    .bound(2),
            );
        }
    }
    models
}

/// What a rank has found once it keeps: the same memory is published without an offer from the next call on, with other data.
/// If some rank has not found it, it goes through staging.
fn buffers() -> Vec<Model> {
    const KNOWN: &[Step] = &[offered::<0b01, 1, 0b00>, FIRST];
    const REFUSED: &[Step] = &[offered::<0b01, 1, 0b10>, gather::<0b00, 1>];
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        models.push(Model::same("buffer_known_after_an_offer", waiting, 2, KNOWN).bound(2));
        models.push(Model::same("buffer_refused_after_an_offer", waiting, 2, REFUSED).bound(2));
    }
    // Two ranks read it.
    let of_three: &[Step] = &[offered::<0b010, 1, 0b000>, gather::<0b010, 1>];
    models.push(Model::same("buffer_known_after_an_offer", Blocking, 3, of_three).bound(1));
    // The death of either rank in the second call: the one that reads then throws it away.
    for (fail_point, round) in [("arrived", 5), ("completed", 5), ("arrived", 6), ("completed", 6)] {
        for victim in [0, 1] {
            let name = format!("buffer_death_at_{fail_point}_{round}_of_{victim}");
            let model = Model::same(name, Parking, 2, KNOWN).fate(victim, Fate::dies_at(fail_point, round));
            models.push(model.check(agreement(0, only(Died, victim))).bound(2));
        }
    }
    // One that gives up while the other may still read: both succeed, or both throw away what they have.
    for victim in [0, 1] {
        for check in [1, 2] {
            let name = format!("buffer_time_out_{check}_of_{victim}");
            let model = Model::same(name, Parking, 2, &[FIRST]).fate(victim, Fate::expires_at(check));
            models.push(model.check(agreement(0, only(TimedOut, 1 - victim))).bound(2));
        }
    }
    models
}

/// On which machines models of memory that is read in place run, and how far each is searched.
pub(super) fn searched<const N: usize>(
    two_ranks: fn(Waiting) -> [Model; N],
    left_by: fn(usize) -> Model,
    death: fn(&'static str, usize, usize) -> Model,
    of_three: Model,
) -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        models.extend(two_ranks(waiting).map(|model| if waiting == Blocking { model } else { model.bound(3) }));
    }
    for victim in [0, 1] {
        models.push(left_by(victim).bound(2));
        for fail_point in IN_A_ROUND {
            models.extend([1, 2].map(|round| death(fail_point, round, victim).bound(2)));
        }
    }
    models.push(of_three.bound(2));
    models
}

/// One rank's side of the call.
struct InPlace<'m> {
    memory: &'m [[Buffer; 2]],
    lent: Lent,
    /// What has come, by either way.
    staged: Blocks,
}

/// Whether a rank's memory is in place, and what it has of the others'.
pub(super) struct Lent {
    own: usize,
    pub(super) in_place: bool,
    /// Where it is only offered: whether this rank has what is.
    offer: Option<bool>,
    /// Whether the ranks have not agreed on that yet.
    offers: bool,
}

impl Lent {
    pub(super) fn new(own: usize, in_place: bool, offer: Option<bool>) -> Self {
        Lent { own, in_place, offer, offers: offer.is_some() }
    }

    /// Whether this rank does not have what was offered.
    pub(super) fn lacks(&self) -> bool {
        self.offer == Some(false)
    }
}

/// A number that stands for the place of a rank's memory.
pub(super) fn place_of(rank: usize) -> Address {
    NonZeroU64::new(200 + rank as u64)
}

impl BlockTransfer for InPlace<'_> {
    fn length(&self, rank: usize) -> usize {
        self.staged.length(rank)
    }

    fn put(&mut self, chunk: Range<usize>, staging: Sink<'_>) {
        assert!(!self.lent.in_place, "wrong data: a block in place is staged");
        self.staged.put(chunk, staging);
    }

    fn copy_own_block(&mut self, _: Range<usize>) {}

    fn get(&mut self, rank: usize, chunk: Range<usize>, staging: Source<'_>) {
        self.staged.get(rank, chunk, staging);
    }

    fn lending(&mut self) -> Option<&mut dyn Lend> {
        Some(&mut self.lent)
    }

    fn read_in_place(&mut self, rank: usize, place: NonZeroU64) {
        assert!(Some(place) == place_of(rank), "wrong data: rank {rank} is taken to be at {place}");
        assert!(!self.lent.lacks(), "wrong data: a block is read by a rank that does not have it");
        let block = 0..self.length(rank);
        self.memory[rank][0].read(|view| self.staged.get(rank, block, view));
    }
}

impl Lend for Lent {
    fn place(&self) -> Address {
        let offer = if self.offers { OFFER } else { 0 };
        place_of(self.own).filter(|_| self.in_place).map(|place| place | offer)
    }

    fn find(&mut self, place: NonZeroU64) -> bool {
        assert!(place.get() & OFFER != 0 && self.offers, "wrong data: {place} is not offered");
        self.offer == Some(true)
    }

    fn settle(&mut self, found: bool) {
        self.offers = false;
        self.in_place &= found;
    }
}
