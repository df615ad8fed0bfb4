//! What the threads did in the execution that runs now, so that a failing one can be read.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::atomic::Ordering;

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
pub(crate) enum Action {
    Load(Label, u32),
    Store(Label, u32),
    Exchange(Label, u32, u32, Result<u32, u32>),
    Modify(Label, u32, u32),
    Load64(u64),
    Exchange64(Result<u64, u64>, u64),
    Sleep(Label, u32),
    Woken(Label),
    WokenFromOneOfSeveral,
    NoSleep(Label, u32),
    SpuriousReturn,
    Wake(Label, usize),
    Expired,
    /// The program does not want to wait any longer.
    Interrupted,
    Killed,
    Write(Label),
    Read(Label),
    LoadCell(Label, u64),
    StoreCell(Label, u64),
    ExchangeCell(Label, u64, u64, Result<u64, u64>),
    ModifyCell(Label, u64, u64),
    Fence(Ordering),
}

struct Event {
    thread: usize,
    site: &'static str,
    action: Action,
}

thread_local! {
    static EVENTS: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
    static LAST: Cell<usize> = const { Cell::new(0) };
    static NOW: Cell<(usize, &'static str)> = const { Cell::new((0, "")) };
}

/// Forgets the previous execution.
pub(crate) fn clear() {
    EVENTS.with_borrow_mut(Vec::clear);
}

/// Records a step of `thread`.
pub(crate) fn record(thread: usize, site: &'static str, action: Action) {
    LAST.set(thread);
    EVENTS.with_borrow_mut(|events| events.push(Event { thread, site, action }));
}

/// Records an access to a cell, which does not know its thread: that of the last step.
pub(crate) fn record_access(action: Action) {
    record(LAST.get(), "payload", action);
}

/// The next access to a cell is a step of `thread` at this site: a cell knows neither.
pub(crate) fn begin(thread: usize, site: &'static str) {
    NOW.set((thread, site));
}

/// Whose step begins now, and where.
pub(crate) fn now() -> (usize, &'static str) {
    NOW.get()
}

/// The execution as a table: time goes down, one column a thread.
pub(crate) fn render(threads: &[String]) -> String {
    const WIDTH: usize = 46;
    let row = |cells: &mut dyn Iterator<Item = String>| {
        let line: String = cells.map(|cell| format!("{cell:<WIDTH$}")).collect();
        line.trim_end().to_owned() + "\n"
    };
    let mut text = row(&mut threads.iter().cloned());
    EVENTS.with_borrow(|events| {
        for event in events {
            let step = format!("{}: {}", event.site, event.action);
            let cell = |thread| if thread == event.thread { step.clone() } else { String::new() };
            text += &row(&mut (0..threads.len()).map(cell));
        }
    });
    text
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}.", self.what, self.rank)?;
        if NO_GENERATION.contains(&self.what) {
            return write!(f, "{}", self.parity);
        }
        write!(f, "{}", ["even", "odd"][self.parity])
    }
}

/// The kinds of words and cells that hold no generation.
const NO_GENERATION: [&str; 7] = ["notices", "fate", "alive", "clock", "bell", "cell", "lock"];

/// What a word holds, in the notation of the figure in `barrier.rs` if that is a generation.
struct Value(Label, u32);

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Value(label, value) = *self;
        match label.what {
            "bell" => write!(f, "{}", value >> 2)?,
            what if NO_GENERATION.contains(&what) => return write!(f, "{value:#x}"),
            _ => write!(f, "{}", Generation::of_word(value).number())?,
        }
        for (flag, name) in [(WAITER, "W"), (POISON, "P")] {
            if value & flag != 0 {
                write!(f, "+{name}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Action::Load(word, seen) => write!(f, "{word} is {}", Value(word, seen)),
            Action::Store(word, value) => write!(f, "{word} := {}", Value(word, value)),
            Action::Exchange(word, from, to, Ok(_)) => {
                write!(f, "{word} {} -> {}", Value(word, from), Value(word, to))
            }
            Action::Exchange(word, from, to, Err(seen)) => {
                write!(f, "{word} {} -> {} fails: {}", Value(word, from), Value(word, to), Value(word, seen))
            }
            Action::Modify(word, before, after) => {
                write!(f, "{word} {} -> {}", Value(word, before), Value(word, after))
            }
            Action::Load64(seen) => write!(f, "cause is {seen:#x}"),
            Action::Exchange64(Ok(_), to) => write!(f, "cause := {to:#x}"),
            Action::Exchange64(Err(seen), _) => write!(f, "cause stays {seen:#x}"),
            Action::Sleep(word, expected) => write!(f, "sleeps on {word} = {}", Value(word, expected)),
            Action::Woken(word) => write!(f, "woken from {word}"),
            Action::WokenFromOneOfSeveral => write!(f, "woken"),
            Action::NoSleep(word, seen) => write!(f, "does not sleep: {word} is {}", Value(word, seen)),
            Action::SpuriousReturn => write!(f, "returns for no reason"),
            Action::Wake(word, count) => write!(f, "wakes {count} on {word}"),
            Action::Expired => write!(f, "deadline has passed"),
            Action::Interrupted => write!(f, "is interrupted"),
            Action::Killed => write!(f, "DIES"),
            Action::Write(cell) => write!(f, "writes {cell}"),
            Action::Read(cell) => write!(f, "reads {cell}"),
            Action::LoadCell(cell, seen) => write!(f, "{cell} is {seen}"),
            Action::StoreCell(cell, value) => write!(f, "{cell} := {value}"),
            Action::ExchangeCell(cell, from, to, Ok(_)) => write!(f, "{cell} {from} -> {to}"),
            Action::ExchangeCell(cell, from, to, Err(seen)) => write!(f, "{cell} {from} -> {to} fails: {seen}"),
            Action::ModifyCell(cell, before, after) => write!(f, "{cell} {before} -> {after}"),
            Action::Fence(order) => write!(f, "fence({order:?})"),
        }
    }
}
