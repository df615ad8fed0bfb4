//! Reductions of what ranks have in memory that all map: the right result, beside contributions that go through staging; and
//! no rank's memory changes as long as another may read it. loom checks every access to that memory against all others.

use std::num::NonZeroU64;
use std::ops::Range;

use intranode::copy::{Sink, Source, TERMS, Term};
use intranode::protocol::CauseKind::{Died, Left};
use intranode::protocol::allreduce::{Reduction, Shape};
use intranode::protocol::block_transfer::{Address, Lend};
use intranode::protocol::{Failure, Payload};

use super::faults::leave;
use super::in_place::{Lent, place_of, searched};
use crate::harness::cells::{Buffer, FULL};
use crate::harness::data::{Fold, combine, folded, numbers};
use crate::harness::machine::Fate;
use crate::harness::model::Model;
use crate::harness::rank::{Operation, Rank, Step};
use crate::harness::verdict::{agreement, only};
use crate::harness::waiting::Waiting::{self, Blocking, Parking};

/// How numbers are reduced.
#[derive(Clone, Copy)]
struct Kind {
    shape: Shape,
    slices_from: usize,
    /// Whether what a rank sends stays as it is.
    keeps: bool,
}

const SLICES: Kind = Kind { shape: Shape::All, slices_from: 0, keeps: true };
/// Each rank that gets a result folds all of it.
const WHOLE: Kind = Kind { slices_from: usize::MAX, ..SLICES };
const ROOTED: Kind = Kind { shape: Shape::Root(0), ..WHOLE };
const SCAN: Kind = Kind { shape: Shape::Inclusive, ..WHOLE };
const OVER: Kind = Kind { keeps: false, ..WHOLE };

/// Every rank sends `N` numbers, must get the fold of all, and changes its own memory as soon as the call returns. `MASK`: a bit
/// for each rank whose numbers are in place.
fn allreduce<const MASK: usize, const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    reduce_of(rank, SLICES, MASK, N, None)
}

/// The same where the numbers in place are only offered. `LACKING`: a bit for each rank that does not have them.
fn offered<const MASK: usize, const N: usize, const LACKING: usize>(
    rank: &mut Rank<'_>,
) -> Result<(), Failure> {
    reduce_of(rank, SLICES, MASK, N, Some(LACKING))
}

fn whole<const MASK: usize, const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    reduce_of(rank, WHOLE, MASK, N, None)
}

fn whole_offered<const MASK: usize, const N: usize, const LACKING: usize>(
    rank: &mut Rank<'_>,
) -> Result<(), Failure> {
    reduce_of(rank, WHOLE, MASK, N, Some(LACKING))
}

/// Rank 0 alone gets the result.
fn rooted<const MASK: usize, const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    reduce_of(rank, ROOTED, MASK, N, None)
}

/// Each rank gets that of the ranks up to itself.
fn scanned<const MASK: usize, const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    reduce_of(rank, SCAN, MASK, N, None)
}

/// The result takes the place of what is sent, where all ranks could read that in place: it must be staged.
fn over(rank: &mut Rank<'_>) -> Result<(), Failure> {
    reduce_of(rank, OVER, 0b11, FULL, None)
}

fn reduce_of(
    rank: &mut Rank<'_>,
    Kind { shape, slices_from, keeps }: Kind,
    mask: usize,
    count: usize,
    lacking: Option<usize>,
) -> Result<(), Failure> {
    let sent = numbers(rank.nth(), &vec![count; rank.size()]);
    let own = rank.number;
    let offer = lacking.map(|ranks| ranks >> own & 1 == 0);
    let in_place = mask >> own & 1 == 1;
    if in_place && keeps {
        rank.write_block(0, &sent[own]);
    }
    let staged = Fold::of(&sent[own]);
    let mut sums = Sums { memory: rank.blocks(), lent: Lent::new(own, in_place, offer), keeps, staged };
    rank.call(Operation::InPlace.call(count, mask), |member, call| {
        member.reduction(call, shape, slices_from, &mut sums)
    })?;
    if in_place {
        rank.write_block(0, &[]);
    }
    let terms = match shape {
        Shape::Root(root) if own != root => return Ok(()),
        Shape::Inclusive => own + 1,
        _ => sent.len(),
    };
    let result = sums.staged.result;
    assert!(result == folded(&sent[..terms]), "wrong data: rank {own} got {result:?}");
    Ok(())
}

