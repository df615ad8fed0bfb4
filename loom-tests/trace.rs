//! What the ranks did in the execution that runs now, so that a failing one can be read.

use std::cell::{Cell, RefCell};
use std::fmt;

use intranode::protocol::generation::{Generation, POISON, WAITER};

/// Where a word or cell belongs.
#[derive(Clone, Copy)]
pub(crate) struct Label {
    pub(crate) what: &'static str,
    pub(crate) rank: usize,
    pub(crate) parity: usize,
}

/// One step of one thread.
#[derive(Clone, Copy)]
pub(crate) enum Act {
    Load(Label, u32),
    Store(Label, u32),
    Exchange(Label, u32, u32, Result<u32, u32>),
    Modify(Label, u32, u32),
    Load64(u64),
    Exchange64(Result<u64, u64>, u64),
    Sleep(Label, u32),
    Woken(Label),
    NoSleep(Label, u32),
    Wake(Label, usize),
    Expired,
    Killed,
    Write(Label),
    Read(Label),
    Header(&'static str),
}

struct Event {
    actor: usize,
    site: &'static str,
    act: Act,
}

thread_local! {
    static EVENTS: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
    static ACTOR: Cell<usize> = const { Cell::new(0) };
}

/// Forgets the previous execution.
pub(crate) fn clear() {
    EVENTS.with_borrow_mut(Vec::clear);
}

/// Notes a step of `actor`, who is the one that runs from now on.
pub(crate) fn slot(actor: usize, site: &'static str, act: Act) {
    ACTOR.set(actor);
    EVENTS.with_borrow_mut(|events| events.push(Event { actor, site, act }));
}

/// Notes a step of whoever runs.
pub(crate) fn record_here(site: &'static str, act: Act) {
    slot(ACTOR.get(), site, act);
}

/// The execution as a table: time goes down, one column a thread.
pub(crate) fn render(names: &[String]) -> String {
    const WIDTH: usize = 46;
    let row = |cells: &mut dyn Iterator<Item = String>| {
        let line: String = cells.map(|cell| format!("{cell:<WIDTH$}")).collect();
        line.trim_end().to_owned() + "\n"
    };
    let mut text = row(&mut names.iter().cloned());
    EVENTS.with_borrow(|events| {
        for event in events {
            let step = format!("{}: {}", event.site, event.act);
            let cell = |actor| if actor == event.actor { step.clone() } else { String::new() };
            text += &row(&mut (0..names.len()).map(cell));
        }
    });
    text
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}.", self.what, self.rank)?;
        if PLAIN.contains(&self.what) {
            return write!(f, "{}", self.parity);
        }
        write!(f, "{}", ["even", "odd"][self.parity])
    }
}

/// The kinds of words that hold no generation.
const PLAIN: [&str; 4] = ["notices", "fate", "alive", "clock"];

/// An arrival word in the words of the figure in `barrier.rs`; another as it is.
struct Shown(Label, u32);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown(label, value) = *self;
        if PLAIN.contains(&label.what) {
            return write!(f, "{value:#x}");
        }
        write!(f, "{}", Generation::of_word(value).number())?;
        for (flag, name) in [(WAITER, "W"), (POISON, "P")] {
            if value & flag != 0 {
                write!(f, "+{name}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Act::Load(word, seen) => write!(f, "{word} is {}", Shown(word, seen)),
            Act::Store(word, value) => write!(f, "{word} := {}", Shown(word, value)),
            Act::Exchange(word, from, to, Ok(_)) => {
                write!(f, "{word} {} -> {}", Shown(word, from), Shown(word, to))
            }
            Act::Exchange(word, from, to, Err(seen)) => {
                write!(f, "{word} {} -> {} fails: {}", Shown(word, from), Shown(word, to), Shown(word, seen))
            }
            Act::Modify(word, before, after) => {
                write!(f, "{word} {} -> {}", Shown(word, before), Shown(word, after))
            }
            Act::Load64(seen) => write!(f, "cause is {seen:#x}"),
            Act::Exchange64(Ok(_), to) => write!(f, "cause := {to:#x}"),
            Act::Exchange64(Err(seen), _) => write!(f, "cause stays {seen:#x}"),
            Act::Sleep(word, expected) => write!(f, "sleeps on {word} = {}", Shown(word, expected)),
            Act::Woken(word) => write!(f, "woken from {word}"),
            Act::NoSleep(word, seen) => write!(f, "does not sleep: {word} is {}", Shown(word, seen)),
            Act::Wake(word, count) => write!(f, "wakes {count} on {word}"),
            Act::Expired => write!(f, "deadline has passed"),
            Act::Killed => write!(f, "DIES"),
            Act::Write(cell) => write!(f, "writes {cell}"),
            Act::Read(cell) => write!(f, "reads {cell}"),
            Act::Header(text) => write!(f, "{text}"),
        }
    }
}
