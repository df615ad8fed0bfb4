//! Ranks that fetch from each other's memory: the right data, also where it turns out that one cannot; and no rank's
//! memory changes as long as another may fetch. loom checks every access to that memory against all others.

use std::num::NonZeroU64;
use std::ops::Range;

use intranode::copy::{Sink, Source};
use intranode::protocol::CauseKind::{Died, Left, TimedOut};
use intranode::protocol::block_transfer::{Address, BlockTransfer, Lend, OFFER};
use intranode::protocol::{Failure, Payload};

use super::collectives::{barrier, refuse};
use super::faults::{IN_A_ROUND, leave};
use super::in_place::place_of;
use crate::harness::cells::{Buffer, FULL};
use crate::harness::data::{Blocks, numbers};
use crate::harness::machine::Fate;
use crate::harness::model::Model;
use crate::harness::rank::{Operation, Rank, Step};
use crate::harness::verdict::{agreement, only};
use crate::harness::waiting::Waiting::{self, Blocking, Dozing, Parking, Spinning};

/// Every rank sends numbers from its own memory, fetches those of all, and must get them. After the call it does what it
/// likes with its memory.
pub(crate) fn fetch(rank: &mut Rank<'_>) -> Result<(), Failure> {
    fetch_despite(rank, Obstacle::None)
}

/// The same where no other rank can fetch from `HIDDEN`, whose data go through staging.
fn fetch_from_hidden<const HIDDEN: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    fetch_despite(rank, Obstacle::Hidden(HIDDEN))
}

/// The same where `BARRED` cannot fetch: all are told, and the data go through staging.
fn fetch_by_barred<const BARRED: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    fetch_despite(rank, Obstacle::Barred(BARRED))
}

/// Rank 0 alone has a block.
fn fetch_of_root(rank: &mut Rank<'_>) -> Result<(), Failure> {
    fetch_of_root_despite(rank, Obstacle::None)
}

fn fetch_of_hidden_root(rank: &mut Rank<'_>) -> Result<(), Failure> {
    fetch_of_root_despite(rank, Obstacle::Hidden(0))
}

fn fetch_of_root_by_barred<const BARRED: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    fetch_of_root_despite(rank, Obstacle::Barred(BARRED))
}

fn fetch_of_root_despite(rank: &mut Rank<'_>, obstacle: Obstacle) -> Result<(), Failure> {
    let mut lengths = vec![0; rank.size()];
    lengths[0] = FULL;
    fetch_of(rank, &lengths, obstacle)
}

fn fetch_despite(rank: &mut Rank<'_>, obstacle: Obstacle) -> Result<(), Failure> {
    fetch_of(rank, &vec![FULL; rank.size()], obstacle)
}

fn fetch_of(rank: &mut Rank<'_>, lengths: &[usize], obstacle: Obstacle) -> Result<(), Failure> {
    fetch_beside(rank, lengths, obstacle, None)
}

/// Rank 0 lends its block, and the others fetch from each other.
fn fetch_beside_lent(rank: &mut Rank<'_>) -> Result<(), Failure> {
    fetch_beside(rank, &vec![FULL; rank.size()], Obstacle::None, Some(Lent::Mapped))
}

/// The same where it has to offer that first.
fn fetch_beside_offered(rank: &mut Rank<'_>) -> Result<(), Failure> {
    fetch_beside(rank, &vec![FULL; rank.size()], Obstacle::None, Some(Lent::Offered))
}

/// The same where the last rank does not have it: all fetch from each other.
fn fetch_beside_unfound(rank: &mut Rank<'_>) -> Result<(), Failure> {
    fetch_beside(rank, &vec![FULL; rank.size()], Obstacle::None, Some(Lent::Unfound))
}

/// Rank 0 lends its block, and cannot fetch those of the others: it goes on lending it.
fn fetch_by_barred_lender(rank: &mut Rank<'_>) -> Result<(), Failure> {
    fetch_beside(rank, &vec![FULL; rank.size()], Obstacle::Barred(0), Some(Lent::Mapped))
}

/// Of three ranks one lends its block, the data of one go through staging, and one is fetched from.
fn fetch_three_ways(rank: &mut Rank<'_>) -> Result<(), Failure> {
    fetch_beside(rank, &vec![FULL; rank.size()], Obstacle::Hidden(1), Some(Lent::Mapped))
}

