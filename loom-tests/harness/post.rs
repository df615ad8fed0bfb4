//! Models of messages: each thread is a rank, and what all have seen is judged at the end of every execution.

use std::sync::Arc;

use intranode::protocol::message::channel;
use intranode::protocol::{CauseKind, Failure};

use crate::harness::correspondent::{Correspondent, Memory};
use crate::harness::machine::Fate;
use crate::harness::mutant::Simulated;
use crate::harness::search::{About, Run, Search};
use crate::harness::waiting::Waiting;

/// What a rank does. It ends with the first error.
pub(crate) type Role = fn(&Correspondent<'_>) -> Result<(), Failure>;

/// What a rank has seen, and how it has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) values: Vec<u64>,
    pub(crate) end: Result<(), Failure>,
}

type Check = Arc<dyn Fn(&[Seen]) + Send + Sync>;

/// Ranks that send to each other, and what must hold of what they have seen.
#[derive(Clone)]
pub(crate) struct PostModel {
    name: String,
    waiting: Waiting,
    /// By rank.
    roles: Vec<(Role, Fate)>,
    cells: usize,
    buffers: usize,
    /// That of the counts of messages in words.
    modulus: u64,
    /// Whether the first messages are in the lines of the pairs.
    in_line: bool,
    check: Check,
    bound: Option<usize>,
}

impl PostModel {
    /// Rings have two cells, and there is one buffer in each channel, if nothing else is said.
    pub(crate) fn new(name: impl Into<String>, waiting: Waiting, roles: &[Role]) -> Self {
        PostModel {
            name: name.into(),
            waiting,
            roles: roles.iter().map(|role| (*role, Fate::NONE)).collect(),
            cells: 2,
            buffers: 1,
            modulus: channel::MODULUS,
            in_line: false,
            check: Arc::new(|_| ()),
            bound: None,
        }
    }

    pub(crate) fn cells(self, cells: usize) -> Self {
        PostModel { cells, ..self }
    }

    pub(crate) fn buffers(self, buffers: usize) -> Self {
        PostModel { buffers, ..self }
    }

    /// Words say modulo this how many messages were taken.
    pub(crate) fn modulus(self, modulus: u64) -> Self {
        PostModel { modulus, ..self }
    }

    /// The first message of each channel is in the line of its pair.
    pub(crate) fn in_line(self) -> Self {
        PostModel { in_line: true, ..self }
    }

    pub(crate) fn bound(self, bound: usize) -> Self {
        PostModel { bound: Some(bound), ..self }
    }

    /// The same where ranks wait in this way.
    pub(crate) fn bound_in(self, waiting: Waiting, bound: usize) -> Self {
        if self.waiting == waiting { self.bound(bound) } else { self }
    }

    /// What happens to a rank.
    pub(crate) fn fate(mut self, rank: usize, fate: Fate) -> Self {
        self.roles[rank].1 = fate;
        self
    }

    /// What must hold at the end, of what each rank has seen.
    pub(crate) fn check(self, check: impl Fn(&[Seen]) + Send + Sync + 'static) -> Self {
        PostModel { check: Arc::new(check), ..self }
    }

    fn execute(&self, run: &Run) {
        let fates: Vec<Fate> = self.roles.iter().map(|(_, fate)| *fate).collect();
        let (roles, check, in_line) = (self.roles.clone(), Arc::clone(&self.check), self.in_line);
        let act = move |rank: usize, platform: &Simulated, memory: &Memory| {
            let segment = memory.segment.segment();
            let one = Correspondent::new(rank, platform, (memory, &segment), in_line);
            let end = roles[rank].0(&one);
            if end == Err(Failure::Killed) {
                // Its thread stands in for the watcher that finds it dead, and that has one life only.
                let _ = one.poison(CauseKind::Died);
            }
            Seen { values: one.seen(), end }
        };
        run.threads(
            Memory::new(self.roles.len(), (self.cells, self.buffers), self.modulus),
            &fates,
            act,
            move |seen| check(seen),
        );
    }
}

impl From<PostModel> for Search {
    fn from(model: PostModel) -> Search {
        let ranks = model.roles.len();
        let threads = (0..ranks).map(|rank| format!("rank {rank}")).collect();
        let (name, waiting, bound) = (model.name.clone(), model.waiting, model.bound);
        let search = Search::new(name, waiting, threads, move |run| model.execute(run));
        Search { about: About::Messages, ranks, bound, ..search }
    }
}
