//! The number of instructions of small collectives, of folds, of short messages and of calls between endpoints, counted by callgrind.
//! Unlike times, it is reproducible.
//!
//! ```text
//! cargo bench --bench instructions
//! ```
//!
//! It fails if one exceeds its limit. The simulated peers of a collective have always arrived, messages are sent to oneself, and the
//! two endpoints of a call belong to one thread, so only the own instructions count, without waiting and without system calls.
//! Those of a call are those of both sides. Needs valgrind.

use std::env;
use std::process::{Command, ExitCode};

use intranode::copy::{self, Source, Term};
use intranode::protocol::{Barrier, Failure};
use intranode::{RawSource, RawTarget};
use mirror::{Data, Mirror, Operation, Shared, call};

#[allow(dead_code, reason = "growth.rs uses more of it")]
mod mirror;

const RANKS: usize = 8;
const CHUNK: usize = 1 << 16;
/// With the widest vectors an instruction loads four elements.
const FOLDED: usize = 1024;

#[derive(Clone, Copy)]
enum Case {
    /// With the elements of a rank.
    Collective(Operation, usize),
    /// A sum of this number of elements with another rank's, of buffers that other threads may write, or not.
    Fold(usize, bool),
    /// A message of 8 bytes, sent to oneself and received; this number is sent before the first is received.
    Message(u64),
    /// The same, received from any source.
    MessageFromAny(u64),
    /// A call of 8 bytes between two endpoints, and its answer; this number is under way at once.
    Call(u64),
    /// The same with this number of clients, each with one call under way.
    Clients(u64),
    /// A get of this number of bytes between two endpoints, which both go on by polling.
    Get(usize),
    /// The same for a put.
    Put(usize),
}

/// With the limit of instructions a call on x86-64: a tenth more than when the limit was set, since compilers differ.
const CASES: [(Case, u64); 16] = [
    (Case::Collective(Operation::Barrier, 0), 520),
    (Case::Collective(Operation::Allreduce, 4), 1210),
    (Case::Collective(Operation::Allgatherv, 4), 1250),
    (Case::Collective(Operation::Scan, 4), 1210),
    (Case::Collective(Operation::ReduceScatter, RANKS), 1140),
    (Case::Collective(Operation::StartBarrier, 0), 690),
    (Case::Fold(FOLDED, false), 2110),
    (Case::Fold(FOLDED, true), 3690),
    (Case::Message(1), 460),
    (Case::Message(50), 430),
    (Case::MessageFromAny(50), 470),
    (Case::Call(1), 850),
    (Case::Call(16), 930),
    (Case::Clients(4), 830),
    (Case::Get(4096), 8200),
    (Case::Put(4096), 7840),
];

/// The number of calls. The cost of a call follows from the difference to half of them.
const CALLS: u64 = 2000;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    match &arguments[..] {
        [case, calls] => {
            let calls = calls.parse().expect("a number of calls");
            match CASES[case.parse::<usize>().expect("a case")].0 {
                Case::Collective(operation, elements) => {
                    run(operation, elements, calls).expect("the peers are fine")
                }
                Case::Fold(elements, raw) => fold_two(elements, raw, calls),
                Case::Message(batch) => {
                    send_to_oneself(batch, intranode::Source::Rank(0), calls).expect("there is room")
                }
                Case::MessageFromAny(batch) => {
                    send_to_oneself(batch, intranode::Source::Any, calls).expect("there is room");
                }
                Case::Call(in_flight) => call_each_other(1, in_flight, calls),
                Case::Clients(clients) => call_each_other(clients, clients, calls),
                Case::Get(bytes) => transfer(bytes, calls, false),
                Case::Put(bytes) => transfer(bytes, calls, true),
            }
            ExitCode::SUCCESS
        }
        _ => check_calls(),
    }
}

