//! The protocols over the heap, for checkers that do not support shared mappings. Under Miri (`make miri`) it checks data
//! races, weak memory and pointers; without, the results.

mod data;
mod machine;

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use data::{Blocks, Numbers, Slots, combine};
use intranode::protocol::allreduce::Shape;
use intranode::protocol::{Call, CauseKind, Failure, Generation, Member, claim};
use machine::{Heap, Machine, WAKES};

const MACHINE: Machine = Machine { patience: Duration::from_secs(60), weakened: None };

/// The bytes of a staging buffer.
const CHUNK: usize = 512;

/// Shortly before the generation wraps.
const START: Generation = Generation::new(u32::MAX - 3);

fn call(operation: u8, length: usize) -> Call {
    Call { operation, length: length as u64, ..Call::default() }
}

fn heap(ranks: usize) -> Heap {
    Heap::new(ranks, CHUNK, START)
}

#[test]
fn what_is_written_before_a_round_can_be_read_after_it() {
    let groups: [Option<&[usize]>; 3] = [None, Some(&[0, 0, 2, 2, 2]), Some(&[0, 1, 0, 1, 0])];
    for leaders in groups {
        let slots = Slots::new(5);
        heap(5).run(&MACHINE, leaders, |rank, member, barrier| {
            for turn in 1..10 {
                slots.write(rank, turn);
                barrier.enter(member, &call(1, 0)).expect("all come");
                assert!(slots.all(turn));
                barrier.enter(member, &call(2, 0)).expect("all come");
            }
        });
    }
}

#[test]
fn what_is_published_can_be_read_and_what_is_taken_back_can_be_written() {
    let slots = Slots::new(3);
    heap(3).run(&MACHINE, None, |rank, member, barrier| {
        for epoch in 1..10 {
            slots.write(rank, epoch);
            member.publish(barrier, &call(1, 0), true).expect("all come");
            assert!(slots.all(epoch));
            member.reclaim(barrier, &call(2, 0), true).expect("all come");
        }
    });
}

#[test]
fn blocks_of_any_length_reach_every_rank() {
    // Inline, in one round, in several; from all ranks, from some, from one.
    for lengths in [[0, 0, 0], [3, 96, 0], [1, 97, 300], [2000, 0, 0], [1000, 1, 1777]] {
        let byte = |rank: usize, index: usize| (index * 7 + 100 * rank) as u8;
        let block = |rank: usize| (0..lengths[rank]).map(|index| byte(rank, index)).collect::<Vec<u8>>();
        let got = heap(3).run(&MACHINE, None, |rank, member, _| {
            let all = lengths.map(|len| vec![0; len]).to_vec();
            let mut blocks = Blocks { rank, own: block(rank), all };
            member.transfer(&call(1, lengths.iter().sum()), &mut blocks).expect("all come");
            blocks.all
        });
        assert!(got.iter().all(|all| *all == [block(0), block(1), block(2)]), "{lengths:?}");
    }
}

#[test]
fn reductions_of_any_length_go_in_rank_order() {
    for (ranks, len) in [(2, 3), (3, 20), (5, 40), (3, 200), (5, 333)] {
        let number = |rank: usize, index: usize| (1000 * rank + index) as u64;
        let numbers = |rank: usize| (0..len).map(|index| number(rank, index)).collect::<Vec<u64>>();
        let column = |index: usize| (0..ranks).map(move |rank| number(rank, index)).reduce(combine);
        let expected: Vec<u64> = (0..len).filter_map(column).collect();
        for (in_place, slices_from) in [(false, 0), (true, 0), (false, usize::MAX), (true, usize::MAX)] {
            let results = heap(ranks).run(&MACHINE, None, |rank, member, _| {
                let mut numbers = match in_place {
                    true => Numbers { own: None, result: numbers(rank) },
                    false => Numbers { own: Some(numbers(rank)), result: vec![0; len] },
                };
                member.reduction(&call(1, len), Shape::All, slices_from, &mut numbers).expect("all come");
                numbers.result
            });
            assert!(results.iter().all(|result| *result == expected), "{ranks} ranks, {len} numbers");
        }
    }
}

#[test]
fn who_calls_something_else_or_refuses_is_named_and_all_go_on() {
    for leaders in [None, Some(&[0, 0, 2][..])] {
        heap(3).run(&MACHINE, leaders, |rank, member, barrier| {
            let calls: Vec<Call> = [1, 1, 2].iter().map(|operation| call(*operation, 7)).collect();
            assert_eq!(barrier.enter(member, &calls[rank]), Err(Failure::Mismatch(calls)));
            match rank {
                1 => assert_eq!(member.refuse(&call(1, 7)), Ok(())),
                _ => assert_eq!(barrier.enter(member, &call(1, 7)), Err(Failure::Refused(1))),
            }
            assert_eq!(barrier.enter(member, &call(1, 7)), Ok(()));
        });
    }
}

#[test]
fn all_learn_who_has_left() {
    for leaders in [None, Some(&[0, 0, 0][..])] {
        let ends = heap(3).run(&MACHINE, leaders, |rank, member, barrier| {
            barrier.enter(member, &call(1, 0)).expect("all come");
            if rank == 1 { member.leave().map_err(Failure::from) } else { barrier.enter(member, &call(1, 0)) }
        });
        for end in [&ends[0], &ends[2]] {
            let Err(Failure::Dead(Some(cause))) = end else { panic!("{end:?}") };
            assert_eq!((cause.kind, cause.rank), (CauseKind::Left, 1));
        }
    }
}

#[test]
fn ranks_that_leave_one_after_the_other_wake_the_sleepers_once() {
    let heap = heap(64);
    for rank in 0..64 {
        let turn = AtomicU32::new(0);
        let segment = heap.segment();
        Member::new(&MACHINE, &segment, &heap.staging, rank, START, &turn).leave().expect("no rank is stopped");
    }
    assert_eq!(WAKES.get(), heap.segment().words().count());
}

#[test]
fn all_learn_who_does_not_come() {
    // Miri is slow.
    let patience = Duration::from_secs(if cfg!(miri) { 20 } else { 1 });
    let machine = Machine { patience, ..MACHINE };
    let ends = heap(3).run(&machine, None, |rank, member, barrier| {
        // So that the others arrive at about the same time.
        barrier.enter(member, &call(1, 0)).expect("all come");
        if rank == 1 { Ok(()) } else { barrier.enter(member, &call(1, 0)) }
    });
    for end in [&ends[0], &ends[2]] {
        let Err(Failure::Dead(Some(cause))) = end else { panic!("{end:?}") };
        assert_eq!((cause.kind, cause.rank), (CauseKind::TimedOut, 1));
    }
}

#[test]
fn a_rank_is_taken_once() {
    let heap = heap(2);
    let claims = heap.run(&MACHINE, None, |rank, _, _| claim(&MACHINE, &heap.segment(), 1, 10 + rank as u32));
    assert_eq!(claims.iter().filter(|claim| claim.is_ok()).count(), 1, "{claims:?}");
}