/// Two ranks, whose result takes the place of what they send: each half in a cell of its own.
fn allreduce_in_place(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let sent = numbers(rank.nth(), &[FULL; 2]);
    let own = rank.number;
    for (index, half) in halves().into_iter().enumerate() {
        rank.write_block(index, &sent[own][half]);
    }
    let mut halves = Halves { own, memory: rank.blocks() };
    rank.call(Operation::InPlace.call(FULL, 0), |member, call| {
        member.reduction(call, Shape::All, 0, &mut halves)
    })?;
    let result = halves.all();
    assert!(result == folded(&sent), "wrong data: rank {own} got {result:?}");
    Ok(())
}

const ALL: Step = allreduce::<0b11, FULL>;
const FIRST: Step = allreduce::<0b01, FULL>;
const WHOLE_ALL: Step = whole::<0b11, FULL>;
const WHOLE_FIRST: Step = whole::<0b01, FULL>;
const TWO_CHUNKS: Step = allreduce::<0b11, { FULL + 1 }>;

fn two_ranks(waiting: Waiting) -> [Model; 7] {
    let same = |name: &str, script: &[Step]| Model::same(name, waiting, 2, script);
    [
        same("reduced_in_place", &[ALL]),
        same("reduced_in_place_one_of_two", &[FIRST]),
        same("reduced_in_place_two_chunks", &[TWO_CHUNKS]),
        same("reduced_in_place_twice", &[FIRST, allreduce::<0b10, FULL>]),
        same("reduced_in_the_place_of_the_result", &[allreduce_in_place]),
        same("reduced_offer_found", &[offered::<0b01, FULL, 0b00>]),
        same("reduced_offer_not_found", &[offered::<0b01, FULL, 0b10>]),
    ]
}

/// Each rank that gets a result folds all of it.
fn whole_of_two(waiting: Waiting) -> [Model; 8] {
    let same = |name: &str, script: &[Step]| Model::same(name, waiting, 2, script);
    [
        same("reduced_whole_in_place", &[WHOLE_ALL]),
        same("reduced_whole_in_place_one_of_two", &[WHOLE_FIRST]),
        same("reduced_whole_in_place_two_chunks", &[whole::<0b10, { FULL + 1 }>]),
        // Rank 0 reads its own numbers alone: it does not lend them.
        same("reduced_whole_in_place_by_the_root", &[rooted::<0b10, { FULL + 1 }>]),
        same("reduced_whole_in_place_scanned", &[scanned::<0b01, FULL>, whole::<0b10, FULL>]),
        same("reduced_whole_over_what_is_sent", &[over]),
        same("reduced_whole_offer_found", &[whole_offered::<0b01, FULL, 0b00>]),
        same("reduced_whole_offer_not_found", &[whole_offered::<0b01, FULL, 0b10>]),
    ]
}

/// A rank leaves when it has got all that it wanted.
fn whole_left_by(victim: usize) -> Model {
    let mut scripts: [&[Step]; 2] = [&[WHOLE_ALL, WHOLE_ALL]; 2];
    scripts[victim] = &[WHOLE_ALL, leave];
    Model::new(format!("reduced_whole_in_place_leave_{victim}"), Parking, &scripts)
        .check(agreement(1, only(Left, victim)))
}

