//! The turns of an exchange.

use std::ops::Range;

use intranode::{Error, Exchange};

use crate::memory::Name;
use crate::program::MOST_RANKS;
use crate::stamp::Stamp;
use crate::worker::Worker;

/// What becomes of a step: nothing, where there was nothing to do it with.
type Done = Option<Result<(), Error>>;

/// An exchange of this rank.
pub(crate) struct Block {
    name: Name,
    exchange: Exchange<u64>,
    own: Range<usize>,
    written: Option<Stamp>,
}

impl Worker<'_> {
    pub(crate) fn make_exchange(&self, slot: usize, to: usize, counts: &[usize; MOST_RANKS]) -> Done {
        let comm = self.comm(slot)?;
        let counts = &counts[..comm.comm.size()];
        let made = self.make(&comm, &format!("exchange of {counts:?}"), || comm.comm.exchange::<u64>(counts));
        Some(made.map(|(exchange, name)| {
            let start = counts[..name.rank].iter().sum();
            let own = start..start + counts[name.rank];
            self.owns(&name, std::slice::from_ref(&own), Stamp::NOBODY);
            self.rank.exchanges[to].put(Block { name, exchange, own, written: None });
        }))
    }

    pub(crate) fn turn(&self, slot: usize, writes: bool, looks: u8) -> Done {
        let Block { mut name, mut exchange, own, mut written } = self.rank.exchanges[slot].take()?;
        self.check(&name, exchange.own(), own.start, written);
        if writes {
            let stamp = self.stamp();
            if written.is_none() {
                self.found(&name, std::slice::from_ref(&own), std::iter::once(exchange.own()));
            }
            self.owns(&name, std::slice::from_ref(&own), stamp);
            self.hold(&name, exchange.own(), own.start, stamp, looks);
            written = Some(stamp);
        }
        let shared = self.change(&name, "share", || exchange.share());
        let result = match shared {
            Ok(values) => {
                name.epoch += 1;
                self.look(&name, values, looks);
                written = None;
                Ok(())
            }
            Err(error) => {
                let left = exchange.own().len();
                let expected = if error.is_fatal() { 0 } else { own.len() };
                self.ensure(left == expected, || format!("{}: owns {left} after {error}", name.memory));
                self.check(&name, exchange.own(), own.start, written);
                Err(error)
            }
        };
        self.rank.exchanges[slot].put(Block { name, exchange, own, written });
        Some(result)
    }
}
