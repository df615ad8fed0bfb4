//! Protocols that are wrong, each in one place: the search has to reject every one, for its own reason.
//!
//! Each is written twice in one function, wrong and mended. The mended one has to pass, so it is the mistake that
//! is rejected and not the rest.

mod accesses;
mod bells;
mod buffers;
mod classics;
mod endpoints;
mod locks;
mod messages;
mod poison;
mod regions;
mod symmetric_phases;
mod threads;
mod watching;

use crate::harness::known_bad::KnownBad;

pub(crate) fn all() -> Vec<KnownBad> {
    let mut all = Vec::new();
    all.extend(classics::all());
    all.extend(buffers::all());
    all.extend(poison::all());
    all.extend(regions::all());
    all.extend(symmetric_phases::all());
    all.extend(watching::all());
    all.extend(accesses::all());
    all.extend(bells::all());
    all.extend(locks::all());
    all.extend(messages::all());
    all.extend(endpoints::all());
    all.push(threads::call_lock_between_transfers());
    all.push(threads::call_lock_believed_after_a_start());
    all
}
