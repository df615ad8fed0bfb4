//! Calls by iceoryx2's request-response, for `benches/endpoint`: a server, and a client that prints the microseconds of a call.
//!
//! ```text
//! intranode-bench-iceoryx2 serve NAME awake|asleep            # until its input is closed
//! intranode-bench-iceoryx2 call NAME awake|asleep IN_FLIGHT SECONDS
//! ```
//!
//! Awake, both sides poll. Asleep, who sends notifies the other side's event, which is how iceoryx2 wakes.

use std::collections::VecDeque;
use std::error::Error;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::prelude::*;
use iceoryx2::service::ipc::Service;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The most calls in flight.
const IN_FLIGHT: usize = 16;

/// How long a side sleeps at most: an end is noticed then.
const NAP: Duration = Duration::from_millis(100);

fn main() -> Result<()> {
    set_log_level(LogLevel::Fatal);
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", name, mode] => serve(name, mode == "asleep"),
        ["call", name, mode, in_flight, seconds] => {
            let time = call(name, mode == "asleep", in_flight.parse()?, seconds.parse()?)?;
            println!("{time}");
            Ok(())
        }
        _ => Err("serve NAME awake|asleep, or call NAME awake|asleep IN_FLIGHT SECONDS".into()),
    }
}

/// The events by which a side is woken, and wakes.
fn events(node: &Node<Service>, own: &str, other: &str) -> Result<(Listener<Service>, Notifier<Service>)> {
    let event =
        |name: &str| -> Result<_> { Ok(node.service_builder(&name.try_into()?).event().open_or_create()?) };
    let listener = event(own)?.listener_builder().create()?;
    Ok((listener, event(other)?.notifier_builder().create()?))
}

macro_rules! calls {
    ($node:expr, $name:expr) => {
        $node
            .service_builder(&$name.try_into()?)
            .request_response::<u64, u64>()
            .max_active_requests_per_client(IN_FLIGHT)
            .max_loaned_requests(IN_FLIGHT)
            .open_or_create()?
    };
}

fn serve(name: &str, asleep: bool) -> Result<()> {
    let node = NodeBuilder::new().create::<Service>()?;
    let service = calls!(node, name);
    let server = service.server_builder().create()?;
    let (listener, notifier) = events(&node, &format!("{name}-server"), &format!("{name}-client"))?;
    let ends = Arc::new(AtomicBool::new(false));
    let closed = Arc::clone(&ends);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        closed.store(true, Ordering::Relaxed);
    });
    println!("serves");
    while !ends.load(Ordering::Relaxed) {
        let mut answered = false;
        while let Some(request) = server.receive()? {
            request.loan_uninit()?.write_payload(*request + 1).send()?;
            answered = true;
        }
        if asleep && answered {
            notifier.notify()?;
        } else if asleep {
            listener.timed_wait_one(NAP)?;
        }
    }
    Ok(())
}

/// Microseconds of a call.
fn call(name: &str, asleep: bool, in_flight: usize, seconds: f64) -> Result<f64> {
    let node = NodeBuilder::new().create::<Service>()?;
    let service = calls!(node, name);
    let client = service.client_builder().create()?;
    let (listener, notifier) = events(&node, &format!("{name}-client"), &format!("{name}-server"))?;
    let send = |number: u64| -> Result<_> {
        let pending = client.loan_uninit()?.write_payload(number).send()?;
        if asleep {
            notifier.notify()?;
        }
        Ok((number, pending))
    };
    let (mut calls, mut start, mut pending) = (0, Instant::now(), VecDeque::new());
    let warm_up = Duration::from_secs_f64(seconds / 10.0);
    let (mut warm, length) = (false, Duration::from_secs_f64(seconds));
    for number in 0..in_flight as u64 {
        pending.push_back(send(number)?);
    }
    while let Some((number, call)) = pending.pop_front() {
        let answer = loop {
            match call.receive()? {
                Some(answer) => break *answer,
                None if asleep => drop(listener.timed_wait_one(NAP)?),
                None => std::hint::spin_loop(),
            }
        };
        if answer != number + 1 {
            return Err(format!("{answer} instead of {}", number + 1).into());
        }
        drop(call);
        calls += 1;
        if calls % 64 == 0 || asleep {
            let elapsed = start.elapsed();
            if !warm && elapsed >= warm_up {
                (warm, calls, start) = (true, 0, Instant::now());
            } else if warm && elapsed >= length {
                return Ok(elapsed.as_secs_f64() * 1e6 / f64::from(calls));
            }
        }
        pending.push_back(send(number + in_flight as u64)?);
    }
    Err("no call is in flight".into())
}
