//! Whether a peer is asked to send what could be read without it: that is faster, as long as it polls.

/// The most transfers for which a peer is not asked that did not answer.
const MOST: u32 = 255;

/// What is known of a peer.
#[derive(Default)]
pub(crate) struct Sender {
    /// The last request that was given up. Until it is answered all the same, the peer does something else.
    given_up: Option<u64>,
    /// The transfers for which it is not asked, and those for which it is not when it is given up once more.
    left: u32,
    next: u32,
}

impl Sender {
    /// Whether to ask it for the next transfer. One that takes long is worth waking it.
    pub(crate) fn is_worth_asking(&mut self, takes_long: bool) -> bool {
        let is_due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_due || takes_long
    }

    /// Whether nothing is known that it has not answered.
    pub(crate) fn is_free(&self) -> bool {
        self.given_up.is_none()
    }

    /// Its answers up to this one have not come in time.
    pub(crate) fn is_given_up(&mut self, number: u64) {
        self.given_up = Some(number);
        self.next = (2 * self.next + 1).min(MOST);
        self.left = self.next;
    }

    /// It has answered, in time or late.
    pub(crate) fn has_answered(&mut self, number: u64) {
        self.given_up = self.given_up.filter(|last| *last > number);
    }

    /// What it was asked for has come in time.
    pub(crate) fn has_sent(&mut self) {
        (self.left, self.next) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_does_not_answer_is_asked_seldom() {
        let mut sender = Sender::default();
        let mut asked = 0;
        for number in 1..=1000 {
            if sender.is_worth_asking(false) && sender.is_free() {
                asked += 1;
                sender.is_given_up(number);
                assert!(!sender.is_free());
                sender.has_answered(number - 1);
                assert!(!sender.is_free());
                // Late.
                sender.has_answered(number);
            }
        }
        assert!((5..15).contains(&asked), "{asked}");
        assert!(sender.is_worth_asking(true));
        sender.has_sent();
        assert!(sender.is_worth_asking(false) && sender.is_worth_asking(false));
    }
}