fn fetch_beside(
    rank: &mut Rank<'_>,
    lengths: &[usize],
    obstacle: Obstacle,
    lent: Option<Lent>,
) -> Result<(), Failure> {
    let sent = numbers(rank.nth(), lengths);
    rank.write_block(0, &sent[rank.number]);
    let (own, memory) = (rank.number, rank.blocks());
    let staged = Blocks::of(own, &sent);
    let mut blocks = Fetched { own, memory, obstacle, lent, staged, refused: false };
    rank.call(Operation::Fetch.call(FULL, 0), |member, call| member.transfer(call, &mut blocks))?;
    rank.write_block(0, &[]);
    assert!(blocks.staged.all == sent, "wrong data: rank {own} got {:?}", blocks.staged.all);
    assert!(blocks.refused == matches!(obstacle, Obstacle::Barred(_)), "wrong verdict about {obstacle:?}");
    Ok(())
}

const FETCH: Step = fetch;

/// Two ranks fetch from each other, or cannot, or refuse, or call different things.
fn two_ranks(waiting: Waiting) -> [Model; 15] {
    let same = |name: &str, script: &[Step]| Model::same(name, waiting, 2, script);
    [
        same("fetch_once", &[FETCH]),
        same("fetch_twice", &[FETCH; 2]),
        Model::new("fetch_refusal", waiting, &[&[FETCH, barrier], &[refuse, barrier]]),
        Model::new("fetch_mismatch", waiting, &[&[FETCH, barrier], &[barrier, barrier]]),
        same("fetch_from_hidden_0", &[fetch_from_hidden::<0>]),
        same("fetch_by_barred_0", &[fetch_by_barred::<0>]),
        same("fetch_from_hidden_1", &[fetch_from_hidden::<1>]),
        same("fetch_by_barred_1", &[fetch_by_barred::<1>]),
        same("fetch_of_root_twice", &[fetch_of_root, fetch_of_root]),
        same("fetch_of_root_from_hidden", &[fetch_of_hidden_root]),
        same("fetch_of_root_by_barred", &[fetch_of_root_by_barred::<1>]),
        same("fetch_beside_lent", &[fetch_beside_lent, FETCH]),
        same("fetch_beside_offered", &[fetch_beside_offered]),
        same("fetch_beside_unfound", &[fetch_beside_unfound]),
        same("fetch_by_barred_lender", &[fetch_by_barred_lender]),
    ]
}

/// A rank leaves when it has got all that it wanted.
fn left_by(victim: usize) -> Model {
    let mut scripts: [&[Step]; 2] = [&[FETCH, FETCH]; 2];
    scripts[victim] = &[FETCH, leave];
    Model::new(format!("fetch_leave_{victim}"), Parking, &scripts).check(agreement(1, only(Left, victim)))
}

/// A rank gives up its peer, and may return while that still fetches.
fn time_out(check: usize, victim: usize) -> Model {
    Model::same(format!("fetch_time_out_{check}_of_{victim}"), Parking, 2, &[FETCH])
        .fate(victim, Fate::expires_at(check))
        .check(agreement(0, only(TimedOut, 1 - victim)))
}

/// A rank dies before the others fetch, or after.
fn death(fail_point: &'static str, round: usize, victim: usize) -> Model {
    Model::same(format!("fetch_death_at_{fail_point}_{round}_of_{victim}"), Parking, 2, &[FETCH])
        .fate(victim, Fate::dies_at(fail_point, round))
        .check(agreement(0, only(Died, victim)))
}