/// Under callgrind.
fn run(operation: Operation, elements: usize, calls: u64) -> Result<(), Failure> {
    let (mirror, shared) = (Mirror::default(), Shared::new(RANKS, CHUNK));
    let segment = shared.segment();
    let mut member = shared.member(&mirror, &segment);
    let mut data = Data::new(RANKS, elements, false);
    for _ in 0..calls {
        call(operation, &mut member, &Barrier::Flat, &mut data, usize::MAX)?;
    }
    match operation {
        Operation::Barrier | Operation::StartBarrier => assert_eq!(mirror.rounds.get(), calls),
        // The measured rank is the last, whose scan is the sum of all.
        Operation::Allreduce | Operation::Scan => assert!(data.holds_the_sum()),
        Operation::ReduceScatter => assert!(data.holds_its_sum()),
        Operation::Allgatherv => assert!(data.holds_all_blocks()),
    }
    Ok(())
}

/// Under callgrind, too.
fn fold_two(elements: usize, raw: bool, calls: u64) {
    let (own, other) = (vec![3.0; elements], vec![4.0; elements]);
    let mut sums = vec![0.0; elements];
    // SAFETY: the vector can be read as long as it is borrowed.
    let staging = unsafe { Source::new(other.as_ptr().cast(), size_of_val(&other[..])) };
    let terms = [Term::Own, Term::Staged(staging)];
    let add = |sum: f64, value: f64| sum + value;
    for _ in 0..calls {
        if raw {
            let (target, own) = (RawTarget::from(&mut sums[..]), RawSource::from(&own[..]));
            copy::fold_raw(target, Some(own), true, &terms, None, add);
        } else {
            copy::fold(&mut sums, Some(&own), true, &terms, None, add);
        }
    }
    assert!(sums.iter().all(|sum| *sum == 7.0));
}

/// Under callgrind, too. A receive must not do more because others could follow.
fn send_to_oneself(batch: u64, source: intranode::Source, calls: u64) -> Result<(), intranode::Error> {
    let results = intranode::threads(1, |comm| {
        let mut messages = comm.messages()?;
        let mut received = [0u64];
        for first in (0..calls).step_by(batch as usize) {
            let batch = first..(first + batch).min(calls);
            for number in batch.clone() {
                messages.send(&[number], 0, 1)?;
            }
            for number in batch {
                messages.recv(&mut received, source, 1)?;
                assert_eq!(received[0], number);
            }
        }
        Ok(())
    })?;
    results.into_iter().collect()
}

/// Under callgrind, too. The clients take turns.
#[cfg(target_os = "linux")]
fn call_each_other(clients: u64, in_flight: u64, calls: u64) {
    use intranode::{Endpoint, EndpointError};

    /// What has been sent. Where the processor was busy with other programs, an endpoint may take a peer to sleep, and looks at it by the
    /// clock.
    fn received<T>(mut attempt: impl FnMut() -> Result<Option<T>, EndpointError>) -> Result<T, EndpointError> {
        for _ in 0..1_000_000 {
            if let Some(message) = attempt()? {
                return Ok(message);
            }
        }
        panic!("it was sent");
    }

    let call = || {
        let mut server = Endpoint::listen(&format!("instructions-{}", std::process::id()))?;
        let address = server.address().expect("it listens").clone();
        let mut data = [0; 8];
        let clients = (0..clients).map(|_| {
            let mut client = Endpoint::client()?;
            let peer = client.connect(&address)?;
            // The first call wakes both from what they did while they connected.
            client.send_unexpected(peer, 0, &data)?;
            let call = server.recv_unexpected(&mut data)?;
            server.send_expected(call.peer, call.tag, &data)?;
            client.recv_expected(peer, 0, &mut data)?;
            Ok((client, peer))
        });
        let mut clients = clients.collect::<Result<Vec<_>, EndpointError>>()?;
        let turns = clients.len() as u64;
        for first in (0..calls).step_by(in_flight as usize) {
            let batch = first..(first + in_flight).min(calls);
            for number in batch.clone() {
                let (client, peer) = &mut clients[(number % turns) as usize];
                assert!(client.try_send_unexpected(*peer, number, &number.to_ne_bytes())?);
            }
            for _ in batch.clone() {
                let call = received(|| server.try_recv_unexpected(&mut data))?;
                assert!(server.try_send_expected(call.peer, call.tag, &data[..call.bytes])?);
            }
            for number in batch {
                let (client, peer) = &mut clients[(number % turns) as usize];
                let bytes = received(|| client.try_recv_expected(*peer, number, &mut data))?;
                assert_eq!(bytes, data.len());
                assert_eq!(data, number.to_ne_bytes());
            }
        }
        Ok::<(), EndpointError>(())
    };
    call().expect("there is room");
}

