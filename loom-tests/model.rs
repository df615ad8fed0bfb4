//! A model: threads with scripts, a way of waiting, and what must hold at the end of each execution.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use intranode::protocol::{Cause, membership};
use intranode::protocol::{CauseKind, Failure, Generation, Member};

use crate::explore::{Explored, Rejected, explore};
use crate::machine::{Fate, Machine, Waiting};
use crate::ownership;
use crate::program::Step;
use crate::watching::{self, Plan, Ring};
use crate::weakened::{Mutation, Weakened};
use crate::world::{Outcome, Rank, World};

/// One thread of a model.
#[derive(Clone)]
pub(crate) struct Actor {
    /// The rank that it is; `None` for a bystander who only poisons.
    pub(crate) rank: Option<usize>,
    pub(crate) script: Vec<Step>,
    pub(crate) fate: Fate,
}

/// How long a thread keeps its rank's lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LockOf {
    Call,
    /// A mistake.
    Transfer,
}

type Check = Arc<dyn Fn(&[Actor], &[Outcome]) + Send + Sync>;

/// What is explored.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) waiting: Waiting,
    /// The number of preemptions in an execution; `None` for any number.
    pub(crate) bound: Option<usize>,
    pub(crate) actors: Vec<Actor>,
    /// The last round before the model.
    pub(crate) start: u32,
    /// By rank: the leader of its group. None: they do not meet in groups.
    pub(crate) leaders: Vec<usize>,
    /// Ranks that do nothing but watch each other: how they stand.
    pub(crate) ring: Option<Plan>,
    pub(crate) check: Check,
    /// Where a rank has several threads: what its lock is kept for.
    lock: Option<LockOf>,
    /// Only in the long run.
    pub(crate) long: bool,
}

impl Model {
    /// Every rank runs its script, and every call must bring what it should.
    pub(crate) fn new(name: impl Into<String>, waiting: Waiting, scripts: &[&[Step]]) -> Self {
        let actor = |(rank, script): (usize, &&[Step])| Actor {
            rank: Some(rank),
            script: script.to_vec(),
            fate: Fate::default(),
        };
        Model {
            name: name.into(),
            waiting,
            bound: None,
            actors: scripts.iter().enumerate().map(actor).collect(),
            start: 4,
            leaders: Vec::new(),
            ring: None,
            check: Arc::new(crate::verdict::exact),
            lock: None,
            long: false,
        }
    }

    /// All ranks run the same script.
    pub(crate) fn same(name: impl Into<String>, waiting: Waiting, ranks: usize, script: &[Step]) -> Self {
        Model::new(name, waiting, &vec![script; ranks])
    }

    pub(crate) fn bound(mut self, bound: usize) -> Self {
        self.bound = Some(bound);
        self
    }

    pub(crate) fn start(mut self, start: u32) -> Self {
        self.start = start;
        self
    }

    /// In groups: by rank, who leads its group.
    pub(crate) fn led_by(mut self, leaders: &[usize]) -> Self {
        self.leaders = leaders.to_vec();
        self
    }

    pub(crate) fn fate(mut self, rank: usize, fate: Fate) -> Self {
        self.actors[rank].fate = fate;
        self
    }

    pub(crate) fn bystander(mut self, script: &[Step]) -> Self {
        self.actors.push(Actor { rank: None, script: script.to_vec(), fate: Fate::default() });
        self
    }

    /// A further thread of a rank. From here on all calls go through their rank's lock, and what must hold is what the
    /// [`Ownership`](crate::ownership::Ownership) checks.
    pub(crate) fn second_thread(mut self, rank: usize, script: &[Step]) -> Self {
        self.actors.push(Actor { rank: Some(rank), script: script.to_vec(), fate: Fate::default() });
        self.lock = Some(LockOf::Call);
        self.check(|_, _| ())
    }

    /// Calls of several transfers are several calls, as far as the lock is concerned.
    pub(crate) fn lock_of_each_transfer(mut self) -> Self {
        self.lock = Some(LockOf::Transfer);
        self
    }

    pub(crate) fn check(mut self, check: impl Fn(&[Actor], &[Outcome]) + Send + Sync + 'static) -> Self {
        self.check = Arc::new(check);
        self
    }

    pub(crate) fn long(mut self) -> Self {
        self.long = true;
        self
    }

    pub(crate) fn ranks(&self) -> usize {
        self.actors.iter().filter_map(|actor| actor.rank).max().map_or(0, |last| last + 1)
    }

    /// The rounds of the longest script.
    pub(crate) fn rounds(&self) -> usize {
        let rounds = |actor: &Actor| actor.script.iter().map(|step| step.rounds()).sum();
        self.actors.iter().map(rounds).max().unwrap_or(0)
    }

    /// The name under which the model is selected, recorded and shown.
    pub(crate) fn id(&self) -> String {
        let waiting = format!("{:?}", self.waiting).to_lowercase();
        let bound = self.bound.map(|bound| format!("::bound_{bound}")).unwrap_or_default();
        let led: String = self.leaders.iter().map(|leader| format!("_{leader}")).collect();
        let led = if led.is_empty() { led } else { format!("::led_by{led}") };
        let ring = self.ring.as_ref().map(|plan| format!("::{}_by_{}", plan.ranks, plan.width));
        format!("{}::x{}{led}{}::{waiting}{bound}", self.name, self.ranks(), ring.unwrap_or_default())
    }

