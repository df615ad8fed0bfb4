//! The data plane: every byte that a call moves between a rank's own memory and shared memory moves here.
//!
//! | file | question that it answers |
//! | --- | --- |
//! | `view` | how is staging seen by those who may read or write it? |
//! | `publish` | how are bytes stored that other cores will read? |
//! | `rotation` | which buffers take what is long? |
//! | `policy` | which stores does a call use? |
//! | `fold` | how are contributions combined in one pass? |
//! | `lines` | which loads and stores move a line? |
//! | `lent` | how is memory lent for the time of a call? |
//! | `relaxed` | how are bytes moved that others may access meanwhile? |
//! | `strings` | how does the string instruction move them? |
//! | `raw` | how are buffers copied that other threads may write meanwhile? |
//! | `dispatch` | how does code get compiled for the widest vectors? |
//! | `cpu` | what is this processor good at? |

pub(crate) mod cpu;
pub(crate) mod dispatch;
mod fold;
#[cfg(target_os = "linux")]
pub(crate) mod lent;
pub(crate) mod lines;
pub(crate) mod policy;
pub(crate) mod publish;
pub(crate) mod raw;
pub(crate) mod relaxed;
pub(crate) mod rotation;
#[cfg(target_arch = "x86_64")]
mod strings;
mod view;

pub use fold::{fold, fold_raw, fold_short};
pub(crate) use fold::{fold_short_with, fold_with};
pub use view::{Sink, Source, TERMS, Term};

/// Bytes to be copied in tests: repeated rather than made one by one, for which Miri would take minutes.
#[cfg(test)]
fn pattern(len: usize) -> Vec<u8> {
    let period: Vec<u8> = (0..251u32).map(|index| (index * 7 % 251) as u8).collect();
    let mut bytes = period.repeat(len.div_ceil(period.len()));
    bytes.truncate(len);
    bytes
}
