//! The transport of a communicator, for `INTRANODE_DEBUG`.

use crate::rank::rank_state::RankState;
use crate::segment::platform::Wait;
use crate::tuning::{ALLTOALL_SINGLE_COPY_FROM, SCATTER_SINGLE_COPY_FROM, SINGLE_COPY_FROM};

impl RankState {
    /// Writes it to standard error, if `INTRANODE_DEBUG` is set.
    pub(crate) fn debug_transport(&self) {
        if self.settings.debug {
            self.settings.debug(&self.transport());
        }
    }

    fn transport(&self) -> String {
        let (layout, ranks) = (self.mapped.layout(), self.size());
        let wait = match self.platform.wait {
            #[cfg(target_os = "linux")]
            Wait::Futex => "a futex",
            Wait::Pthread(_) => "a process-shared condition variable",
            #[cfg(target_os = "linux")]
            Wait::Socket(_) => "a socket",
            Wait::Threads => "an address of this process",
        };
        let barrier = if self.groups.is_some() { "hierarchical" } else { "flat" };
        let blocks = match self.cma_peers {
            Some(_) => {
                let [gathered, exchanged, scattered] =
                    [SINGLE_COPY_FROM, ALLTOALL_SINGLE_COPY_FROM, SCATTER_SINGLE_COPY_FROM]
                        .map(|from| self.single_copy_from(from));
                let allgatherv = match self.fetches_for_all() {
                    true => format!("of an allgatherv has {gathered} bytes, "),
                    false => String::new(),
                };
                format!(
                    "single copy (CMA) of blocks that stay as they are, and where every block {allgatherv}of an alltoall \
                     has {exchanged} bytes, of a scatter {scattered}"
                )
            }
            None => "all data through staging".to_owned(),
        };
        let messages = if self.system_copies_messages() { "by single copy" } else { "through buffers" };
        let (chunk, len) = (layout.chunk(), layout.len());
        format!(
            "{}, rank {} of {ranks}: {blocks}; long messages {messages}; barriers {barrier}; sleeps on {wait}; chunks of {chunk} \
             bytes in a segment of {len} bytes",
            self.job, self.rank
        )
    }
}
