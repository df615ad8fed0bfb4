//! What ranks that send each other messages do.

use crate::harness::choice;

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    InCell,
    /// The number of buffers that it takes.
    InBuffers(usize),
    Pulled,
    /// Offered, and sent through buffers, since it cannot be pulled.
    InParts,
    /// Offered, and taken back at some time.
    Withdrawn,
}

/// What all ranks do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// By rank and round: to whom, and how.
    pub sends: Vec<Vec<Vec<(usize, How)>>>,
}

impl Plan {
    /// A random one. Perhaps some rank leaves earlier than the others.
    pub fn random(ranks: usize, rounds: usize) -> Self {
        let leaver = if choice::once_in(3) { choice::below(ranks) } else { ranks };
        let early = choice::below(rounds + 1);
        let plays = |rank: usize| if rank == leaver { early } else { rounds };
        let send = |round: usize| {
            let target = choice::below(ranks);
            let how = match choice::below(8) {
                0 | 1 => How::InCell,
                2 | 3 => How::InBuffers(1 + choice::below(3)),
                4 => How::Pulled,
                5 => How::InParts,
                _ => How::Withdrawn,
            };
            (round < plays(target)).then_some((target, how))
        };
        let round = |round| (0..choice::below(4)).filter_map(|_| send(round)).collect();
        let of_rank = |rank| (0..plays(rank)).map(round).collect();
        Plan { sends: (0..ranks).map(of_rank).collect() }
    }

    pub fn ranks(&self) -> usize {
        self.sends.len()
    }

    /// How many messages `sender` sends to `target` in the first rounds.
    pub fn due(&self, sender: usize, target: usize, rounds: usize) -> u64 {
        self.sends[sender].iter().take(rounds).flatten().filter(|(to, _)| *to == target).count() as u64
    }
}