/// On which machines each runs, and how far it is searched.
pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        models.extend(two_ranks(waiting).map(bounded));
    }
    for victim in [0, 1] {
        models.push(left_by(victim).bound(2));
        models.extend([1, 2].map(|check| time_out(check, victim).bound(2)));
        for fail_point in IN_A_ROUND {
            models.extend([1, 2].map(|round| death(fail_point, round, victim).bound(2)));
        }
    }
    models.push(Model::same("fetch_once", Blocking, 3, &[FETCH]).bound(2));
    models.push(Model::same("fetch_once", Parking, 3, &[FETCH]).bound(1).long());
    models.push(Model::same("fetch_by_barred_1", Blocking, 3, &[fetch_by_barred::<1>]).bound(1));
    models.push(Model::same("fetch_from_hidden_1", Blocking, 3, &[fetch_from_hidden::<1>]).bound(1));
    models.push(Model::same("fetch_three_ways", Blocking, 3, &[fetch_three_ways]).bound(2));
    models.push(Model::same("fetch_beside_lent", Blocking, 3, &[fetch_beside_lent]).bound(2));
    models.push(Model::same("fetch_beside_unfound", Blocking, 3, &[fetch_beside_unfound]).bound(1));
    models.push(Model::same("fetch_of_root_once", Blocking, 3, &[fetch_of_root]).bound(2));
    models.push(Model::same("fetch_of_root_by_barred", Blocking, 3, &[fetch_of_root_by_barred::<2>]).bound(1));
    models
}

fn bounded(model: Model) -> Model {
    if model.waiting == Blocking { model } else { model.bound(3) }
}

/// What stands in the way of fetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    None,
    /// No other rank can fetch from this one.
    Hidden(usize),
    /// This rank cannot fetch.
    Barred(usize),
}

/// How rank 0 lends its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lent {
    Mapped,
    /// Not all may have it.
    Offered,
    /// The same, and the last rank does not.
    Unfound,
}

/// One rank's side of the call.
struct Fetched<'m> {
    own: usize,
    memory: &'m [[Buffer; 2]],
    obstacle: Obstacle,
    lent: Option<Lent>,
    /// What has come, by either way.
    staged: Blocks,
    refused: bool,
}

/// A number that stands for the address of a rank's memory.
fn address_of(rank: usize) -> Address {
    NonZeroU64::new(100 + rank as u64)
}

impl BlockTransfer for Fetched<'_> {
    fn length(&self, rank: usize) -> usize {
        self.staged.length(rank)
    }

    fn put(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        let mut bytes = vec![0; chunk.len()];
        self.memory[self.own][0].read(|view| view.after(chunk.start).get(0, &mut bytes));
        staging.put(0, &bytes);
    }

    fn copy_own_block(&mut self, _: Range<usize>) {}

    fn get(&mut self, rank: usize, chunk: Range<usize>, staging: Source<'_>) {
        self.staged.get(rank, chunk, staging);
    }

    fn lending(&mut self) -> Option<&mut dyn Lend> {
        Some(self)
    }

    fn fetch(&mut self, rank: usize, chunk: Range<usize>, from: NonZeroU64) -> bool {
        assert!(Some(from) == address_of(rank), "wrong data: rank {rank} is taken to be at {from}");
        assert!(rank != 0 || self.lent.is_none(), "wrong data: fetched what is lent");
        let barred = self.obstacle == Obstacle::Barred(self.own);
        if !barred {
            self.memory[rank][0].read(|view| self.staged.get(rank, chunk.clone(), view.after(chunk.start)));
        }
        !barred
    }

    fn read_in_place(&mut self, rank: usize, place: NonZeroU64) {
        assert!(
            Some(place) == place_of(rank) && self.lent == Some(Lent::Mapped),
            "wrong data: {place} of {rank}"
        );
        let block = 0..self.length(rank);
        self.memory[rank][0].read(|view| self.staged.get(rank, block, view));
    }
}

impl Lend for Fetched<'_> {
    fn address(&self) -> Address {
        address_of(self.own).filter(|_| self.obstacle != Obstacle::Hidden(self.own))
    }

    fn refused(&mut self) {
        self.refused = true;
    }

    fn place(&self) -> Address {
        let offer = match self.lent.filter(|_| self.own == 0)? {
            Lent::Mapped => 0,
            Lent::Offered | Lent::Unfound => OFFER,
        };
        place_of(0).map(|place| place | offer)
    }

    fn find(&mut self, place: NonZeroU64) -> bool {
        assert!(place_of(0).map(|own| own | OFFER) == Some(place), "wrong data: {place} is not offered");
        self.lent == Some(Lent::Offered) || self.own + 1 < self.memory.len()
    }

    fn settle(&mut self, found: bool) {
        assert!(found == (self.lent == Some(Lent::Offered)), "wrong verdict about what is offered");
        self.lent = Some(Lent::Mapped).filter(|_| found);
    }
}
