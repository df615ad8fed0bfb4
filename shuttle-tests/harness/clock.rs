//! Happens-before, computed from the orderings at the protocols' call sites.
//!
//! shuttle runs every operation as if it were sequentially consistent. The clocks here do not: they grow only
//! where an operation acquires what another has released. A payload cell accepts an access only if the clock of
//! the actor that makes it has seen the accesses that it must come after. So a race is found in every schedule in which
//! both accesses occur, not only where they overlap, and a missing ordering is found with any number of ranks.

use std::sync::{Mutex, MutexGuard};

/// A moment in the life of an actor.
pub type Event = (usize, u32);

/// What an actor has seen of each other actor's life.
#[derive(Clone, Debug)]
pub struct Clock(Vec<u32>);

impl Clock {
    /// The clock that has seen nothing.
    pub fn new(actors: usize) -> Self {
        Clock(vec![0; actors])
    }

    /// The clock with which `actor` starts.
    pub fn of(actor: usize, actors: usize) -> Self {
        let mut clock = Clock::new(actors);
        clock.0[actor] = 1;
        clock
    }

    /// Sees what `other` has seen.
    pub fn join(&mut self, other: &Clock) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// What happens now, if this is the clock of `actor`.
    pub fn event(&self, actor: usize) -> Event {
        (actor, self.0[actor])
    }

    /// Ends the present of `actor`: what it does from now on is not part of what it has released.
    pub fn advance(&mut self, actor: usize) {
        self.0[actor] += 1;
    }

    /// Whether the event happens before what the owner of this clock does now.
    pub fn has_seen(&self, (actor, time): Event) -> bool {
        time <= self.0[actor]
    }
}

/// The accesses to one payload cell that a later access must come after.
#[derive(Debug, Default)]
pub struct Accesses {
    written: Option<Event>,
    read: Vec<Event>,
}

impl Accesses {
    /// Records a write.
    ///
    /// # Errors
    /// When it races with another access.
    pub fn write(&mut self, actor: usize, clock: &Clock) -> Result<(), String> {
        self.after_write(clock)?;
        if let Some((reader, _)) = self.read.iter().find(|read| !clock.has_seen(**read)) {
            return Err(format!("a write races with a read by actor {reader}"));
        }
        self.read.clear();
        self.written = Some(clock.event(actor));
        Ok(())
    }

    /// Records a read.
    ///
    /// # Errors
    /// When it races with a write.
    pub fn read(&mut self, actor: usize, clock: &Clock) -> Result<(), String> {
        self.after_write(clock)?;
        let now = clock.event(actor);
        match self.read.iter_mut().find(|(reader, _)| *reader == actor) {
            Some(read) => *read = now,
            None => self.read.push(now),
        }
        Ok(())
    }

    fn after_write(&self, clock: &Clock) -> Result<(), String> {
        match self.written {
            Some(written) if !clock.has_seen(written) => {
                Err(format!("the access races with a write by actor {}", written.0))
            }
            _ => Ok(()),
        }
    }
}

/// Locks what no actor holds while another runs: shuttle switches only at its own operations.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.try_lock().expect("not held across a scheduling point")
}
