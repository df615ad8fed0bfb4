//! Steps on exchanges.

use std::ops::Range;

use intranode::{Error, Exchange};

use crate::memory::Name;
use crate::program::MAX_RANKS;
use crate::stamp::Stamp;
use crate::worker::Worker;

/// The result of a step; None: the slot was empty.
type Done = Option<Result<(), Error>>;

/// An exchange of this rank.
pub(crate) struct HeldExchange {
    name: Name,
    exchange: Exchange<u64>,
    own: Range<usize>,
    written: Option<Stamp>,
}

impl Worker<'_> {
    pub(crate) fn make_exchange(&self, slot: usize, to: usize, counts: &[usize; MAX_RANKS]) -> Done {
        let comm = self.comm(slot)?;
        let counts = &counts[..comm.comm.size()];
        let created =
            self.create(&comm, &format!("exchange of {counts:?}"), || comm.comm.exchange::<u64>(counts));
        Some(created.map(|(exchange, name)| {
            let start = counts[..name.rank].iter().sum();
            let own = start..start + counts[name.rank];
            self.record_ownership(&name, std::slice::from_ref(&own), Stamp::NONE);
            self.rank.exchanges[to].put(HeldExchange { name, exchange, own, written: None });
        }))
    }

    pub(crate) fn share(&self, slot: usize, writes: bool, rereads: u8) -> Done {
        let HeldExchange { mut name, mut exchange, own, mut written } = self.rank.exchanges[slot].take()?;
        self.check(&name, exchange.own(), own.start, written);
        if writes {
            let stamp = self.stamp();
            if written.is_none() {
                self.record_contents(&name, std::slice::from_ref(&own), std::iter::once(exchange.own()));
            }
            self.record_ownership(&name, std::slice::from_ref(&own), stamp);
            self.write_and_check(&name, exchange.own(), own.start, stamp, rereads);
            written = Some(stamp);
        }
        let shared = self.change(&name, "share", || exchange.share());
        let result = match shared {
            Ok(values) => {
                name.epoch += 1;
                self.read_and_check(&name, values, rereads);
                written = None;
                Ok(())
            }
            Err(error) => {
                let owned = exchange.own().len();
                let expected = if error.is_fatal() { 0 } else { own.len() };
                self.ensure(owned == expected, || format!("{}: owns {owned} after {error}", name.memory));
                self.check(&name, exchange.own(), own.start, written);
                Err(error)
            }
        };
        self.rank.exchanges[slot].put(HeldExchange { name, exchange, own, written });
        Some(result)
    }
}
