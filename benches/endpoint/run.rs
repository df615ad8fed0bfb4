//! Which rows there are.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use crate::block::{Client, Length, Row, run};
use crate::ours::{LONGEST, Pair};
use crate::process::{bind, processors};
use crate::ranks::{self, Ranks};
use crate::{iceoryx, machine, mpi, ours, ucx};

const LONG: Length = Length { row: Duration::from_millis(200), blocks: 15 };
const QUICK: Length = Length { row: Duration::from_millis(10), blocks: 3 };

/// From 4 KiB on, each four times the one before.
const SIZES: [usize; 8] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, LONGEST];

/// Calls and bulk transfers of endpoints, beside what else there is on this machine.
#[derive(Parser)]
struct Args {
    /// Some minutes, where the machine is busy.
    #[arg(long)]
    quick: bool,

    /// Measure only rows whose names have this text, and those that they are compared with.
    #[arg(default_value = "")]
    filter: String,

    /// What `cargo bench` says.
    #[arg(long, hide = true)]
    bench: bool,
}

pub(crate) fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, name, mode, processor] = &args[..]
        && serve == ours::SERVE
    {
        return ours::serve(name, mode == "asleep", processor.parse()?);
    }
    if let [serve, name, processor] = &args[..]
        && serve == ranks::SERVE
    {
        return ranks::serve(name, processor.parse()?);
    }
    let Args { quick, filter, .. } = Args::parse();
    println!("processors {:?}", processors()?);
    // Before this process is bound: what is started with fewer processors than ranks is set up for that.
    let rivals = Rivals::find();
    bind(processors()?[0])?;
    let pair = |asleep| -> Result<_> { Ok(Rc::new(RefCell::new(Pair::start(asleep)?))) };
    let [awake, asleep] = [pair(false)?, pair(true)?];
    let mut rows = calls(&awake, &asleep, Ranks::start()?, &rivals);
    rows.extend(bulk(rows.len(), &awake, &rivals));
    for row in &mut rows {
        row.wanted = row.name.contains(&filter);
    }
    run(rows, if quick { QUICK } else { LONG })
}

/// What is there of other libraries.
struct Rivals {
    iceoryx: Option<std::path::PathBuf>,
    ucx: Option<std::path::PathBuf>,
    mpi: Vec<mpi::Library>,
}

impl Rivals {
    fn find() -> Self {
        let iceoryx = iceoryx::program();
        if let Err(error) = &iceoryx {
            println!("iceoryx2 is left out: {error:#}");
        }
        let ucx = ucx::program();
        if ucx.is_none() {
            println!("UCX is left out: no ucx_perftest at UCX_PERFTEST, nor from `make race`");
        }
        let mpi = mpi::libraries();
        if let Err(error) = &mpi {
            println!("MPI is left out: {error:#}");
        }
        let (missing, mpi): (Vec<_>, _) =
            mpi.unwrap_or_default().into_iter().partition(|library| library.missing.is_some());
        for mpi::Library { name, missing, .. } in missing {
            println!("{name} is left out: {}", missing.unwrap_or_default());
        }
        Rivals { iceoryx: iceoryx.ok(), ucx, mpi }
    }
}

type Shared = Rc<RefCell<Pair>>;

/// Calls, beside twice the time of a line, or of a wake-up where both sides sleep.
fn calls(awake: &Shared, asleep: &Shared, ranks: Ranks, rivals: &Rivals) -> Vec<Row> {
    const UNIT: &str = "µs";
    let ranks = Rc::new(RefCell::new(ranks));
    let mut rows = vec![
        Row::new("line, there and back", UNIT, None, machine::round_trip),
        Row::new("wake-up, there and back", UNIT, None, machine::wake_ups),
    ];
    for (mode, pair) in [("awake", awake), ("asleep", asleep)] {
        let sleeps = mode == "asleep";
        let beside = Some(usize::from(sleeps));
        for in_flight in [1, 16] {
            let own = Rc::clone(pair);
            let measure = move |length| own.borrow_mut().calls(in_flight, length);
            rows.push(Row::new(format!("call, {in_flight} in flight, {mode}"), UNIT, beside, measure));
            if !sleeps {
                let ranks = Rc::clone(&ranks);
                let measure = move |length| ranks.borrow_mut().calls(in_flight, length);
                let name = format!("  between ranks, {in_flight} in flight, {mode}");
                rows.push(Row::new(name, UNIT, beside, measure));
            }
            if let Some(program) = rivals.iceoryx.clone() {
                let measure = move |length| iceoryx::calls(&program, sleeps, in_flight, length);
                let name = format!("  iceoryx2, {in_flight} in flight, {mode}");
                rows.push(Row::new(name, UNIT, beside, measure));
            }
            // MPI's libraries poll.
            for library in rivals.mpi.iter().filter(|_| !sleeps) {
                let (library, name) =
                    (library.clone(), format!("  {}, {in_flight} in flight, {mode}", library.title()));
                rows.push(Row::new(name, UNIT, beside, move |length| library.calls(in_flight, length)));
            }
        }
    }
    if let Some(program) = rivals.ucx.clone() {
        let measure = move |length| ucx::round_trip(&program, length);
        rows.push(Row::new("  UCX, message and answer by tag, awake", UNIT, Some(0), measure));
    }
    rows
}

/// Bulk by size, beside a copy of the same bytes.
fn bulk(first: usize, pair: &Shared, rivals: &Rivals) -> Vec<Row> {
    const UNIT: &str = "GB/s";
    let mut rows = Vec::new();
    for bytes in SIZES {
        let size =
            if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) };
        let machine = first + rows.len();
        let own = Rc::clone(pair);
        rows.push(Row::new(format!("remote copy, {size}"), UNIT, None, move |length| {
            let Pair { server, start, memory, .. } = &mut *own.borrow_mut();
            machine::remote_copy(server.process.id(), *start, &mut memory[..bytes], length)
        }));
        let own = Rc::clone(pair);
        let gets = move |length| own.borrow_mut().gets(bytes, length);
        rows.push(Row::new(format!("  get, {size}"), UNIT, Some(machine), gets));
        let own = Rc::clone(pair);
        let puts = move |length| own.borrow_mut().puts(bytes, length);
        rows.push(Row::new(format!("  put, {size}"), UNIT, Some(machine), puts));
        if let Some(program) = rivals.ucx.clone() {
            let measure = move |length| ucx::messages(&program, bytes, length);
            rows.push(Row::new(format!("  UCX, message by tag, {size}"), UNIT, Some(machine), measure));
        }
        for library in &rivals.mpi {
            let (library, name) = (library.clone(), format!("  {}, message, {size}", library.title()));
            rows.push(Row::new(name, UNIT, Some(machine), move |length| library.messages(bytes, length)));
        }
    }
    rows
}