/// A rank dies before the others read, or after.
fn whole_death(fail_point: &'static str, round: usize, victim: usize) -> Model {
    let name = format!("reduced_whole_in_place_death_at_{fail_point}_{round}_of_{victim}");
    Model::same(name, Parking, 2, &[WHOLE_ALL])
        .fate(victim, Fate::dies_at(fail_point, round))
        .check(agreement(0, only(Died, victim)))
}

/// A rank leaves when it has got all that it wanted.
fn left_by(victim: usize) -> Model {
    let mut scripts: [&[Step]; 2] = [&[ALL, ALL]; 2];
    scripts[victim] = &[ALL, leave];
    Model::new(format!("reduced_in_place_leave_{victim}"), Parking, &scripts)
        .check(agreement(1, only(Left, victim)))
}

/// A rank dies before the others read, or after.
fn death(fail_point: &'static str, round: usize, victim: usize) -> Model {
    Model::same(format!("reduced_in_place_death_at_{fail_point}_{round}_of_{victim}"), Parking, 2, &[FIRST])
        .fate(victim, Fate::dies_at(fail_point, round))
        .check(agreement(0, only(Died, victim)))
}

pub(crate) fn models() -> Vec<Model> {
    let one_of_three = Model::same("reduced_in_place_one_of_three", Blocking, 3, &[allreduce::<0b010, FULL>]);
    let mut models = searched(two_ranks, left_by, death, one_of_three);
    let of_three = &[scanned::<0b011, FULL>, whole::<0b010, FULL>];
    let whole_of_three = Model::same("reduced_whole_in_place_of_three", Blocking, 3, of_three);
    models.extend(searched(whole_of_two, whole_left_by, whole_death, whole_of_three));
    // One of those that would read does not have it, and the other one has.
    let by_one: Step = offered::<0b010, FULL, 0b100>;
    models.push(Model::same("reduced_offer_not_found_by_one", Blocking, 3, &[by_one]).bound(1));
    models
}

fn rank_at(place: NonZeroU64) -> usize {
    usize::try_from(place.get()).expect("a small number") - 200
}

fn numbers_at(view: &Source<'_>, range: Range<usize>) -> Vec<u64> {
    range.map(|index| u64::from_ne_bytes(view.array(8 * index))).collect()
}

/// Folds contributions into what is there, or from the first on.
fn fold_into(target: &mut [u64], begin: bool, terms: impl Iterator<Item = Vec<u64>>) {
    for (index, values) in terms.enumerate() {
        for (sum, value) in target.iter_mut().zip(values) {
            *sum = if begin && index == 0 { value } else { combine(*sum, value) };
        }
    }
}

/// One rank's side of a call whose result is elsewhere.
struct Sums<'m> {
    memory: &'m [[Buffer; 2]],
    lent: Lent,
    keeps: bool,
    staged: Fold<'m>,
}

impl Reduction for Sums<'_> {
    fn elements(&self) -> usize {
        self.staged.elements()
    }

    fn element_size(&self) -> usize {
        size_of::<u64>()
    }

    fn contribute(&mut self, chunk: Range<usize>, staging: Sink<'_>) {
        assert!(!(self.lent.in_place && self.keeps), "wrong data: what is in place is staged");
        self.staged.contribute(chunk, staging);
    }

    fn keeps_contribution(&self) -> bool {
        self.keeps
    }

    fn lending(&mut self) -> Option<&mut dyn Lend> {
        Some(&mut self.lent)
    }

    fn fold(&mut self, chunk: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>) {
        self.fold_in_place(chunk, begin, (terms, &[None; TERMS][..terms.len()]), staging);
    }

    fn fold_in_place(
        &mut self,
        chunk: Range<usize>,
        begin: bool,
        (terms, places): (&[Term<'_>], &[Address]),
        staging: Option<Sink<'_>>,
    ) {
        let Sums { memory, staged, .. } = self;
        let own = &staged.own[chunk.clone()];
        let lacks = self.lent.lacks() && places.iter().any(Option::is_some);
        assert!(!lacks, "wrong data: numbers are read by a rank that does not have them");
        let values = |(term, place): (&Term<'_>, &Address)| match (term, place) {
            (_, Some(place)) => memory[rank_at(*place)][0].read(|view| numbers_at(&view, chunk.clone())),
            (Term::Own, None) => own.to_vec(),
            (Term::Staged(view), None) => numbers_at(view, 0..chunk.len()),
        };
        fold_into(&mut staged.result[chunk.clone()], begin, terms.iter().zip(places).map(values));
        staging
            .into_iter()
            .for_each(|mut staging| staging.put(0, bytemuck::cast_slice(&staged.result[chunk.clone()])));
    }

    fn collect(&mut self, chunk: Range<usize>, staging: Source<'_>) {
        self.staged.collect(chunk, staging);
    }
}

/// One rank's side of a call whose result takes the place of the contribution.
struct Halves<'m> {
    own: usize,
    memory: &'m [[Buffer; 2]],
}