    /// Explores the model, on a machine with a mutation if one is given.
    pub(crate) fn explore(&self, mutation: Option<Mutation>) -> Result<Explored, Rejected> {
        let columns: Vec<_> = (self.actors.iter())
            .map(|actor| actor.rank.map_or("bystander".to_owned(), |rank| format!("rank {rank}")))
            .collect();
        let model = self.clone();
        let met = Arc::new(AtomicBool::new(false));
        let fate = Arc::clone(&met);
        let explored = explore(self.bound, &columns, move || model.execute(mutation, &fate))?;
        // A model of a death in which nobody dies would show nothing.
        let fated = self.actors.iter().any(|actor| actor.fate.is_any());
        assert!(!fated || met.load(Relaxed), "no execution in which the fate comes true");
        Ok(explored)
    }

    /// One execution: the first actor runs on loom's own thread.
    fn execute(&self, mutation: Option<Mutation>, met: &Arc<AtomicBool>) {
        let start = Generation::new(self.start);
        let claims = self.actors.iter().any(|actor| actor.script.contains(&Step::Claim));
        let ranks = if self.ring.is_some() { 0 } else { self.ranks() };
        let threaded = self.lock.is_some();
        let mut world = World::new(ranks, start, claims, self.actors.len(), &self.leaders, threaded);
        world.ring = self.ring.as_ref().map(|plan| Ring::new(plan, &self.actors));
        let world = Rc::new(world);
        for index in 1..self.actors.len() {
            let (model, world, met) = (self.clone(), Rc::clone(&world), Arc::clone(met));
            loom::thread::spawn(move || model.play(index, &world, mutation, &met));
        }
        self.play(0, &world, mutation, met);
    }

    fn play(&self, index: usize, world: &World, mutation: Option<Mutation>, met: &AtomicBool) {
        let actor = &self.actors[index];
        let platform = Weakened::new(Machine::new(index, self.waiting, actor.fate), mutation);
        let outcome = match (&world.ring, self.lock) {
            (Some(ring), _) => watching::act(actor, &platform, ring),
            (None, Some(lock)) => act_locked(actor, lock, &platform, world),
            (None, None) => act(actor, index, &platform, world, Generation::new(self.start)),
        };
        met.fetch_or(platform.inner().met_its_fate.get(), Relaxed);
        world.outcomes.borrow_mut()[index] = outcome;
        world.running.set(world.running.get() - 1);
        if world.running.get() == 0 {
            (self.check)(&self.actors, &world.outcomes.borrow());
        }
    }
}

/// Runs a script to its end, or to that of its rank.
fn act(actor: &Actor, index: usize, platform: &Rank, world: &World, start: Generation) -> Outcome {
    let mut outcome = Outcome::default();
    let segment = world.segment();
    let mourn = |rank: usize| {
        let cause = Cause { kind: CauseKind::Died, rank, detail: 0 };
        membership::poison(platform, segment, cause).map_err(Failure::from)
    };
    let mut member = actor.rank.map(|rank| Member::new(platform, segment, rank, start));
    for (nth, step) in actor.script.iter().enumerate() {
        let result = match (*step, &mut member) {
            (Step::Mourn(rank), _) => mourn(rank),
            (Step::Claim, _) => {
                let claimed = membership::claim(platform, segment, 0, index as u32 + 1);
                claimed.map_err(|_| Failure::Refused(0))
            }
            (step, Some(member)) => step.run(nth, index, member, world),
            (step, None) => unreachable!("{step:?} by a bystander"),
        };
        outcome.calls.push(result.clone());
        match result {
            Err(Failure::Dead(_)) => {
                outcome.late = (member.as_ref()).map(|member| {
                    let completed = member.completed();
                    (completed.number(), member.late(completed.next()))
                });
                break;
            }
            Err(Failure::Killed) => break,
            _ => {}
        }
    }
    if outcome.calls.last() == Some(&Err(Failure::Killed)) {
        // Whoever notices the death poisons; its thread stands in for the dead one. It has one life only.
        let _ = mourn(actor.rank.unwrap_or(index));
    }
    outcome
}

/// The same for a thread that shares its rank with others.
fn act_locked(actor: &Actor, kept: LockOf, platform: &Rank, world: &World) -> Outcome {
    let mut outcome = Outcome::default();
    let rank = actor.rank.expect("a bystander shares nothing");
    let (segment, lock) = (world.segment(), &world.ownership.locks[rank]);
    let locked = |call: &mut dyn FnMut(&mut Member<'_, Rank>) -> Result<(), Failure>| {
        let Ok(mut member) = lock.begin(platform, segment, rank) else {
            return Err(Failure::Dead(Some(Cause { kind: CauseKind::ConcurrentUse, rank, detail: 0 })));
        };
        let result = call(&mut member);
        world.ownership.has_seen(member.completed(), &result);
        lock.end(platform, &member);
        result
    };
    for step in &actor.script {
        let result = match *step {
            Step::Leave => {
                let detail = lock.completed(platform).number();
                let cause = Cause { kind: CauseKind::Left, rank, detail };
                membership::poison(platform, segment, cause).map_err(Failure::from)
            }
            Step::Assign { .. } => {
                world.ownership.give_back(rank);
                let (mut counts, mut owns) = (None, false);
                let mut transfers = |member: &mut Member<'_, Rank>| match counts.take() {
                    None => ownership::first(rank, member, *step).map(|all| counts = Some(all)),
                    Some(all) => ownership::second(rank, member, *step, &all).map(|own| owns = own),
                };
                let result = match kept {
                    LockOf::Call => locked(&mut |member| transfers(member).and_then(|()| transfers(member))),
                    LockOf::Transfer => locked(&mut transfers).and_then(|()| locked(&mut transfers)),
                };
                world.ownership.settle(rank, &result.clone().map(|()| owns));
                result
            }
            _ => locked(&mut |member| step.run(0, rank, member, world)),
        };
        let over = matches!(result, Err(Failure::Dead(_)));
        outcome.calls.push(result);
        if over {
            break;
        }
    }
    outcome
}