/// Under callgrind, too.
#[cfg(target_os = "linux")]
fn transfer(bytes: usize, calls: u64, puts: bool) {
    use intranode::{Access, Endpoint, EndpointError, EndpointRequest};

    fn complete<R: EndpointRequest>(
        client: &mut Endpoint,
        server: &mut Endpoint,
        request: &mut R,
    ) -> Result<(), EndpointError> {
        while client.test(request)?.is_none() {
            server.poll()?;
        }
        Ok(())
    }
    let transfer = || {
        let mut server = Endpoint::listen(&format!("instructions-{}", std::process::id()))?;
        let memory = server.share(vec![vec![7; bytes].into()], Access::ReadWrite);
        let mut client = Endpoint::client()?;
        let peer = client.connect(server.address().expect("it listens"))?;
        let mut data = vec![vec![0; bytes]];
        for _ in 0..calls {
            if puts {
                let mut put = client.start_put(peer, &memory.handle(), 0, data)?;
                complete(&mut client, &mut server, &mut put)?;
                data = put.into_data().expect("it has ended");
            } else {
                let mut get = client.start_get(peer, &memory.handle(), 0, data)?;
                complete(&mut client, &mut server, &mut get)?;
                data = get.into_buffers();
                assert!(data[0].ends_with(&[7]));
            }
        }
        Ok::<(), EndpointError>(())
    };
    transfer().expect("there is room");
}

#[cfg(not(target_os = "linux"))]
fn transfer(_bytes: usize, _calls: u64, _puts: bool) {}

#[cfg(not(target_os = "linux"))]
fn call_each_other(_clients: u64, _in_flight: u64, _calls: u64) {}

fn check_calls() -> ExitCode {
    println!("instructions per call, collectives at {RANKS} ranks");
    let mut all_well = true;
    for (case, (which, limit)) in CASES.iter().enumerate() {
        let each = (count(case, CALLS) - count(case, CALLS / 2)) / (CALLS / 2);
        // The limits are for x86-64.
        let well = each <= *limit || cfg!(not(target_arch = "x86_64"));
        all_well &= well;
        let verdict = if well { "" } else { "  TOO MANY" };
        let name = match which {
            Case::Collective(operation, elements) => {
                let name = format!("{operation:?}").to_lowercase();
                format!("{name:<14}{:>3} bytes a rank", elements * size_of::<f64>())
            }
            Case::Fold(elements, raw) => {
                let buffers = if *raw { "fold, raw" } else { "fold" };
                format!("{buffers:<12}{:>5} bytes a rank", elements * size_of::<f64>())
            }
            Case::Message(batch) => format!("message         8 bytes, {batch:>2} at once"),
            Case::MessageFromAny(batch) => format!("message of any  8 bytes, {batch:>2} at once"),
            Case::Call(in_flight) => format!("call            8 bytes, {in_flight:>2} in flight"),
            Case::Clients(clients) => format!("call            8 bytes, {clients:>2} clients"),
            Case::Get(bytes) => format!("get          {bytes:>4} bytes"),
            Case::Put(bytes) => format!("put          {bytes:>4} bytes"),
        };
        println!("{name:<32}{each:>6}, limit {limit}{verdict}");
    }
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The number of instructions of a process that makes `calls` calls.
fn count(case: usize, calls: u64) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe().expect("this program's path"))
        .args([case.to_string(), calls.to_string()])
        .output()
        .expect("valgrind can be started; please install it");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let collected = log.lines().find_map(|line| line.split_once("Collected : ")).expect("callgrind's sum").1;
    collected.trim().parse().expect("a number")
}