/// The slice of each of two ranks.
fn halves() -> [Range<usize>; 2] {
    let middle = FULL.div_ceil(2);
    [0..middle, middle..FULL]
}

impl Halves<'_> {
    fn half(&self, rank: usize, slice: &Range<usize>) -> &Buffer {
        let half = halves().iter().position(|half| half == slice).expect("a rank's slice");
        &self.memory[rank][half]
    }

    fn write(&self, slice: &Range<usize>, numbers: &[u64]) {
        self.half(self.own, slice).write(|mut view| view.put(0, bytemuck::cast_slice(numbers)));
    }

    fn all(&self) -> Vec<u64> {
        let read =
            |half: Range<usize>| self.half(self.own, &half).read(|view| numbers_at(&view, 0..half.len()));
        halves().into_iter().flat_map(read).collect()
    }
}

impl Reduction for Halves<'_> {
    fn elements(&self) -> usize {
        FULL
    }

    fn element_size(&self) -> usize {
        size_of::<u64>()
    }

    fn contribute(&mut self, _: Range<usize>, _: Sink<'_>) {
        panic!("wrong data: what is in place is staged");
    }

    fn keeps_contribution(&self) -> bool {
        false
    }

    fn lending(&mut self) -> Option<&mut dyn Lend> {
        Some(self)
    }

    fn fold(&mut self, _: Range<usize>, _: bool, _: &[Term<'_>], _: Option<Sink<'_>>) {
        panic!("wrong data: nothing is in place");
    }

    fn fold_in_place(
        &mut self,
        chunk: Range<usize>,
        begin: bool,
        (terms, places): (&[Term<'_>], &[Address]),
        staging: Option<Sink<'_>>,
    ) {
        let values = |(term, place): (&Term<'_>, &Address)| {
            let rank = match (term, place) {
                (_, Some(place)) => rank_at(*place),
                (Term::Own, None) => self.own,
                (Term::Staged(_), None) => panic!("wrong data: nothing is staged"),
            };
            self.half(rank, &chunk).read(|view| numbers_at(&view, 0..chunk.len()))
        };
        let mut result = vec![0; chunk.len()];
        fold_into(&mut result, begin, terms.iter().zip(places).map(values));
        self.write(&chunk, &result);
        staging.into_iter().for_each(|mut staging| staging.put(0, bytemuck::cast_slice(&result)));
    }

    fn collect(&mut self, chunk: Range<usize>, staging: Source<'_>) {
        self.write(&chunk, &numbers_at(&staging, 0..chunk.len()));
    }
}

impl Lend for Halves<'_> {
    fn place(&self) -> Address {
        place_of(self.own)
    }

    fn find(&mut self, place: NonZeroU64) -> bool {
        panic!("wrong data: {place} is not offered");
    }

    fn settle(&mut self, _: bool) {
        panic!("wrong data: nothing is offered");
    }
}
