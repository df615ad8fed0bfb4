//! Programs with a race, to show that the sanitizer finds it: the library's protocols over a platform in which one ordering
//! is missing. `.ci/tsan` requires a report for each of them, and none if no ordering is missing.

use std::time::Duration;

use intranode::protocol::allreduce::Shape;
use intranode::protocol::{Call, Generation};

use crate::Program;
use crate::data::{Blocks, Numbers, Slots, combine};
use crate::machine::{Heap, Machine};

pub(crate) const PROGRAMS: &[Program] = &[
    ("sound: blocks", || blocks(None)),
    ("sound: numbers", || numbers(None)),
    ("sound: a round", || round(None)),
    ("planted: blocks without the release", || blocks(Some("arrive"))),
    ("planted: blocks without the acquire", || blocks(Some("spin"))),
    ("planted: numbers without the release", || numbers(Some("arrive"))),
    ("planted: numbers without the acquire", || numbers(Some("spin"))),
    ("planted: a round without the release", || round(Some("arrive"))),
    ("planted: a round without the acquire", || round(Some("spin"))),
];

const RANKS: usize = 3;
const CHUNK: usize = 64 << 10;

/// More than a staging buffer.
const LEN: usize = 20_000;

/// The sanitizer reports no race with a thread that has ended. In all rounds but the last, none has.
const ROUNDS: usize = 100;

fn job(weakened: Option<&'static str>) -> (Heap, Machine) {
    (Heap::new(RANKS, CHUNK, Generation::new(0)), Machine { patience: Duration::from_secs(60), weakened })
}

fn call(length: usize) -> Call {
    Call { operation: 1, length: length as u64, ..Call::default() }
}

/// More than one round of them goes through staging.
fn blocks(weakened: Option<&'static str>) {
    let (heap, machine) = job(weakened);
    heap.run(&machine, None, |rank, member, _| {
        let all = vec![vec![0; 8 * LEN]; RANKS];
        let mut blocks = Blocks { rank, own: vec![rank as u8; 8 * LEN], all };
        member.transfer(&call(8 * LEN), &mut blocks).expect("all come");
        assert!(blocks.all.iter().enumerate().all(|(rank, block)| *block == vec![rank as u8; 8 * LEN]));
    });
}

fn numbers(weakened: Option<&'static str>) {
    let (heap, machine) = job(weakened);
    heap.run(&machine, None, |rank, member, _| {
        let mut numbers = Numbers { own: Some(vec![rank as u64; LEN]), result: vec![0; LEN] };
        member.reduction(&call(LEN), Shape::All, 0, &mut numbers).expect("all come");
        let expected = (0..RANKS as u64).reduce(combine).expect("there are ranks");
        assert!(numbers.result.iter().all(|number| *number == expected));
    });
}

fn round(weakened: Option<&'static str>) {
    let (heap, machine) = job(weakened);
    let slots = Slots::new(RANKS);
    heap.run(&machine, None, |rank, member, _| {
        for number in 1..=ROUNDS as u64 {
            slots.write(rank, number);
            member.round().expect("all come");
            assert!(slots.all(number));
            // No rank writes before all have read.
            member.round().expect("all come");
        }
    });
}
