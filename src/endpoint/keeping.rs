//! What is kept of a connection that has ended: what has come and was not received yet.
//!
//! It is moved to private memory, and that of the connection is given up. Nobody then changes what was sent, and it takes as much memory as it
//! has bytes: the other side may have used all pages of the connection, and may go on with that.

use crate::endpoint::link::{Content, Link};

impl Link {
    /// From now on nothing is in the channels.
    pub(super) fn keep_privately(&mut self) {
        let mut calls = core::mem::take(&mut self.calls);
        calls.answers().for_each(|data| self.make_private(data));
        calls.has_no_buffers();
        self.calls = calls;
        for index in 0..self.arrived.len() {
            self.make_message_private(index);
        }
        self.memory.give_up();
    }

    /// Moves a message to private memory, if it is in a buffer.
    pub(super) fn make_message_private(&mut self, index: usize) {
        let message = &self.arrived[index];
        let (Content::Buffer(mask), bytes) = (&message.content, message.bytes) else { return };
        let mut private = vec![0; bytes].into_boxed_slice();
        self.read(*mask, &mut private);
        self.private += bytes;
        self.arrived[index].content = Content::Private(private);
    }
}
