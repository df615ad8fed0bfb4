//! A pipeline: each rank is a stage, which takes items from the rank before it, changes them, and passes them on. An item
//! and the word that it is there are one `put_signal`. A stage has room for a few items; their sender has as many credits.
//!
//! ```text
//! cargo build --release --example pipeline
//! intranode run -n 4 -- target/release/examples/pipeline
//! ```

use intranode::{Communicator, Error, Signal, Symmetric, Until};

const ITEMS: u64 = 5_000;
/// The length of an item.
const LEN: usize = 512;
/// The items for which each stage has room.
const ROOM: u64 = 4;

/// What each rank has of the pipeline.
struct Stage {
    /// Items that the rank before this one has sent.
    inbox: Symmetric<u64>,
    /// How many it has sent.
    sent: Symmetric<u64>,
    /// How many of this rank's own the next rank has taken out of its inbox.
    taken: Symmetric<u64>,
}

impl Stage {
    fn receive(&self, rank: usize, number: u64, item: &mut [u64]) -> Result<(), Error> {
        self.sent.wait_until(0, Until::Gt(number))?;
        self.inbox.at(rank)?.get((number % ROOM) as usize * LEN, item);
        // The credit comes back: an atomic, which is seen only when the item has been read.
        self.taken.at(rank - 1)?.add(0, 1);
        Ok(())
    }

    fn send(&self, rank: usize, number: u64, item: &[u64]) -> Result<(), Error> {
        // The first items have room in the next rank's inbox. Each later one takes the place of one that was taken out.
        self.taken.wait_until(0, Until::Ge((number + 1).saturating_sub(ROOM)))?;
        let place = (number % ROOM) as usize * LEN;
        self.inbox.put_signal(rank + 1, place, item, &self.sent, 0, Signal::Add(1))
    }
}

fn main() -> Result<(), Error> {
    let comm = Communicator::from_env()?;
    let (rank, last) = (comm.rank(), comm.size() - 1);
    let stage = Stage {
        inbox: comm.symmetric(ROOM as usize * LEN)?,
        sent: comm.symmetric(1)?,
        taken: comm.symmetric(1)?,
    };

    let mut item = [0; LEN];
    for number in 0..ITEMS {
        if rank > 0 {
            stage.receive(rank, number, &mut item)?;
            // A stage's work.
            item.iter_mut().for_each(|value| *value = value.wrapping_mul(3) + rank as u64);
        } else {
            item.fill(number);
        }
        if rank < last {
            stage.send(rank, number, &item)?;
        } else {
            let expected = (1..=last as u64).fold(number, |value, stage| value.wrapping_mul(3) + stage);
            assert!(item == [expected; LEN], "item {number} is {item:?}, and not {expected}");
        }
    }
    // A rank that left earlier would end the waits of the others.
    comm.barrier()?;
    if rank == last {
        println!("{ITEMS} items of {LEN} numbers, {last} stages: all items have come through, in order");
    }
    comm.leave()
}
