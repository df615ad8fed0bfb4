//! Blocks that others fetch from the memory of the rank that sends them: a cell, and loom checks every access.

use std::num::NonZeroU64;
use std::ops::Range;

use intranode::copy::{Sink, Source};
use intranode::protocol::block_transfer::Address;
use intranode::protocol::block_transfer::BlockTransfer;
use intranode::protocol::{Call, Failure, Member, Payload};

use crate::cells::{Bytes, STAGING};
use crate::program::{FULL, numbers_of};
use crate::world::{Rank, World};

/// Where a rank keeps what it sends.
pub(crate) type Memory = Bytes<{ STAGING.chunk }>;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Nothing,
    /// Nothing can be fetched from this rank.
    Hidden(usize),
    /// This rank can not fetch.
    Barred(usize),
}

/// One rank's side of a call.
struct Side<'w> {
    world: &'w World,
    rank: usize,
    obstacle: Obstacle,
    /// What has come, by rank.
    got: Vec<Vec<u64>>,
    refused: bool,
}

/// Every rank sends [`FULL`] numbers to all. After the call it does what it likes with its memory.
pub(crate) fn gather(
    nth: usize,
    rank: usize,
    member: &mut Member<'_, Rank>,
    call: &Call,
    world: &World,
    obstacle: Obstacle,
) -> Result<(), Failure> {
    let mine = numbers_of(nth, rank, FULL);
    world.memory[rank].write(|mut view| view.put(0, bytemuck::cast_slice(&mine)));
    let got = vec![vec![0; FULL]; member.size()];
    let mut side = Side { world, rank, obstacle, got, refused: false };
    member.transfer(call, &mut side)?;
    world.memory[rank].write(|_| ());
    for of in (0..member.size()).filter(|of| *of != rank) {
        let (got, expected) = (&side.got[of], numbers_of(nth, of, FULL));
        assert!(*got == expected, "wrong data: rank {rank} got {got:?} from {of}");
    }
    assert!(side.refused == (obstacle != Obstacle::Nothing), "wrong verdict about {obstacle:?}");
    Ok(())
}

fn address_of(rank: usize) -> Address {
    NonZeroU64::new(100 + rank as u64)
}

impl BlockTransfer for Side<'_> {
    fn length(&self, _: usize) -> usize {
        FULL * 8
    }

    fn put(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        self.world.memory[self.rank].read(|view| {
            let mut mine = [0; FULL * 8];
            view.get(0, &mut mine);
            staging.put(0, &mine[part]);
        });
    }

    fn copy_own_block(&mut self, _: Range<usize>) {}

    fn get(&mut self, rank: usize, part: Range<usize>, staging: Source<'_>) {
        staging.get(0, &mut bytemuck::cast_slice_mut(&mut self.got[rank])[part]);
    }

    fn by_single_copy(&self) -> bool {
        true
    }

    fn address(&self) -> Address {
        address_of(self.rank).filter(|_| self.obstacle != Obstacle::Hidden(self.rank))
    }

    fn fetch(&mut self, rank: usize, part: Range<usize>, from: NonZeroU64) -> bool {
        assert!(Some(from) == address_of(rank), "wrong data: rank {rank} is taken to be at {from}");
        let barred = self.obstacle == Obstacle::Barred(self.rank);
        if !barred {
            let target = &mut bytemuck::cast_slice_mut(&mut self.got[rank])[part.clone()];
            self.world.memory[rank].read(|view| view.after(part.start).get(0, target));
        }
        !barred
    }

    fn refused(&mut self) {
        self.refused = true;
    }
}
